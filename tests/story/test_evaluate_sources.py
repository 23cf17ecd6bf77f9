"""Questions and answers as other programs keep them: Parquet with images, VLMEvalKit's tables, lmms-eval's logs."""

from __future__ import annotations

import csv
import io
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.contract.made_clips import make_video, numbers_of, picture

from omniloom.errors import ConfigError, SampleError
from omniloom.evaluate.pictures import Pictures, frames_of
from omniloom.evaluate.tasks import find_task
from omniloom.evaluate.tasks.mmmu_prompt import without_tag
from omniloom.tools.main import run

pyarrow = pytest.importorskip("pyarrow")


def png(shade: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (4, 3), (shade, 0, 0)).save(out, "PNG")
    return out.getvalue()


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    from pyarrow import Table, parquet  # noqa: PLC0415 - an extra

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(Table.from_pylist(rows), path, row_group_size=2)


def mmmu_rows(subject: str, split: str, number: int) -> list[dict[str, Any]]:
    """As the data set of Hugging Face has them: options as Python writes a list."""
    return [
        {
            "id": f"{split}_{subject}_{n}",
            "question": f"<image 1> What is {n}?",
            "options": "['it\\'s one', 'two']" if n % 2 else "[]",
            "answer": "B" if n % 2 else "17",
            "question_type": "multiple-choice" if n % 2 else "open",
            "image_1": {"bytes": png(n), "path": f"{n}.png"},
            "image_2": None if n else {"bytes": png(200), "path": "second.png"},
        }
        for n in range(number)
    ]


def test_a_folder_of_parquet_tables(tmp_path: Path) -> None:
    for subject in ("Math", "Art"):
        for split in ("dev", "validation", "test"):
            file = tmp_path / subject / f"{split}-00000-of-00001.parquet"
            write_parquet(file, mmmu_rows(subject, split, 5))
    items = find_task("mmmu").read(tmp_path)
    assert [item.id for item in items] == [f"validation_{subject}_{n}" for subject in ("Art", "Math") for n in range(5)]
    assert items[1].options == {"A": "it's one", "B": "two"}
    assert (items[0].options, items[0].answers) == ({}, ("17",))
    shown = [Pictures(tmp_path).of(item) for item in items]
    assert shown[:5] == [[png(0), png(200)], [png(1)], [png(2)], [png(3)], [png(4)]]
    # One image stands before the question, and its tag becomes words; of several, tags say which is meant.
    task = find_task("mmmu")
    assert task.prompt(items[1]).startswith("What is 1?\n\n(A) it's one\n(B) two\n\n")
    assert task.prompt(items[0]).startswith("<image 1> What is 0?")


def test_tables_of_several_splits_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split, answer in (("test", "5"), ("val", "6")):
        rows = [{"query": "how many?", "label": [answer], "image": png(3)}]
        write_parquet(tmp_path / "data" / f"{split}-00000-of-00001.parquet", rows)
    with pytest.raises(ConfigError, match="tables of several splits found: test, val"):
        find_task("chartqa").read(tmp_path / "data")
    (tmp_path / "said.jsonl").write_text(json.dumps({"sample_id": "0", "answer": "5"}))
    words = ["evaluate", "chartqa", "--answers", str(tmp_path / "said.jsonl"), "--json"]
    scores = []
    for split in ("test", "val"):
        assert run([*words, "--ground-truth", str(tmp_path / "data" / split)]) == 0
        scores.append(json.loads(capsys.readouterr().out))
    assert [one["scores"]["relaxed accuracy"] for one in scores] == [100.0, 0.0]
    assert scores[0]["ground_truth_sha256"] != scores[1]["ground_truth_sha256"]


