"""Benchmarks in the folders and files in which they are published: items, and where their images are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omniloom.errors import ConfigError
from omniloom.evaluate.pictures import Pictures
from omniloom.evaluate.tasks import find_task


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def shown(folder: Path, name: str) -> bytes:
    """An image of its own content."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(name.encode())
    return name.encode()


@pytest.mark.parametrize(
    ("task", "annotations", "questions"),
    [
        ("vqav2", "v2_mscoco_val2014_annotations.json", "v2_OpenEnded_mscoco_val2014_questions.json"),
        ("ok-vqa", "mscoco_val2014_annotations.json", "OpenEnded_mscoco_val2014_questions.json"),
    ],
)
def test_annotations_beside_questions(task: str, annotations: str, questions: str, tmp_path: Path) -> None:
    said = [{"answer": "net", "answer_confidence": "yes", "answer_id": n} for n in range(1, 11)]
    row = {"image_id": 458752, "question_id": 458752000, "answers": said, "answer_type": "other"}
    truth = write(tmp_path / annotations, {"data_subtype": "val2014", "annotations": [row]})
    asked = {"image_id": 458752, "question": "What is this?", "question_id": 458752000}
    write(tmp_path / questions, {"data_subtype": "val2014", "questions": [asked]})
    (item,) = find_task(task).read(truth)
    assert (item.id, item.question, item.answers) == ("458752000", "What is this?", ("net",) * 10)
    content = shown(tmp_path / "val2014", "COCO_val2014_000000458752.jpg")
    assert Pictures(tmp_path / "val2014").of(item) == [content]


def test_chartqa_in_two_files(tmp_path: Path) -> None:
    for kind in ("human", "augmented"):
        rows = [{"imgname": f"{kind}.png", "query": "how much?", "label": "3"}]
        write(tmp_path / f"test/test_{kind}.json", rows)
    task = find_task("chartqa")
    items = task.read(tmp_path / "test")
    assert [(item.id, item.facts["type"]) for item in items] == [("human-0", "human"), ("augmented-0", "augmented")]
    scores = task.score(items, ["3", "9"], "published")
    assert scores.metrics == {"relaxed accuracy": 50.0}
    assert scores.groups["type"] == {"augmented": 0.0, "human": 100.0}
    content = shown(tmp_path / "test/png", "human.png")
    assert Pictures(tmp_path / "test/png").of(items[0]) == [content]


def test_ai2d_by_the_number_of_an_option(tmp_path: Path) -> None:
    row = {"question": "which?", "options": ["2", "3", "leaf", "root"], "answer": "2"}
    lettered = {"question": "which?\nA. x\nB. y", "answer": "B", "question_id": "q"}
    task = find_task("AI2D")
    (item,) = task.read(write(tmp_path / "numbers.json", [row]))
    assert item.answers == ("C",)
    assert task.score([item] * 3, ["C", "(C) leaf", "A"], "published").items == [1.0, 1.0, 0.0]
    (item,) = task.read(write(tmp_path / "letters.json", [lettered]))
    assert item.answers == ("B",)


def test_mme_as_it_is_released(tmp_path: Path) -> None:
    for part, folder in (("OCR", ""), ("posters", "questions_answers_YN/")):
        for image in ("0001", "0002"):
            file = tmp_path / part / f"{folder}{image}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("Is it red?\tYes\nIs it blue?\tNo\n")
    task = find_task("mme")
    items = task.read(tmp_path)
    assert [item.id for item in items][:3] == ["OCR/0001/1", "OCR/0001/2", "OCR/0002/1"]
    assert len(items) == 8
    scores = task.score(items, ["Yes", "No"] * 3 + ["Yes", "Yes"], "published")
    assert scores.groups["part"] == {"OCR": 200.0, "posters": 75.0 + 50.0}
    contents = [shown(tmp_path, "OCR/0001.jpg"), shown(tmp_path, "posters/images/0001.png")]
    assert Pictures(tmp_path).of(items[0]) == contents[:1]
    assert Pictures(tmp_path).of(items[4]) == contents[1:]
    (tmp_path / "OCR/0001.txt").write_text("no tab\n")
    with pytest.raises(ConfigError, match="line 1 has no tab"):
        task.read(tmp_path)


def test_perception_test_by_video(tmp_path: Path) -> None:
    asked = {"id": 0, "question": "what?", "options": ["a", "b", "c"], "answer_id": 2, "area": "physics"}
    rows = {
        "video_10": {
            "metadata": {"split": "valid", "video_id": "video_10"},
            "mc_question": [asked, {**asked, "id": 3, "answer_id": 0, "area": "memory"}],
        }
    }
    task = find_task("PerceptionTest")
    items = task.read(write(tmp_path / "mc_question_valid.json", rows))
    assert [(item.id, item.answers, item.images) for item in items] == [
        ("video_10-0", ("C",), ("video_10.mp4",)),
        ("video_10-3", ("A",), ("video_10.mp4",)),
    ]
    scores = task.score(items, ["C", "(B)"], "published")
    assert scores.groups["area"] == {"memory": 0.0, "physics": 100.0}


def test_documents_as_due_has_them(tmp_path: Path) -> None:
    """Lines of a document each, with the variants of each value: Borchmann et al. 2021."""

    def line(*values: dict[str, Any]) -> str:
        annotations = [{"id": "7", "key": "who?", "values": list(values)}]
        return json.dumps({"name": "doc_1", "language": "en", "annotations": annotations})

    (tmp_path / "ref.jsonl").write_text(line({"value": "Paul", "value_variants": ["Paul", "Mr Paul"]}))
    (item,) = find_task("docvqa").read(tmp_path / "ref.jsonl")
    assert (item.id, item.question, item.answers, item.images) == ("7", "who?", ("Paul", "Mr Paul"), ("doc_1",))
