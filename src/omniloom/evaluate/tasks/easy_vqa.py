"""easy-VQA: shapes on plain grounds, thirteen answers; small enough that a whole training run is scored by it."""

from __future__ import annotations

from pathlib import Path

from omniloom.errors import ConfigError
from omniloom.evaluate.reading import read_json
from omniloom.evaluate.scores.vqa import exact_match
from omniloom.evaluate.task import Item, Task, mean_score, question_only

_SHAPES = frozenset(("circle", "rectangle", "triangle"))
_YES_NO = frozenset(("yes", "no"))


def read_easy_vqa(path: Path) -> list[Item]:
    """The items of ``questions.json``: a list of ``[question, answer, number of the image]``; ids are their places.

    Images are named for their numbers, ``12.png``. The fact ``kind`` is ``yes or no``, ``shape`` or ``colour``.

    Raises:
        ConfigError: the file is missing or of another form; it names the row.
    """
    rows = read_json(path)
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{path}: a list of [question, answer, number of the image] expected.")
    return [_item(row, number, path) for number, row in enumerate(rows)]


def _item(row: object, number: int, path: Path) -> Item:
    if not isinstance(row, list) or [type(each) for each in row] != [str, str, int]:
        raise ConfigError(f"{path}: row {number}: {row!r} found; [question, answer, number of the image] expected.")
    question, answer, image = row
    kind = "yes or no" if answer in _YES_NO else "shape" if answer in _SHAPES else "colour"
    return Item(id=str(number), question=question, answers=(answer,), images=(f"{image}.png",), facts={"kind": kind})


def _right(item: Item, text: str, variant: str) -> float:
    del variant
    return exact_match(text, item.answers)


EASY_VQA = Task(
    name="easy-vqa",
    title="easy-VQA (Zhou 2019), test",
    metric="accuracy, percent",
    reader=read_easy_vqa,
    prompt=question_only,
    score=mean_score(_right, groups=("kind",)),
    oracle="the rule of its readme: one right answer of thirteen, equal after VQA's normalisation",
)
