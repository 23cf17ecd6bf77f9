"""Questions of one's own."""

from __future__ import annotations

from pathlib import Path

from omniloom.evaluate.reading import read_rows, texts, wanted
from omniloom.evaluate.scores.vqa import exact_match
from omniloom.evaluate.task import Item, Task, image_name, mean_score, question_only


def read_own(path: Path) -> list[Item]:
    """Rows of ``question`` and ``image`` (one, or a list ``images``), with an id and answers where there are some."""
    items = []
    for number, row in enumerate(read_rows(path)):
        images = row.get("images") or [row.get("image")]
        items.append(
            Item(
                id=str(next((row[name] for name in ("id", "sample_id", "question_id") if name in row), number)),
                question=str(wanted(row, "question", where=path)),
                answers=texts(row.get("answers", row.get("answer", ()))),
                images=tuple(image_name(image) for image in images if image),
            )
        )
    return items


def _own(item: Item, text: str, variant: str) -> float:
    del variant
    return exact_match(text, item.answers)


INFERENCE = Task(
    name="inference",
    title="Questions of one's own",
    metric="equal to an answer after VQA normalisation, percent",
    reader=read_own,
    prompt=question_only,
    score=mean_score(_own, metric="equal"),
    oracle="the official VQA program's normalisation",
)
