"""MMMU and MMMU-Pro (Yue et al. 2024): letters and open answers over thirty subjects."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError
from omniloom.evaluate.reading import letters, read_json, read_rows, texts, wanted
from omniloom.evaluate.scores.choices import Fallback, marked_answer, mmmu_choice
from omniloom.evaluate.scores.mmmu_pro import mmmu_pro_choice
from omniloom.evaluate.scores.open_answers import mmmu_open_correct, mmmu_open_values
from omniloom.evaluate.tables import parquet_files
from omniloom.evaluate.task import Cell, Item, Scores, Task, grouped, image_name, mean
from omniloom.evaluate.tasks.mmmu_prompt import prompt

DOMAINS = {
    "Art and Design": ("Art", "Art_Theory", "Design", "Music"),
    "Business": ("Accounting", "Economics", "Finance", "Manage", "Marketing"),
    "Science": ("Biology", "Chemistry", "Geography", "Math", "Physics"),
    "Health and Medicine": (
        "Basic_Medical_Science", "Clinical_Medicine", "Diagnostics_and_Laboratory_Medicine", "Pharmacy",
        "Public_Health",
    ),
    "Humanities and Social Science": ("History", "Literature", "Psychology", "Sociology"),
    "Tech and Engineering": (
        "Agriculture", "Architecture_and_Engineering", "Computer_Science", "Electronics", "Energy_and_Power",
        "Materials", "Mechanical_Engineering",
    ),
}  # fmt: skip
_DOMAIN = {subject: domain for domain, subjects in DOMAINS.items() for subject in subjects}
_OPEN = "open"
_LETTERS = frozenset("ABCDEFGHIJ")
_OFFICIAL_SEED = 42


def read(path: Path) -> list[Item]:
    """Questions with options, or ``answer_dict_val.json`` alone.

    Questions are rows, a folder of subjects with ``output.json``, or the folder of the data set of Hugging Face, of
    whose splits the one that has answers, ``validation``, is read.

    Answers alone have no options: then what is scored has to bring them, as MMMU's own output files do.
    """
    if path.is_dir():
        files = sorted(path.glob("*/output.json")) or sorted(path.rglob("validation-*.parquet"))
        if not files and not parquet_files(path):
            raise ConfigError(f"{path}: no <subject>/output.json and no *.parquet in this folder.")
        return [_row_item(row, file) for file in files or [path] for row in read_rows(file)]
    loaded = read_json(path) if path.suffix == ".json" else None
    if isinstance(loaded, dict) and all(isinstance(row, dict) and "ground_truth" in row for row in loaded.values()):
        return [
            Item(
                id=name,
                answers=texts(row["ground_truth"]),
                facts=_facts(name, "open" if row.get("question_type") != "multiple-choice" else "multiple-choice"),
            )
            for name, row in loaded.items()
        ]
    return [_row_item(row, path) for row in read_rows(path)]


def score(items: Sequence[Item], answers: Sequence[str], variant: str) -> Scores:
    r"""Accuracy over all questions, by subject and by domain.

    Where no letter is found: ``published`` draws one as the official program does, from one generator for all
    questions in their order; ``guess-by-id`` draws one that hangs on the question's id alone; ``no-guess`` counts the
    answer wrong; ``megatron`` takes the first option, and looks into ``\boxed{}`` first.
    """
    fallback = _fallback(variant)
    worth = [
        float(_correct(item, marked_answer(text) if variant == "megatron" else text, fallback))
        for item, text in zip(items, answers, strict=True)
    ]
    return Scores(
        metrics={"accuracy": 100 * mean(worth)},
        items=worth,
        groups={name: grouped(items, worth, name) for name in ("domain", "subject")},
    )


def _fallback(variant: str) -> Fallback:
    others: dict[str, Fallback] = {"megatron": "first", "guess-by-id": "random"}
    return random.Random(_OFFICIAL_SEED) if variant == "published" else others.get(variant, "none")


def _correct(item: Item, text: str, fallback: Fallback) -> bool:
    if item.facts.get("question_type") != "multiple-choice":
        return mmmu_open_correct(mmmu_open_values(text), item.answers)
    said = text.strip()
    if not item.options and (not said or said in _LETTERS):
        return said in item.answers  # letters that the official program has found, as its `total_val_output.json`
    if not item.options:
        raise ConfigError(
            f"mmmu: {item.id} is a multiple choice without options. Give the questions, or answers that bring "
            "`index2ans`, as MMMU's output files do."
        )
    letter = mmmu_choice(text, item.options, fallback=fallback, item=item.id)
    return bool(said) and letter in item.answers  # who says nothing uses a draw up, as there, and is wrong


def _row_item(row: object, path: Path) -> Item:
    fields = dict(row)  # type: ignore[call-overload]
    name = str(wanted(fields, "id", "sample_id", "index", where=path))
    options = letters(fields.get("index2ans") or fields.get("options"))
    kind = str(fields.get("question_type") or ("multiple-choice" if options else _OPEN))
    columns = [fields.get(column) for column in ("image", *(f"image_{number}" for number in range(1, 8)))]
    images = tuple(image_name(image) for image in columns if isinstance(image, str | Cell))
    return Item(
        id=name,
        question=str(fields.get("question", "")),
        answers=texts(fields.get("answer", ())),
        images=images,
        options=options if kind == "multiple-choice" else {},
        facts=_facts(name, kind) | {key: fields[key] for key in ("subfield",) if fields.get(key)},
    )


def _facts(name: str, kind: str) -> dict[str, str]:
    subject = "_".join(name.split("_")[1:-1])
    return {"question_type": kind, "subject": subject, "domain": _DOMAIN.get(subject, "other")}


def _fields(item: Item, answer: str) -> dict[str, Any]:
    """As Megatron's example writes them: what its scorer asks for."""
    facts = item.facts
    row = {"text": answer, "prediction": answer, "question_type": facts.get("question_type")}
    row |= {"field": facts.get("subject"), "subfield": facts.get("subfield")}
    return row | ({"index2ans": dict(item.options), "all_choices": list(item.options)} if item.options else {})


def score_pro(items: Sequence[Item], answers: Sequence[str], variant: str) -> Scores:
    """Accuracy over all questions, each of which has options; ``published`` draws a letter where none is found."""
    fallback = _fallback(variant)
    worth = []
    for item, text in zip(items, answers, strict=True):
        letter = mmmu_pro_choice(text, item.options, fallback=fallback, item=item.id)
        worth.append(float(bool(text.strip()) and letter in item.answers))
    groups = {name: grouped(items, worth, name) for name in ("domain", "subject")}
    return Scores(metrics={"accuracy": 100 * mean(worth)}, items=worth, groups=groups)


MMMU = Task(
    name="mmmu",
    title="MMMU (Yue et al. 2024)",
    metric="accuracy, percent",
    reader=read,
    prompt=prompt,
    score=score,
    variants=("no-guess", "published", "guess-by-id", "megatron"),
    oracle="the official program on 900 answers each of LLaVA-1.5-13B (330 right) and Qwen-VL: each subject equal",
    version="2",
    columns=("response", "text", "prediction"),
    fields=_fields,
)
MMMU_PRO = Task(
    name="mmmu-pro",
    title="MMMU-Pro (Yue et al. 2024)",
    metric="accuracy, percent",
    reader=read,
    prompt=prompt,
    score=score_pro,
    variants=("no-guess", "published", "guess-by-id"),
    oracle="6,920 answers in four files of its program: equal in the 6,862 where a letter is found, else it guesses",
    version="2",
    columns=("response", "text", "prediction"),
    fields=_fields,
)
