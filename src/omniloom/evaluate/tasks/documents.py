"""Whole documents read: RD-TableBench, tables as HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError
from omniloom.evaluate.answer import Answer
from omniloom.evaluate.scores.tables import html_table, table_similarity
from omniloom.evaluate.task import Item, Task, mean_score

_PROMPT = (
    "Convert the image to an HTML table. The output should begin with <table> and end with </table>. Specify rowspan "
    "and colspan attributes when they are greater than 1. Do not specify any other attributes. Only use table related "
    "HTML tags, no additional formatting is required."
)


def read_tables(path: Path) -> list[Item]:
    """A folder of ``<name>.html``, each the table in the image ``<name>.jpg``."""
    files = sorted(path.glob("*.html")) if path.is_dir() else []
    if not files:
        raise ConfigError(f"{path}: a folder of *.html expected.")
    return [Item(id=file.stem, images=(file.stem,), answers=(file.read_text(encoding="utf-8"),)) for file in files]


def read_answers(path: Path) -> list[Answer] | None:
    """A folder of ``<name>.html``, as its own program takes answers."""
    files = sorted(path.glob("*.html")) if path.is_dir() else []
    return [Answer(file.stem, file.read_text(encoding="utf-8")) for file in files] or None


def _similarity(item: Item, text: str, variant: str) -> float:
    del variant
    return table_similarity(html_table(item.answers[0]), html_table(text))


def _prompt(item: Item) -> str:
    del item
    return _PROMPT


def _fields(item: Item, answer: str) -> dict[str, Any]:
    """As Megatron's example writes them."""
    return {"predict": answer, "ground_truth": item.answers[0]}


RD_TABLEBENCH = Task(
    name="rd-tablebench",
    title="RD-TableBench (Reducto 2024)",
    metric="mean similarity of tables, percent",
    reader=read_tables,
    prompt=_prompt,
    score=mean_score(_similarity, metric="similarity"),
    oracle="its own program on 400 pairs of tables made at random: equal but for 2 whose cells were not closed",
    columns=("predict",),
    fields=_fields,
    own_answers=read_answers,
)