HUB: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    # of each: a row as its repository of the Hub has it (lmms-eval 75571cf reads these columns), its id, its answers
    "ocrbench": (
        {"dataset": "HME100k", "question": "?", "question_type": "Handwritten", "answer": ["a b"], "image": png(1)},
        "0",
        ("a b",),
    ),
    "nocaps": (
        {"image": {"bytes": png(1), "path": "x.jpg"}, "image_id": 4, "annotations_captions": ["a", "b"]},
        "4",
        ("a", "b"),
    ),
    "flickr30k": (
        {"image": png(1), "caption": ["a"], "img_id": "7", "filename": "9.jpg", "split": "test"},
        "7",
        ("a",),
    ),
    "pope": (
        {"id": "0", "question_id": "1", "question": "?", "answer": "yes", "image": png(1), "category": "random"},
        "1",
        ("yes",),
    ),
    "scienceqa": (
        {"image": None, "question": "?", "choices": ["x", "y"], "answer": 1, "hint": "", "grade": "grade2"},
        "0",
        ("B",),
    ),
    "realworldqa": ({"image": png(1), "image_path": "1.webp", "question": "?\nA. x", "answer": "A"}, "0", ("A",)),
    "vqav2": (
        {"question_id": 5, "question": "?", "answers": [{"answer": "x", "answer_id": 1}] * 10, "image": png(1)},
        "5",
        ("x",) * 10,
    ),
    "perception-test": (
        {"video_name": "v", "question_id": "3", "question": "?", "options": ["x", "y"], "answer_id": "1", "area": "m"},
        "3",
        ("B",),
    ),
    "mathvista": (
        {"pid": "1", "query": "?", "image": "images/1.jpg", "decoded_image": png(1), "choices": None, "answer": "3"}
        | {"question_type": "free_form", "answer_type": "integer", "metadata": {"task": "x"}},
        "1",
        ("3",),
    ),
}


@pytest.mark.parametrize("name", HUB)
def test_rows_of_the_hub(name: str, tmp_path: Path) -> None:
    row, expected, answers = HUB[name]
    write_parquet(tmp_path / "test-00000-of-00001.parquet", [row])
    (item,) = find_task(name).read(tmp_path)
    assert (item.id, item.answers) == (expected, answers)
    if isinstance(row.get("image"), bytes | dict):
        assert Pictures(tmp_path).of(item) == [png(1)]


def test_three_files_of_pope_in_one_table(tmp_path: Path) -> None:
    rows = [
        {"question_id": str(n), "question": "?", "answer": "yes", "image": png(1), "category": kind}
        for kind in ("adversarial", "random")
        for n in range(2)
    ]
    write_parquet(tmp_path / "test-00000-of-00001.parquet", rows)
    task = find_task("pope")
    items = task.read(tmp_path)
    assert [item.id for item in items] == ["adversarial/0", "adversarial/1", "random/0", "random/1"]
    scores = task.score(items, ["yes", "yes", "no", "yes"], "published")
    assert scores.groups["category"] == pytest.approx({"adversarial": 100.0, "random": 200 / 3})


def test_images_in_tables_of_vlmevalkit(tmp_path: Path) -> None:
    out = io.BytesIO()
    Image.effect_noise((40, 30), 90).save(out, "PNG")
    table = tmp_path / "BENCH.tsv"
    content = b64encode(out.getvalue()).decode()
    table.write_text(f"index\timage\tquestion\tA\tB\tanswer\n5\t{content}\twhich?\tcat\tdog\tB\n", encoding="utf-8")
    (item,) = find_task("ai2d").read(table)
    assert (item.id, item.options, item.answers) == ("5", {"A": "cat", "B": "dog"}, ("B",))
    assert Pictures(tmp_path).of(item) == [out.getvalue()]
    assert len(str(item.images[0])) < 60


def test_tables_of_vlmevalkit_bring_questions_and_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "model_AI2D_TEST.tsv"
    rows = [
        {"index": n, "question": "which?", "A": "cat", "B": "dog", "answer": "AB"[n % 2], "prediction": said}
        for n, said in enumerate(("A", "B. dog", "A", "it is (A)"))
    ]
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)
    assert run(["evaluate", "ai2d", "--answers", str(table), "--ground-truth", str(table), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["scores"]["accuracy"], told["counts"]["expected"]) == (75.0, 4)


LOG = {"target": "", "input": "", "doc_hash": "", "resps": [["longer"]], "token_counts": [None]}
"""What lmms-eval 0.7 writes of each question besides what is looked for. The question itself is not in it."""


def write_log(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(LOG | row) + "\n" for row in rows))
    return path


