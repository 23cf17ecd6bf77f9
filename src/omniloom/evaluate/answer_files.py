"""Answers of models, in the forms in which people have them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError
from omniloom.evaluate.answer import ID_COLUMNS, Answer, id_text, innermost
from omniloom.evaluate.harness_logs import harness_answers, is_harness_log
from omniloom.evaluate.reading import SHEETS, WRAPPERS, Row, letters, pairs_of, read_json, read_rows, suffix_of
from omniloom.evaluate.tables import parquet_files
from omniloom.evaluate.task import Task
from omniloom.evaluate.tasks import MEGATRON_NAMES, plain_name

TEXT_COLUMNS = (
    "prediction", "predict", "pred", "predicted", "pred_answer", "predicted_answer", "pred_ans", "model_answer",
    "model_output", "model_response", "generated_text", "generated_answer", "hypothesis", "response", "answer", "text",
    "caption", "output",
)  # fmt: skip
"""Rows with both a prediction and an answer hold what is right as the answer; so do those with an output, too, where
nothing else tells what is right."""
_ASKED_COLUMNS = ("prompt", "question", "query")
_SHOWN_COLUMNS = ("image", "image_path", "imgname", "image_name", "filename")
_TARGET_COLUMNS = ("gt", "annotation", "gt_answer", "gt_answers", "target", "ground_truth", "label")
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".tsv", ".csv", ".parquet", ".xlsx")
_SAMPLES = "_samples_"
_LONGEST_NAME = 300  # a longer one is an image itself


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """Answers and where they are from.

    Attributes:
        answers: in the order of the files.
        files: that were read, with the SHA-256 of each.
    """

    answers: Sequence[Answer]
    files: Mapping[str, str]


def read_answers(path: Path, task: Task) -> AnswerFile:
    """The answers in a file, a folder, or in all files that begin with a prefix.

    Read are: omniloom's and Megatron's JSON lines (``<prefix>-<task>-dprank=*-partition=*.jsonl``, given the prefix),
    COCO results, VQA submissions, MMMU's output folders (``<subject>/output.json``) and files by id, MathVista's
    outputs, sample logs of lmms-eval, tables of VLMEvalKit (``.xlsx``, ``.tsv``), and what the task reads itself. JSON
    may be gzipped.

    Raises:
        ConfigError: nothing is there, or rows have no id or no answer.
    """
    own = task.read_answers(path)
    if own is not None:
        return AnswerFile(own, {str(path): fingerprint(path)})
    files = _files(path, task)
    answers = [answer for file in files for answer in task.formed(partial(_of_file, task=task), file)]
    if not answers:
        raise ConfigError(f"{path}: no answers in {', '.join(file.name for file in files)}.")
    return AnswerFile(answers, {str(file): fingerprint(file) for file in files})


def read_several(paths: Sequence[Path], task: Task) -> AnswerFile:
    """The answers in several files, folders or prefixes, one after the other; each as `read_answers` takes it."""
    given = [read_answers(path, task) for path in paths]
    files = {name: digest for each in given for name, digest in each.files.items()}
    return AnswerFile([answer for each in given for answer in each.answers], files)


def fingerprint(path: Path) -> str:
    """The SHA-256 of a file, or of the files of a folder, or of a prefix of tables, with their names."""
    if path.is_file():
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    digest = hashlib.sha256()
    files = (each for each in path.rglob("*") if each.is_file()) if path.is_dir() else parquet_files(path)
    for file in sorted(files):
        digest.update(f"{file.relative_to(path if path.is_dir() else path.parent)}\0{fingerprint(file)}\n".encode())
    return digest.hexdigest()


def _files(path: Path, task: Task) -> list[Path]:
    if path.is_file():
        return [path]
    if path.is_dir():
        found = sorted(path.glob("*/output.json")) or _harness_log(path, task)
        found = found or sorted(file for file in path.iterdir() if suffix_of(file) == ".jsonl")
    else:
        found = _of_prefix(path, task) if path.parent.is_dir() else []
        steps = {file.name.rpartition("-step=")[2] for file in found if "-step=" in file.name}
        if len(steps) > 1 or (steps and any("-step=" not in file.name for file in found)):
            raise ConfigError(
                f"{path}: answers of several checkpoints begin so ({', '.join(sorted(file.name for file in found))}). "
                "Give a longer prefix, or one file."
            )
    if not found and path.is_dir():
        raise ConfigError(
            f"{path}: no <subject>/output.json, no log of lmms-eval and no *.jsonl in this folder. Give a file in it, "
            "or the folder of one model's answers."
        )
    if not found:
        raise ConfigError(
            f"{path}: there is no such file or folder, and no *.jsonl whose name begins so. Check the path."
        )
    return found


def _harness_log(path: Path, task: Task) -> list[Path]:
    """The task's log of samples in a folder that lmms-eval wrote to, as ``*_samples_textvqa_val.jsonl``.

    Raises:
        ConfigError: there are several, of several runs or parts.
    """
    logs = {file: plain_name(file.stem.partition(_SAMPLES)[2]) for file in path.rglob(f"*{_SAMPLES}*.jsonl")}
    beginning = plain_name(task.name).removesuffix("captions")  # coco2017_cap_val
    found = sorted(file for file, name in logs.items() if name.startswith(beginning)) or list(logs)
    if len(found) > 1:
        raise ConfigError(
            f"{path}: several logs found: {', '.join(str(p.relative_to(path)) for p in found)}. Give one."
        )
    return found


def _of_prefix(path: Path, task: Task) -> list[Path]:
    """Megatron's files of the task under a prefix; else all that begin so."""
    names = [task.name, *(theirs for theirs, ours in MEGATRON_NAMES.items() if ours == task.name)]
    beginning = escape(path.name)
    of_task = [file for name in names for file in path.parent.glob(f"{beginning}-{name}-dprank=*.jsonl")]
    return sorted(of_task or (file for file in path.parent.glob(f"{beginning}*") if suffix_of(file) == ".jsonl"))


