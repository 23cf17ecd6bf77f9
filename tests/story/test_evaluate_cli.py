"""`omniloom evaluate` as a user calls it, on the forms of answer files that people have."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omniloom.evaluate.tasks import MEGATRON_NAMES, TASKS, find_task
from omniloom.tools.main import run

DATA = Path(__file__).resolve().parents[2] / "../shared/data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs the prediction files of ../shared/data")


def write(path: Path, value: Any) -> str:
    lines = path.suffix == ".jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in value) if lines else json.dumps(value))
    return str(path)


def scored(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run(["evaluate", *arguments, "--json"]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.fixture
def vqa(tmp_path: Path) -> str:
    rows = [
        {"question_id": n, "image": f"{n}.jpg", "question": f"What is {n}?", "answers": [f"thing {n}"] * 10}
        for n in range(4)
    ]
    return write(tmp_path / "truth.json", rows)


# Published numbers


@needs_data
def test_published_numbers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    coco, mmmu, vista = (DATA / name for name in ("coco_captions", "metric_refs/mmmu", "metric_refs/mathvista"))
    captions = scored(
        capsys, "captioning", "--answers", str(coco / "captions_fakecap126_results.json"),
        "--ground-truth", str(coco / "captions_fakecap126_refs.json"),
    )  # fmt: skip
    assert captions["scores"]["CIDEr"] == pytest.approx(62.77218728360188, abs=1e-11)
    outputs = ["mmmu", "--answers", str(mmmu / "example_outputs/llava1.5_13b"), "--variant", "published"]
    answers = scored(capsys, *outputs, "--ground-truth", str(mmmu / "answer_dict_val.json"))
    assert answers["scores"]["accuracy"] == pytest.approx(100 * 330 / 900)
    assert answers["groups"]["subject"]["Literature"] == pytest.approx(73.333, abs=1e-3)
    domains = [round(value / 100, 3) for value in answers["groups"]["domain"].values()]
    assert domains == [0.525, 0.227, 0.387, 0.55, 0.293, 0.31]
    letters = ["mmmu", "--answers", str(mmmu / "example_outputs/llava1.5_13b_val.json"), "--variant", "published"]
    assert scored(capsys, *letters, "--ground-truth", str(mmmu / "answer_dict_val.json"))["scores"]["accuracy"] == 36.0
    items = tmp_path / "items.jsonl"
    math = scored(
        capsys, "mathvista", "--answers", str(vista / "llava/output_llava_llama_2_13b.json"),
        "--ground-truth", str(vista / "testmini.json"), "--items", str(items),
    )  # fmt: skip
    published = json.loads((vista / "llava/scores_llava_llama_2_13b.json").read_text())
    assert math["scores"]["accuracy"] == pytest.approx(26.1)
    for kind in ("question_type", "source", "task", "context"):
        ours = {name: f"{value:.2f}" for name, value in math["groups"][kind].items()}
        assert ours == {name: score["accuracy"] for name, score in published[kind].items()}
    assert sum(json.loads(line)["score"] for line in items.read_text().splitlines()) == 261


@needs_data
def test_small_published_files(capsys: pytest.CaptureFixture[str]) -> None:
    """Of PyPI's anls, of due-benchmark/evaluator, of clipscore's README."""
    anls, clip = DATA / "metric_refs/anls", DATA / "metric_refs/clipscore"
    for answers, truth, variant, expected in (
        ("submission.json", "gold_label.json", "paper", 37.778),
        ("out.jsonl", "ref.jsonl", "paper", 83.333),
        ("out.jsonl", "ref.jsonl", "published", 91.667),
    ):
        given = ["--answers", str(anls / answers), "--ground-truth", str(anls / truth), "--variant", variant]
        assert scored(capsys, "docvqa", *given)["scores"]["ANLS"] == pytest.approx(expected, abs=1e-3)
    for name, bleu, rouge, cider in (("good", 66.67, 42.80, 56.37), ("bad", 48.15, 31.21, 27.90)):
        given = ["--answers", str(clip / f"{name}_captions.json"), "--ground-truth", str(clip / "refs.json")]
        scores = scored(capsys, "coco-captions", *given)["scores"]
        found = [scores[metric] for metric in ("BLEU-1", "ROUGE-L", "CIDEr")]
        assert found == pytest.approx([bleu, rouge, cider], abs=6e-3)


@needs_data
@pytest.mark.parametrize("part", ["random", "popular", "adversarial"])
def test_pope_files_are_read_and_all_yes_scores_as_by_hand(
    part: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    truth = DATA / f"metric_refs/pope/coco_pope_{part}.json"
    rows = [json.loads(line) for line in truth.read_text().splitlines()]
    answers = write(tmp_path / "yes.jsonl", [{"question_id": row["question_id"], "text": "Yes."} for row in rows])
    result = scored(capsys, "pope", "--answers", answers, "--ground-truth", str(truth))
    yes = sum(row["label"] == "yes" for row in rows)
    assert result["scores"]["precision"] == pytest.approx(100 * yes / len(rows))
    assert (result["scores"]["recall"], result["scores"]["yes share"]) == (100, 100)


@needs_data
def test_ocrbench_of_its_own_answers_is_full_marks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    truth = DATA / "metric_refs/ocrbench/OCRBench.json"
    rows = json.loads(truth.read_text())
    said = [row["answers"][0] if isinstance(row["answers"], list) else row["answers"] for row in rows]
    answers = write(tmp_path / "a.jsonl", [{"sample_id": n, "answer": text} for n, text in enumerate(said)])
    assert scored(capsys, "OCRBench", "--answers", answers, "--ground-truth", str(truth))["scores"]["points"] == 1000


# Every id once


def test_missing_doubled_unknown_and_empty_answers_are_counted_and_end_with_1(
    vqa: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = [(0, "thing 0"), (0, "thing 0"), (1, "thing 1"), (1, "other"), (2, " "), (9, "thing 9")]
    answers = write(tmp_path / "a.jsonl", [{"question_id": n, "answer": text} for n, text in rows])
    result = scored(capsys, "textvqa", "--answers", answers, "--ground-truth", vqa, code=1)
    assert result["counts"] == {
        "expected": 4, "answered": 2, "failed": 2, "scored": 4,
        "missing": 1, "empty": 1, "doubled": 1, "conflicting": 1, "unknown": 1,
    }  # fmt: skip
    assert result["ids"] == {
        "missing": ["3"], "empty": ["2"], "doubled": ["0"], "conflicting": ["1"], "unknown": ["9"],
    }  # fmt: skip
    assert result["scores"]["accuracy"] == 50  # the missing one counts as wrong
    assert not result["complete"]
    left_out = scored(capsys, "textvqa", "--answers", answers, "--ground-truth", vqa, "--missing", "leave-out", code=1)
    assert left_out["scores"]["accuracy"] == pytest.approx(200 / 3)
    assert run(["evaluate", "textvqa", "--answers", answers, "--ground-truth", vqa]) == 1
    assert "INCOMPLETE" in capsys.readouterr().out


def test_a_result_says_what_it_hangs_on(
    vqa: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = write(tmp_path / "a.json", {str(n): f"thing {n}" for n in range(4)})
    output = tmp_path / "result.json"
    arguments = ["--answers", answers, "--ground-truth", vqa, "--model", "llava", "--output", str(output)]
    result = scored(capsys, "vqav2", *arguments, "--variant", "always-normalised")
    assert json.loads(output.read_text()) == result
    assert (result["complete"], result["variant"], result["model"]) == (True, "always-normalised", "llava")
    assert len(result["ground_truth_sha256"]) == 64
    assert list(result["answer_files"]) == [answers]
    assert result["prompt_example"] == "What is 0?\nAnswer the question using a single word or phrase."
    motion = write(tmp_path / "motion.jsonl", [{"uid": str(n), "question": "?", "answer": "A"} for n in range(4)])
    monkeypatch.setitem(TASKS, "motionbench", replace(TASKS["motionbench"], oracle=""))
    unverified = scored(capsys, "motionbench", "--answers", answers, "--ground-truth", motion)
    assert unverified["checked_against"] == "unverified"


# Forms of answers


@pytest.mark.parametrize(
    "rows",
    [
        [{"sample_id": n, "prompt": "p", "answer": f"thing {n}", "gt_answer": ["x"]} for n in range(4)],
        [{"doc_id": 7, "doc": {"question_id": n}, "filtered_resps": [f"thing {n}"]} for n in range(4)],
        [{"question_id": n, "prediction": f"thing {n}"} for n in range(4)],
    ],
    ids=["megatron", "lmms-eval", "plain"],
)
def test_lines(rows: list[Any], vqa: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answers = write(tmp_path / "a.jsonl", rows)
    assert scored(capsys, "textvqa", "--answers", answers, "--ground-truth", vqa)["scores"]["accuracy"] == 100


def test_partitions_by_prefix_and_never_those_of_two_checkpoints(
    vqa: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for rank in range(2):
        rows = [{"sample_id": n, "answer": f"thing {n}"} for n in range(rank, 4, 2)]
        write(tmp_path / f"run-TextVQA-dprank={rank}-partition=0.jsonl", rows)
    prefix = str(tmp_path / "run-TextVQA")
    assert scored(capsys, "TextVQA", "--input-path", prefix, "--groundtruth-path", vqa)["scores"]["accuracy"] == 100
    # Megatron's own flag has the prefix without the task; files of other tasks under it are left alone.
    write(tmp_path / "run-ChartQA-dprank=0-partition=0.jsonl", [{"sample_id": 0, "answer": "9"}])
    short = str(tmp_path / "run")
    assert scored(capsys, "TextVQA", "--input-path", short, "--groundtruth-path", vqa)["scores"]["accuracy"] == 100
    write(tmp_path / "run-TextVQA-dprank=0-partition=0-step=20.jsonl", [{"sample_id": 0, "answer": "x"}])
    assert run(["evaluate", "TextVQA", "--input-path", prefix, "--groundtruth-path", vqa]) == 1
    assert "several checkpoints" in capsys.readouterr().err


def test_tables(vqa: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [("index", "question", "prediction"), *((n, "?", f"thing {n}") for n in range(4))]:
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    (tmp_path / "a.tsv").write_text("index\tprediction\n" + "".join(f"{n}\tthing {n}\n" for n in range(4)))
    for name in ("a.xlsx", "a.tsv"):
        arguments = ["--answers", str(tmp_path / name), "--ground-truth", vqa]
        assert scored(capsys, "textvqa", *arguments)["scores"]["accuracy"] == 100


def test_both_public_forms_of_coco_annotations(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    references = {7: ["a dog runs", "the dog is running"], 9: ["a red bus", "one bus on a street"]}
    coco = {
        "images": [{"id": image, "file_name": f"COCO_val2014_{image:012d}.jpg"} for image in references],
        "annotations": [
            {"image_id": image, "id": 1, "caption": text} for image, several in references.items() for text in several
        ],
    }
    karpathy = [
        {"image": f"val2014/COCO_val2014_{image:012d}.jpg", "caption": several} for image, several in references.items()
    ]
    answers = write(tmp_path / "a.json", [{"image_id": 7, "caption": "a dog"}, {"image_id": 9, "caption": "a bus"}])
    found = [
        scored(capsys, "coco-captions", "--answers", answers, "--ground-truth", write(tmp_path / f"{n}.json", form))
        for n, form in enumerate((coco, karpathy))
    ]
    assert found[0]["scores"] == found[1]["scores"]
    assert found[0]["scores"]["CIDEr"] > 0
    assert "METEOR" not in found[0]["scores"]
    assert "METEOR and SPICE" in found[0]["left_out"]
    assert run(["evaluate", "nocaps", "--answers", answers, "--ground-truth", str(tmp_path / "0.json")]) == 0
    assert "Left out: METEOR and SPICE, whose programs need Java" in capsys.readouterr().out


# Choices


def test_the_letter_a_is_an_answer_and_nothing_is_not(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [{"question_id": n, "image": "x.png", "question": "?", "answer": "A"} for n in range(3)]
    truth = write(tmp_path / "ai2d.jsonl", rows)
    answers = write(tmp_path / "a.json", {"0": "A", "1": "", "2": "a."})
    result = scored(capsys, "ai2d", "--answers", answers, "--ground-truth", truth)
    assert result["scores"]["accuracy"] == pytest.approx(200 / 3)


def test_videos_with_several_questions_have_all_of_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    questions = [
        {"question_id": f"1-{n}", "question": "?", "choices": ["A. x", "B. y"], "answer": "B"} for n in range(3)
    ]
    truth = write(tmp_path / "v.json", [{"videoID": "abc", "duration_category": "short", "questions": questions}])
    answers = write(tmp_path / "a.json", {f"1-{n}": text for n, text in enumerate(("B", "(B)", ")"))})
    result = scored(capsys, "VideoMME", "--answers", answers, "--ground-truth", truth)
    assert result["scores"]["accuracy"] == pytest.approx(200 / 3)
    assert result["groups"]["duration"] == {"short": pytest.approx(200 / 3)}


def test_mme_sums_over_its_parts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mme").mkdir()
    for part in ("count", "color"):
        lines = [f"{n}.jpg\tIs it {a}?\t{a}" for n in range(2) for a in ("Yes", "No")]
        (tmp_path / f"mme/{part}.txt").write_text("\n".join(lines))
    said = {f"count/{n // 2}.jpg/{n + 1}": ("Yes", "No")[n % 2] for n in range(4)}
    said |= {f"color/{n // 2}.jpg/{n + 1}": "Yes" for n in range(4)}
    answers = write(tmp_path / "a.json", said)
    result = scored(capsys, "mme", "--answers", answers, "--ground-truth", str(tmp_path / "mme"))
    assert result["groups"]["part"] == {"color": 50, "count": 200}  # half of the answers, no image whole
    assert result["scores"]["score"] == 250


# Errors


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"question_id": 1}\n', r"row 1 has no answer: one of .* expected, found question_id"),
        ('{"answer": 1}\n', r"row 1 has no id"),
        ('{"question_id": 1, "answer": \n', "line 1 is not JSON"),
        ("", "no answers in"),
        ('{"question_id": 77, "answer": "x"}\n', "no answer is to one of the 4 items: ids like '77' found, like '0'"),
    ],
)
def test_refusals(content: str, message: str, vqa: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answers = tmp_path / "a.jsonl"
    answers.write_text(content)
    assert run(["evaluate", "textvqa", "--answers", str(answers), "--ground-truth", vqa]) == 1

    assert re.search(message, capsys.readouterr().err)


def test_unknown_tasks_and_variants(
    vqa: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["evaluate", "chartqaa", "--answers", vqa, "--ground-truth", vqa]) == 1
    assert "there is no task 'chartqaa'. Nearest: chartqa" in capsys.readouterr().err
    names = {"vqa": "vqav2", "captioning": "coco-captions", "OKVQA": "ok-vqa", "OCRBench_v2": "ocrbench-v2"}
    assert {name: find_task(name).name for name in names} == names
    assert run(["evaluate", "textvqa", "--answers", "nowhere/x", "--ground-truth", vqa]) == 1
    assert "there is no such file" in capsys.readouterr().err
    monkeypatch.setitem(TASKS, "motionbench", replace(TASKS["motionbench"], oracle=""))
    assert run(["evaluate", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in TASKS)
    assert "unverified" in listed
    assert set(MEGATRON_NAMES.values()) <= set(TASKS)


def test_letters_are_guessed_by_id_where_that_is_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Answers without a letter: wrong, or a draw that hangs on the id alone, whatever the order and the company."""
    rows = [
        {"id": f"validation_Art_{n}", "question": "?", "options": ["a", "b", "c", "d"], "answer": "C"}
        for n in range(200)
    ]
    said = write(tmp_path / "said.json", {row["id"]: "I do not know" for row in rows})
    items = tmp_path / "items.jsonl"
    worth: list[dict[str, float]] = []
    for number, several in enumerate((rows, rows[::-1])):
        truth = write(tmp_path / f"{number}.jsonl", several)
        assert scored(capsys, "mmmu", "--answers", said, "--ground-truth", truth)["scores"]["accuracy"] == 0
        asked = ["--answers", said, "--ground-truth", truth, "--variant", "guess-by-id", "--items", str(items)]
        assert 10 < scored(capsys, "mmmu", *asked)["scores"]["accuracy"] < 40
        worth.append({row["id"]: row["score"] for row in map(json.loads, items.read_text().splitlines())})
    assert worth[0] == worth[1]
