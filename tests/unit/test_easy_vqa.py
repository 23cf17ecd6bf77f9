"""easy-VQA's own form, and its score: right answers by kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omniloom.errors import ConfigError
from omniloom.evaluate.answer_files import Answer
from omniloom.evaluate.result import evaluate
from omniloom.evaluate.tasks import find_task
from omniloom.evaluate.tasks.easy_vqa import read_easy_vqa

ROWS = [
    ["what is the blue shape?", "rectangle", 0],
    ["what color is the shape?", "blue", 0],
    ["is there a red shape?", "no", 7],
    ["is there not a red shape?", "yes", 7],
]


def test_items_and_score(tmp_path: Path) -> None:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(ROWS))
    task = find_task("easy-vqa")
    items = task.read(path)
    assert [(item.id, item.images, item.facts["kind"]) for item in items] == [
        ("0", ("0.png",), "shape"), ("1", ("0.png",), "colour"), ("2", ("7.png",), "yes or no"),
        ("3", ("7.png",), "yes or no"),
    ]  # fmt: skip
    assert task.prompt(items[1]) == "what color is the shape?"
    said = ["Rectangle.", "red", "no", "no"]
    result = evaluate(task, items, [Answer(id=str(n), text=text) for n, text in enumerate(said)])
    assert result.scores.metrics == {"accuracy": 50}
    assert result.scores.groups == {"kind": {"colour": 0, "shape": 100, "yes or no": 50}}


@pytest.mark.parametrize("content", ["{}", "[]", '[["q", "a", "0"]]', '[["q", "a"]]'])
def test_another_form_is_told(tmp_path: Path, content: str) -> None:
    path = tmp_path / "questions.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="number of the image"):
        read_easy_vqa(path)
