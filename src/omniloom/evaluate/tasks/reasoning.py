"""MathVista and ScienceQA: answers that are first looked for in a longer text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError
from omniloom.evaluate.reading import letter_of, letters, read_rows, texts, wanted
from omniloom.evaluate.scores.choices import science_qa_choice
from omniloom.evaluate.scores.mathvista import mathvista_correct, mathvista_extraction, mathvista_prediction
from omniloom.evaluate.task import Cell, Item, Scores, Task, grouped, image_name, lettered, mean, mean_score

_MATHVISTA_GROUPS = ("question_type", "answer_type", "language", "source", "category", "task", "context", "grade")


def read_mathvista(path: Path) -> list[Item]:
    """``testmini.json``, rows of the same keys, or an output file of its own programs."""
    items = []
    for row in read_rows(path):
        metadata = row.get("metadata") or {}
        image = row.get("decoded_image") or row.get("image")
        facts = {name: row.get(name) for name in ("question_type", "answer_type", "precision", "unit")}
        items.append(
            Item(
                id=str(wanted(row, "pid", "id", "index", where=path)),
                question=str(wanted(row, "query", "question", where=path)),
                answers=texts(row.get("answer", ())),
                images=(image_name(image),) if image else (),
                options=letters(row.get("choices")),
                facts=facts | {name: metadata.get(name) for name in _MATHVISTA_GROUPS if name in metadata},
            )
        )
    return items


def score_mathvista(items: Sequence[Item], answers: Sequence[str], variant: str) -> Scores:
    """Accuracy. ``published`` takes answers as extractions, which GPT-4 made there; ``rules`` extracts without it."""
    worth = [float(_mathvista(item, text, variant)) for item, text in zip(items, answers, strict=True)]
    groups = {name: grouped(items, worth, name) for name in _MATHVISTA_GROUPS}
    return Scores(metrics={"accuracy": 100 * mean(worth)}, items=worth, groups={k: v for k, v in groups.items() if v})


def _mathvista(item: Item, text: str, variant: str) -> bool:
    if not text.strip():
        return False  # nothing is most like the shortest choice
    choices = list(item.options.values()) or None
    kinds: dict[str, Any] = {
        "question_type": item.facts["question_type"], "answer_type": item.facts["answer_type"], "choices": choices,
    }  # fmt: skip
    extraction: str | None = text
    if variant == "rules":
        extraction = mathvista_extraction(text, **kinds)
    prediction = mathvista_prediction(
        extraction,
        **kinds,
        precision=item.facts.get("precision"),
        integers="cut" if variant == "cut-integers" else "whole",
    )
    return bool(item.answers) and mathvista_correct(prediction, item.answers[0])


def read_scienceqa(path: Path) -> list[Item]:
    """``problems.json`` (by id, the answer as an index), or rows with the same keys.

    Of a file of all parts, as ``problems.json`` is, ``test`` is read.
    """
    rows = list(enumerate(read_rows(path)))
    if len({row.get("split") for _, row in rows}) > 1:
        rows = [(number, row) for number, row in rows if row.get("split") == "test"]
    items = []
    for number, row in rows:
        options = letters(wanted(row, "choices", "options", where=path))
        answer = letter_of(wanted(row, "answer", where=path), options)
        if answer not in options:
            raise ConfigError(f"{path}: row {number}: answer {answer!r}; one of {', '.join(options)}, or its number.")
        hint = f"{row['hint']}\n" if row.get("hint") else ""
        name = str(next((row[key] for key in ("id", "question_id", "index") if key in row), number))
        image = row.get("image")
        items.append(
            Item(
                id=name,
                question=hint + str(wanted(row, "question", where=path)),
                answers=(answer,),
                images=(image if isinstance(image, Cell) else f"{name}/{image}",) if image else (),
                options=options,
                facts={key: row.get(key) for key in ("subject", "grade", "split")}
                | {"image": "with an image" if image else "without"},
            )
        )
    return items


def _science(item: Item, text: str, variant: str) -> float:
    del variant
    choices = list(item.options)
    index = science_qa_choice(text, choices)
    return float(index >= 0 and choices[index] == item.answers[0])


def _fields(item: Item, answer: str) -> dict[str, Any]:
    """As Megatron's example writes them: what its scorer asks for of multiple choices."""
    del answer
    kind = {"question_type": item.facts.get("question_type")}
    return kind | ({"index2ans": dict(item.options), "all_choices": list(item.options)} if item.options else {})


MATHVISTA = Task(
    name="mathvista",
    title="MathVista (Lu et al. 2024), testmini",
    metric="accuracy, percent",
    reader=read_mathvista,
    prompt=lambda item: item.question.replace("Hint: ", ""),
    score=score_mathvista,
    variants=("published", "cut-integers", "rules"),
    oracle="23 published score files, each item equal: 22 by the default rule, 1 by cut-integers",
    version="2",
    columns=("extraction", "response"),
    fields=_fields,
)
SCIENCEQA = Task(
    name="scienceqa",
    title="ScienceQA (Lu et al. 2022), LLaVA's rule",
    metric="accuracy, percent",
    reader=read_scienceqa,
    prompt=lettered,
    score=mean_score(_science, groups=("image", "subject", "grade")),
    oracle="two published result files of LLaVA: 4,241 and 4,240 of 4,241 letters equal",
    version="2",
    columns=("text", "outputs"),
)
