"""Tables as VLMEvalKit writes them: pandas' xlsx, tsv with all fields quoted, JSON records; columns of its data sets.

Names and columns are those of open-compass/VLMEvalKit e8e78f0, `vlmeval/smp/file.py` and `vlmeval/inference.py`.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from omniloom.tools.main import run

pandas = pytest.importorskip("pandas", reason="VLMEvalKit writes with pandas")
pytest.importorskip("openpyxl", reason="needs omniloom[eval]")

FAILED = "Failed to obtain answer via API."
LETTERS = {"question": "which?", "A": "red", "B": "blue"}

DATASETS: dict[str, tuple[str, list[dict[str, Any]], list[str], float]] = {
    # of each: task, rows, predictions, and the first score by hand
    "AI2D_TEST": ("ai2d", [LETTERS | {"answer": "B", "category": "x"}] * 4, ["B", "B. blue", "A", FAILED], 50.0),
    "MMMU_DEV_VAL": (
        "mmmu",
        [
            LETTERS | {"id": f"validation_Art_{n}", "answer": "B", "C": None, "category": "Art", "split": "validation"}
            for n in range(4)
        ],
        ["B", "(B)", "The answer is A", ""],
        50.0,
    ),
    "MMMU_Pro_10c": ("mmmu-pro", [LETTERS | {"answer": "A", "C": "x", "D": None}] * 2, ["Answer: A", ""], 50.0),
    "ScienceQA_TEST": ("scienceqa", [LETTERS | {"answer": "A", "hint": None}] * 2, ["A", "B"], 50.0),
    "RealWorldQA": ("realworldqa", [LETTERS | {"answer": "A"}] * 2, ["A", "b"], 50.0),
    "ChartQA_TEST": (
        "chartqa",
        [{"question": "?", "answer": "100", "split": "human"}, {"question": "?", "answer": "Yes", "split": "human"}],
        ["104", "no"],
        50.0,
    ),
    "TextVQA_VAL": ("textvqa", [{"question": "?", "answer": str(["stop"] * 10)}] * 2, ["Stop", "go"], 50.0),
    "DocVQA_VAL": ("docvqa", [{"question": "?", "answer": "['abcd', 'x']"}] * 2, ["abcd", "abxy"], 75.0),
    "InfoVQA_VAL": ("infovqa", [{"question": "?", "answer": "['7', 'seven']"}] * 2, ["Seven", ""], 50.0),
    "OCRBench": (
        "ocrbench",
        [
            {"question": "?", "answer": "['STOP']", "category": "Regular Text Recognition"},
            {"question": "?", "answer": "['a b']", "category": "Handwritten Mathematical Expression Recognition"},
            {"question": "?", "answer": "['a b']", "category": "Handwritten Mathematical Expression Recognition"},
        ],
        ["a stop sign", "so ab", "A B"],
        2.0,
    ),
    "MathVista_MINI": (
        "mathvista",
        [
            LETTERS
            | {"answer": "blue", "choices": "['red', 'blue']", "question_type": "multi_choice", "answer_type": "text"},
            {"question": "?", "answer": "3", "choices": "[]", "question_type": "free_form", "answer_type": "integer"},
        ],
        ["B", "4"],
        50.0,
    ),
    "MME": (
        "mme",
        [
            {"question": "?", "answer": right, "category": "OCR", "image_path": f"OCR/{n // 2}.jpg"}
            for n, right in enumerate(("Yes", "No", "Yes", "No"))
        ],
        ["Yes", "No", "yes.", "Yes"],
        125.0,  # 3 of 4, and 1 image of 2
    ),
    "POPE": (
        "pope",
        [{"question": "?", "answer": right, "category": "random"} for right in ("yes", "no", "yes", "no")],
        ["Yes", "No, there is none", "no", "no"],
        200 / 3,
    ),
    "OCRBench_v2": (
        "ocrbench-v2",
        [
            {"question": "where?", "answer": "[10, 10, 20, 20]", "category": "text grounding en"}
            | {"eval": "without eval", "bbox": "without bbox", "content": "without content"},
            {"question": "how many?", "answer": "['4']", "category": "text counting en", "eval": "regression"}
            | {"bbox": "without bbox", "content": "without content"},
            {"question": "all?", "answer": "['x']", "category": "text spotting en", "eval": "without eval"}
            | {"bbox": "[[10, 10, 20, 10, 20, 20, 10, 20]]", "content": "['STOP']"},
        ],
        ["(10, 10, 20, 20)", "about 3", "[(10, 10, 20, 20, 'stop')]"],
        100 * (1 + 0.75 + 1) / 3,  # of three abilities
    ),
    "Video-MME": (
        "videomme",
        [
            {"video": "v", "duration": "short", "candidates": "['A. red', 'B. blue']", "question": "?", "answer": right}
            for right in "AB"
        ],
        ["The answer is A", "It is red, so (A)"],
        50.0,
    ),
    "MVBench": (
        "mvbench",
        [
            {"task_type": "Action Count", "prefix": "video/", "start": None, "end": None, "video": "a.mp4"}
            | {"question": "?", "answer": "3", "candidates": "['3', '2', '4']"}
        ]
        * 2,
        ["(A) 3", "(B) 2"],
        50.0,
    ),
    "COCO_VAL": (
        "coco-captions",
        [{"question": "?", "answer": str([text] * 5)} for text in ("a red bus", "two dogs run far")],
        ["a red bus", "two dogs run far"],
        100.0,  # BLEU-1; CIDEr is above
    ),
}  # fmt: skip


def written(folder: Path, name: str, form: str) -> Path:
    """The file that VLMEvalKit leaves: the data set without its images, and the predictions."""
    _, rows, said, _ = DATASETS[name]
    data = pandas.DataFrame([{"index": 40 + n, **row} for n, row in enumerate(rows)])
    data["prediction"] = said
    file = folder / f"model_{name}.{form}"
    if form == "xlsx":
        data.to_excel(file, index=False)
    elif form == "tsv":
        data.to_csv(file, sep="\t", index=False, encoding="utf-8", quoting=csv.QUOTE_ALL)
    else:
        file.write_text(json.dumps(data.to_dict("records"), indent=4, ensure_ascii=False))
    return file


@pytest.mark.parametrize("form", ["xlsx", "tsv", "json"])
@pytest.mark.parametrize("name", DATASETS)
def test_a_file_of_each_data_set(name: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, rows, said, score = DATASETS[name]
    file = str(written(tmp_path, name, form))
    more = ["--variant", "without-synonyms"] if task == "ocrbench-v2" else []
    assert run(["evaluate", task, "--answers", file, "--ground-truth", file, "--json", *more]) == 0
    told = json.loads(capsys.readouterr().out)
    counts = told["counts"]
    empty = sum(not text or text == FAILED for text in said)
    assert (counts["expected"], counts["empty"]) == (len(rows), empty)
    scores = told["scores"]
    assert scores.get("BLEU-1", next(iter(scores.values()))) == pytest.approx(score)
