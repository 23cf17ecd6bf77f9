"""Captions of one's own photos: a table with a caption a line, and ids that are the files' names."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from omniloom.evaluate.tasks import find_task
from omniloom.evaluate.tasks.captions import PROMPT

TASK = find_task("captions")


def test_lines_of_a_photo_are_its_references_in_order(tmp_path: Path) -> None:
    table = tmp_path / "captions.csv"
    table.write_text('image,caption\nb_1.jpg,"A dog, running ."\na_1.jpg,A bus .\nb_1.jpg,The dog runs .\n')
    items = TASK.read(table)
    assert {TASK.prompt(item) for item in items} == {PROMPT}
    assert [(item.id, item.images, item.answers) for item in items] == [
        ("b_1.jpg", ("b_1.jpg",), ("A dog, running .", "The dog runs .")),
        ("a_1.jpg", ("a_1.jpg",), ("A bus .",)),
    ]


def test_photos_whose_names_end_in_one_number_are_two(tmp_path: Path) -> None:
    for name in ("a_1.jpg", "b_1.jpg"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    assert [item.id for item in TASK.read_images(tmp_path)] == ["a_1.jpg", "b_1.jpg"]


def test_a_row_may_say_what_is_asked(tmp_path: Path) -> None:
    truth = tmp_path / "truth.jsonl"
    truth.write_text('{"image": "a.jpg", "caption": ["A bus ."], "question": "Where is it?"}\n')
    assert [TASK.prompt(item) for item in TASK.read(truth)] == ["Where is it?"]


def test_a_caption_of_each_photo_that_is_a_reference_of_its_own_scores_the_most(tmp_path: Path) -> None:
    """CIDEr-D of a sole reference that is repeated is 10 by its definition: each cosine is 1, and the lengths agree."""
    table = tmp_path / "captions.csv"
    table.write_text("image,caption\na.jpg,one red bus stands here\nb.jpg,two dogs run very fast\n")
    items = TASK.read(table)
    scores = TASK.score(items, [item.answers[0] for item in items], TASK.variants[0])
    assert scores.metrics["CIDEr"] == pytest.approx(1000)
    assert TASK.score(items, [items[1].answers[0], items[0].answers[0]], TASK.variants[0]).metrics["CIDEr"] == 0