def test_logs_of_lmms_eval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = tmp_path / "val.json"
    answers = (["red"] * 10, ["blue"] * 10, ["two"] * 10)
    questions = [{"question_id": 70 + n, "question": "?", "answers": all_} for n, all_ in enumerate(answers)]
    truth.write_text(json.dumps(questions))
    said = ["red", "blue", "blue"]
    words = ["evaluate", "textvqa", "--ground-truth", str(truth), "--json", "--answers"]

    # Its TextVQA keeps ids in what is submitted; in any order.
    named = [
        {"doc_id": n, "filtered_resps": said[n], "submission": {"question_id": 70 + n, "answer": said[n]}}
        for n in (2, 0, 1)
    ]
    assert run([*words, str(write_log(tmp_path / "named.jsonl", named))]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["accuracy"] == pytest.approx(200 / 3)

    # Its VQAv2 keeps nothing but the place, and what is right.
    placed = [
        {"doc_id": n, "filtered_resps": [said[n]], "exact_match": 1.0, "target": str(answers[n])} for n in (1, 2, 0)
    ]
    assert run([*words, str(write_log(tmp_path / "placed.jsonl", placed))]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["accuracy"] == pytest.approx(200 / 3)
    truth.write_text(json.dumps(questions[::-1]))
    assert run([*words, str(tmp_path / "placed.jsonl")]) == 1
    assert "is not that of item" in capsys.readouterr().err

    # Older logs hold the question.
    old = [{"doc_id": n, "doc": questions[n], "filtered_resps": [[said[n]]]} for n in range(3)]
    assert run([*words, str(write_log(tmp_path / "old.jsonl", old))]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["accuracy"] == pytest.approx(200 / 3)

    # A folder of several benchmarks.
    folder = tmp_path / "told/run"
    folder.mkdir(parents=True)
    for name, rows in (("textvqa_val", old), ("mme", old[:1])):
        write_log(folder / f"20260101_000000_samples_{name}.jsonl", rows)
    assert run([*words, str(tmp_path / "told")]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["accuracy"] == pytest.approx(200 / 3)
    write_log(folder / "20260102_000000_samples_textvqa_val.jsonl", old)
    assert run([*words, str(tmp_path / "told")]) == 1
    assert "several logs found" in capsys.readouterr().err

    # And the oldest are one file, under ``logs``.
    whole = {"args": {"model": "x"}, "model_configs": {"task": "textvqa_val"}, "logs": [LOG | row for row in old]}
    (tmp_path / "oldest.json").write_text(json.dumps(whole))
    assert run([*words, str(tmp_path / "oldest.json")]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["accuracy"] == pytest.approx(200 / 3)


def test_a_result_says_who_answered_and_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth, said = tmp_path / "val.json", tmp_path / "said.jsonl"
    truth.write_text(json.dumps([{"question_id": n, "question": f"q{n}", "answers": ["x"]} for n in range(3)]))
    said.write_text(json.dumps({"sample_id": 0, "answer": "x"}) + "\n" + json.dumps({"sample_id": 1, "answer": ""}))
    (tmp_path / "said.jsonl.model.json").write_text(json.dumps({"model": "runs/a", "task": "textvqa", "seed": 3}))
    assert run(["evaluate", "textvqa", "--answers", str(said), "--ground-truth", str(truth), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["model"], told["sampling"], told["metric_version"]) == ("runs/a", {"seed": 3}, "2")
    assert told["counts"]["failed"] == 2
    assert told["counts"] | {"expected": 3, "answered": 1, "missing": 1, "empty": 1, "scored": 3} == told["counts"]
    assert len(told["prompts_sha256"]) == 64


def test_captions_of_a_folder_of_images(tmp_path: Path) -> None:
    for name in ("COCO_val2014_000000000042.jpg", "b.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("")
    items = find_task("captioning").read_images(tmp_path)
    assert [(item.id, item.images) for item in items] == [
        ("42", ("COCO_val2014_000000000042.jpg",)), ("b", ("b.png",)),
    ]  # fmt: skip
    assert find_task("captioning").fields(items[0], "a dog")["sample_id"] == 42
    with pytest.raises(ConfigError, match="its questions are in the benchmark's file"):
        find_task("textvqa").read_images(tmp_path)


def test_frames_of_videos_and_folders(tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(make_video(frames=60, fps=30))
    # Whole: the first, the last, and between them at equal distances. Of a span: the middles of equal parts.
    assert numbers_of(frames_of(tmp_path / "clip.mp4", 4)) == [0, 20, 39, 59]
    assert numbers_of(frames_of(tmp_path / "clip.mp4", 2, span=(0.5, 1.5))) == [22, 37]
    assert numbers_of(frames_of(tmp_path / "clip.mp4", 2, span=(1.0, 9.0))) == [59, 59]
    folder = tmp_path / "frames"
    folder.mkdir()
    for number in range(30):
        Image.fromarray(picture(number)).save(folder / f"{number + 1:05}.png")
    shown = [numbers_of([_pixels(one)])[0] for one in frames_of(folder, 3, span=(2.0, 8.0))]
    assert shown == [9, 15, 21]
    assert [numbers_of([_pixels(one)])[0] for one in frames_of(folder, 3)] == [0, 14, 29]
    with pytest.raises(SampleError, match="no frames in this folder"):
        frames_of(tmp_path / "frames" / "..", 3)


def _pixels(content: bytes) -> Any:
    import numpy as np  # noqa: PLC0415

    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def test_ocrbench_v2_and_questions_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"id": 7, "type": "text counting en", "question": "how many?", "answers": ["3"], "eval": "regression"}
    (tmp_path / "v2.json").write_text(json.dumps([row | {"image_path": "a/b.jpg", "dataset_name": "d"}]))
    task = find_task("OCRBench_v2")
    (item,) = task.read(tmp_path / "v2.json")
    made = task.fields(item, "three")
    assert row.items() <= made.items()
    assert (made["predict"], made["data_type"]) == ("three", "text counting en")
    (tmp_path / "said.jsonl").write_text(json.dumps({"sample_id": 7, "predict": "three"}))
    words = ["evaluate", "OCRBench_v2", "--answers", str(tmp_path / "said.jsonl")]
    assert run([*words, "--ground-truth", str(tmp_path / "v2.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == {"english": 0.0}

    (tmp_path / "own.jsonl").write_text(json.dumps({"question": "which?", "images": ["a.png", "b.png"]}))
    (item,) = find_task("inference").read(tmp_path / "own.jsonl")
    assert (item.id, item.images, item.answers) == ("0", ("a.png", "b.png"), ())


@pytest.mark.parametrize(
    ("question", "expected"),  # the table of rules of Megatron's example, first match first
    [
        ("<image 1>", "Answer the question in the image."),
        ("Look:<image 1> now", "Look in the image.  now"),
        ("Look: <image 1> now", "Look in the image.  now"),
        ("See this. <image 1> Why?", "See this. Why?"),
        ("<image 1> What is it?", "What is it?"),
        ("<image 1> shows what?", "The image shows what?"),
        ("<image 1>What?", "What?"),
        ("What is in <image 1>?", "What is in the image?"),
        ("What is it?<image 1>", "What is it?"),
        ("What is in <image 1> here", "What is in the image here"),
        ("as in (<image 1>), this", "as in , this"),
        ("x<image 1>.y", "x. y"),
        ("x<image 1>y", "x. y"),
        ("no tag", "no tag"),
    ],
)
def test_image_tags_become_words(question: str, expected: str) -> None:
    assert without_tag(question) == expected
