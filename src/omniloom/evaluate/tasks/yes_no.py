"""Yes or no: POPE and MME."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from omniloom.errors import ConfigError
from omniloom.evaluate.reading import SHEETS, read_rows, text_of, wanted
from omniloom.evaluate.scores.binary import binary_scores, mme_score, pope_answer
from omniloom.evaluate.tables import parquet_files
from omniloom.evaluate.task import Item, Scores, Task, image_name, question_with

_MME_COLUMNS = 3


def read_pope(path: Path) -> list[Item]:
    """POPE's rows of question, label and image, in a ``.json`` file of lines, as published, or a list."""
    text = text_of(path) if path.suffix == ".json" and path.is_file() else ""
    rows = _json_lines(path, text) if text.lstrip().startswith("{") else read_rows(path)
    rows = list(rows)
    names = [str(wanted(row, "question_id", "id", "index", where=path)) for row in rows]
    if len(set(names)) < len(names):  # its three files in one, as Hugging Face has them
        names = [f"{row.get('category', '')}/{name}" for row, name in zip(rows, names, strict=True)]
    return [
        Item(
            id=name,
            question=str(wanted(row, "text", "question", where=path)),
            answers=(str(wanted(row, "label", "answer", where=path)),),
            images=(image_name(row["image"]),) if row.get("image") else (),
            facts={"category": row.get("category")},
        )
        for name, row in zip(names, rows, strict=True)
    ]


def read_mme(path: Path) -> list[Item]:
    """MME's files of one part each, lines of image, question and answer with tabs between; a folder of them, or one.

    Or the release's own folders of images and questions by part.
    """
    if parquet_files(path) or path.suffix in (*SHEETS, ".json"):
        return _mme_of_tables(path)
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    if not files:
        return _mme_of_release(path)
    items = []
    for file in files:
        for number, line in enumerate(text_of(file).splitlines(), 1):
            fields = line.split("\t")
            if len(fields) < _MME_COLUMNS:
                raise ConfigError(f"{file}: line {number} has {len(fields)} columns; image, question, answer expected.")
            image, question, answer = fields[:_MME_COLUMNS]
            name = f"{file.stem}/{image}/{number}"
            items.append(
                Item(id=name, question=question, answers=(answer,), images=(image,), facts={"part": file.stem})
            )
    return items


def _mme_of_release(path: Path) -> list[Item]:
    """The release's own folders: of each part, a text file an image, with a line of question and answer twice."""
    items = []
    for file in sorted(path.glob("*/*.txt")) + sorted(path.glob("*/questions_answers_YN/*.txt")):
        part = file.relative_to(path).parts[0]
        for number, line in enumerate(text_of(file).splitlines(), 1):
            question, _, answer = line.rstrip().rpartition("\t")
            if not question:
                raise ConfigError(f"{file}: line {number} has no tab; a question and its answer expected.")
            name = f"{part}/{file.stem}/{number}"
            facts = {"part": part, "image": file.stem}
            items.append(Item(id=name, question=question, answers=(answer,), images=(file.stem,), facts=facts))
    return items


def _mme_of_tables(path: Path) -> list[Item]:
    """Rows of question, answer, image, category, and an id that both questions of an image share.

    VLMEvalKit's have an ``index`` each instead, and the image's path, which both share.
    """
    return [
        Item(
            id=str(row["index"]) if "index" in row else f"{row['category']}/{row['question_id']}/{number}",
            question=str(wanted(row, "question", where=path)),
            answers=(str(wanted(row, "answer", where=path)),),
            images=(image_name(row["image"]),) if row.get("image") else (),
            facts={
                "part": str(wanted(row, "category", where=path)),
                "image": str(wanted(row, "question_id", "image_path", where=path)),
            },
        )
        for number, row in enumerate(read_rows(path))
    ]


def score_pope(items: Sequence[Item], answers: Sequence[str], variant: str) -> Scores:
    """F1 of "yes" first, then accuracy, precision, recall and the share of yes, in percent."""
    del variant
    said = [pope_answer(text) if text.strip() else None for text in answers]
    right = [item.answers[0].strip().lower() == "yes" for item in items]
    # No answer is a wrong one, whichever is right.
    scores = binary_scores((not truth if one is None else one, truth) for one, truth in zip(said, right, strict=True))
    metrics = {"F1": scores.f1, "accuracy": scores.accuracy, "precision": scores.precision}
    metrics |= {"recall": scores.recall, "yes share": scores.yes_share}
    worth = [float(one == truth) for one, truth in zip(said, right, strict=True)]
    kinds = {str(item.facts["category"]) for item in items if item.facts.get("category")}
    parts = {
        kind: _pope_f1([(one, truth) for item, one, truth in zip(items, said, right, strict=True) if _is(item, kind)])
        for kind in sorted(kinds)
    }
    groups = {"category": parts} if parts else {}
    return Scores(metrics={name: 100 * value for name, value in metrics.items()}, items=worth, groups=groups)


def _is(item: Item, category: str) -> bool:
    return str(item.facts.get("category")) == category


def _pope_f1(pairs: Sequence[tuple[bool | None, bool]]) -> float:
    return 100 * binary_scores((not truth if one is None else one, truth) for one, truth in pairs).f1


def score_mme(items: Sequence[Item], answers: Sequence[str], variant: str) -> Scores:
    """The sum over parts of accuracy and accuracy+ (both questions of an image right), 200 a part."""
    del variant
    worth = [
        float(text.strip().lower()[:3].startswith(item.answers[0].strip().lower()[:2]))
        for item, text in zip(items, answers, strict=True)
    ]
    images: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for item, value in zip(items, worth, strict=True):
        image = item.facts["image"] if "image" in item.facts else item.images[0]
        images[str(item.facts["part"])][str(image)].append(bool(value))
    parts = {part: mme_score(images[part]) for part in sorted(images)}
    return Scores(metrics={"score": sum(parts.values())}, items=worth, groups={"part": parts})


def _json_lines(path: Path, text: str) -> list[dict[str, object]]:
    import json  # noqa: PLC0415 - only for this odd form

    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise ConfigError(f"{path}: line {number} is not JSON: {error}.") from None
    return rows


_PROMPT = question_with("Please answer yes or no.")

POPE = Task(
    name="pope",
    title="POPE (Li et al. 2023)",
    metric="F1 of yes, percent",
    read=read_pope,
    prompt=_PROMPT,
    score=score_pope,
    oracle="the confusion matrix of its paper, by hand",
)
MME = Task(
    name="mme",
    title="MME (Fu et al. 2023)",
    metric="sum of accuracy and accuracy+",
    read=read_mme,
    prompt=lambda item: item.question,
    score=score_mme,
    oracle="the rule of its paper, by hand",
)
