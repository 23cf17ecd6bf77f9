"""Yes or no: POPE and MME."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from omniloom.errors import ConfigError
from omniloom.evaluate.answer import Answer
from omniloom.evaluate.reading import SHEETS, read_rows, suffix_of, text_of, wanted
from omniloom.evaluate.scores.binary import binary_scores, mme_answer, mme_score, pope_answer
from omniloom.evaluate.tables import parquet_files
from omniloom.evaluate.task import Item, Scores, Task, image_name, mean, question_with

_MME_COLUMNS = 3
_MME_COGNITION = frozenset(("commonsense_reasoning", "numerical_calculation", "text_translation", "code_reasoning"))


def read_pope(path: Path) -> list[Item]:
    """POPE's rows of question, label and image, in a ``.json`` file of lines, as published, or a list."""
    files = sorted(path.glob("*pope*.json")) if path.is_dir() else []
    parts = [(file.stem.rpartition("_")[2], read_rows(file)) for file in files] or [("", read_rows(path))]
    rows = [{"category": part, **row} if part else row for part, several in parts for row in several]
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
    if parquet_files(path) or suffix_of(path) in (*SHEETS, ".json", ".jsonl"):
        return _mme_of_tables(path)
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    if not files:
        return _mme_of_release(path)
    return [
        Item(id=name, question=question, answers=(answer,), images=(image,), facts={"part": part})
        for part, name, (image, question, answer, *_) in _mme_lines(files, columns=_MME_COLUMNS)
    ]


def read_mme_answers(path: Path) -> list[Answer] | None:
    """MME's files of one part each, with what a model said in a fourth column; a folder of them, or one."""
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path] if path.suffix == ".txt" else []
    lines = _mme_lines(files, columns=_MME_COLUMNS + 1)
    return [
        Answer(name, said, target=right, asked=question, shown=image, kind=part)
        for part, name, (image, question, right, said, *_) in lines
    ] or None


def _mme_lines(files: Sequence[Path], *, columns: int) -> Iterator[tuple[str, str, list[str]]]:
    """Part, id and columns of each line; blank ones are passed over."""
    for file in files:
        for number, line in enumerate(text_of(file).split("\n"), 1):
            fields = line.rstrip("\r").split("\t")
            if line.strip() and len(fields) < columns:
                names = ("image", "question", "answer", "what a model said")[:columns]
                raise ConfigError(f"{file}: line {number} has {len(fields)} columns; {', '.join(names)} expected.")
            if line.strip():
                yield file.stem, f"{file.stem}/{fields[0]}/{number}", fields


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
    told = {name: 100 * value for name, value in metrics.items()}
    told |= {"mean F1 of parts": mean(list(parts.values()))} if parts else {}  # what LLaVA-1.5's table has
    return Scores(metrics=told, items=worth, groups=groups)


def _is(item: Item, category: str) -> bool:
    return str(item.facts.get("category")) == category


def _pope_f1(pairs: Sequence[tuple[bool | None, bool]]) -> float:
    return 100 * binary_scores((not truth if one is None else one, truth) for one, truth in pairs).f1


def score_mme(items: Sequence[Item], answers: Sequence[str], variant: str) -> Scores:
    """The sum over parts of accuracy and accuracy+ (both questions of an image right), 200 a part.

    Published tables have the sums of its ten parts of perception and of its four of cognition.
    """
    del variant
    worth = [
        float(mme_answer(text) == item.answers[0].strip().lower()) for item, text in zip(items, answers, strict=True)
    ]
    images: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for item, value in zip(items, worth, strict=True):
        image = item.facts["image"] if "image" in item.facts else item.images[0]
        images[str(item.facts["part"])][str(image)].append(bool(value))
    parts = {part: mme_score(images[part]) for part in sorted(images)}
    cognition = sum(value for part, value in parts.items() if part in _MME_COGNITION)
    metrics = {"score": sum(parts.values()), "perception": sum(parts.values()) - cognition, "cognition": cognition}
    return Scores(metrics=metrics, items=worth, groups={"part": parts})


_PROMPT = question_with("Please answer yes or no.")

POPE = Task(
    name="pope",
    title="POPE (Li et al. 2023)",
    metric="F1 of yes, percent",
    reader=read_pope,
    prompt=_PROMPT,
    score=score_pope,
    oracle="its own program on 450 made answers, all five numbers equal",
    version="2",
)
MME = Task(
    name="mme",
    title="MME (Fu et al. 2023)",
    metric="sum of accuracy and accuracy+",
    reader=read_mme,
    prompt=lambda item: item.question,
    score=score_mme,
    oracle="its own program on the answers of LaVIN-13B that it brings: 963.6 and 249.6, each part equal",
    version="2",
    own_answers=read_mme_answers,
)