def _of_file(path: Path, *, task: Task) -> list[Answer]:
    suffix = suffix_of(path)
    if suffix not in _SUFFIXES:
        raise ConfigError(f"{path}: {suffix or 'no suffix'} found; one of {', '.join(_SUFFIXES)} expected.")
    if suffix in SHEETS:
        return [one for number, row in enumerate(read_rows(path), 2) for one in _answers(row, path, number, task)]
    if suffix == ".json":
        loaded = read_json(path)
        by_id = _by_id(loaded, path) if isinstance(loaded, Mapping) else None
        if by_id is not None:
            return by_id
    rows = read_rows(path)
    if rows and is_harness_log(rows[0]):
        return harness_answers(rows)
    numbered = [(number, one) for number, row in enumerate(rows, 1) for one in _questions_of(row)]
    return [one for number, row in numbered for one in _answers(row, path, number, task)]


def _questions_of(row: Row) -> list[Row]:
    """The questions of a video, as Video-MME has them with its answers; another row is its own."""
    several = row.get("questions")
    return several if isinstance(several, list) and several and isinstance(several[0], Mapping) else [row]


def _by_id(loaded: Mapping[str, Any], path: Path) -> list[Answer] | None:
    """Answers in an object of texts by id, or in one under a usual name in it; ``None`` where there is none.

    They are read as pairs, so that an id that comes twice is there twice.
    """
    name = next((name for name in ("outputs", *WRAPPERS) if isinstance(loaded.get(name), Mapping)), None)
    outputs = loaded if name is None else loaded[name]
    lists = [key for key, value in outputs.items() if isinstance(value, list)]
    if any(isinstance(value, Mapping) for value in outputs.values()) or (lists and lists[0] in WRAPPERS):
        return None
    pairs = pairs_of(path)
    if name is not None:
        pairs = next(value for key, value in pairs if key == name)
    return [Answer(key, innermost(text)) for key, text in pairs]


def _answers(row: Row, path: Path, number: int, task: Task) -> list[Answer]:
    """The answer of a row; of a list of texts, each that is another one."""
    columns = tuple(dict.fromkeys((*task.columns, *TEXT_COLUMNS)))
    name = next((row[column] for column in ID_COLUMNS if row.get(column) is not None), None)
    # The first column that is there, blank or not: a later one may hold what is right.
    said = next((column for column in columns if column in row), None)
    if said == "answer" and "output" in row and not _text(row, _TARGET_COLUMNS):
        said = "output"
    targets = _TARGET_COLUMNS if said == "answer" else (*_TARGET_COLUMNS, "answer")
    asked, shown, target = (_text(row, each) for each in (_ASKED_COLUMNS, _SHOWN_COLUMNS, targets))
    nameless = name is None and not (asked or shown or target)
    if nameless or said is None:
        lacking, columns = ("id", ID_COLUMNS) if nameless else ("answer", columns)
        raise ConfigError(
            f"{path}: row {number} has no {lacking}: one of {', '.join(columns)} expected, found "
            f"{', '.join(map(str, row))}."
        )
    right = row.get("answer") if "response" in row and "index2ans" in row else None
    listed = row[said] if isinstance(row[said], list) and all(isinstance(one, str) for one in row[said]) else []
    answer = Answer(
        "" if name is None else id_text(name),
        innermost(row[said]),
        letters(row.get("index2ans")) if isinstance(row.get("index2ans"), Mapping) else {},
        () if right is None else tuple(map(str, right)) if isinstance(right, list) else (str(right),),
        target=target,
        asked=asked,
        shown=shown if len(shown) <= _LONGEST_NAME else "",
        kind=_text(row, ("task_type", "category")),
    )
    return [answer, *(replace(answer, text=text) for text in dict.fromkeys(listed) if text != answer.text)]


def _text(row: Row, columns: Sequence[str]) -> str:
    """The first of some columns that says something, as a text."""
    return next((str(row[name]) for name in columns if row.get(name) not in (None, "")), "")
