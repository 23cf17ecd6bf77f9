"""What a report is made of, read from files: runs, results of evaluations, items with their answers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from omniloom.data.index.yaml_dialect import load_yaml
from omniloom.errors import ConfigError
from omniloom.storage.files import storage_error

STEPS_FILE, RECIPE_FILE = "steps.jsonl", "recipe.yaml"  # as `omniloom train` names them
_LARGEST = 1e100  # no value of a run is larger in earnest; sums and products of such ones are still finite
_LARGEST_WHOLE = 1 << 53
_COUNTS = ("expected", "answered", "scored")
_FAULTS = ("missing", "empty", "doubled", "conflicting", "unknown")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run, as its folder tells of it.

    Attributes:
        name: of its folder, made unique among the runs of a report.
        folder: where it is.
        steps: numbers of the steps, rising; at least one.
        columns: by name one value a step, as `omniloom train` logs it; ``None``: not told, not finite, or absurd.
        recipe: the resolved settings, as a tree.
        cut_line: the last line of the steps was not whole, as a kill leaves it, and is left out.
    """

    name: str
    folder: Path
    steps: Sequence[int]
    columns: Mapping[str, Sequence[float | None]]
    recipe: Mapping[str, Any]
    cut_line: bool

    def column(self, name: str) -> Sequence[float | None]:
        """The values of a name, one a step."""
        return self.columns.get(name) or [None] * len(self.steps)

    def settings(self, part: str) -> Mapping[str, Any]:
        """A part of the recipe, such as ``loop``; empty where it is missing."""
        found = self.recipe.get(part)
        return found if isinstance(found, Mapping) else {}

    @property
    def planned_steps(self) -> int | None:
        """How many steps the recipe asks for; ``None`` where it does not say."""
        planned = self.settings("loop").get("steps")
        return planned if isinstance(planned, int) and 0 < planned < _LARGEST_WHOLE else None


@dataclass(frozen=True, kw_only=True)
class ResultRecord:
    """A result that `omniloom evaluate --output` wrote.

    Attributes:
        path: the file.
        task, title, metric, variant, checked_against: words, as evaluated.
        scores: at least one; the first is the one that is quoted.
        groups: the first score by kind of group and by group.
        counts: ``expected``, ``answered``, ``scored``, and how many ids are at fault.
        ids: some of the ids at fault, by fault.
        complete: whether each item has one answer.
        about: the other fields of the file: model, fingerprints, policy.
    """

    path: Path
    task: str
    title: str
    metric: str
    variant: str
    checked_against: str
    scores: Mapping[str, float]
    groups: Mapping[str, Mapping[str, float]]
    counts: Mapping[str, int]
    ids: Mapping[str, Sequence[str]]
    complete: bool
    about: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ItemRecord:
    """A line that `omniloom evaluate --items` wrote.

    Attributes:
        id: of the item.
        question: may be empty.
        answers: all that are right.
        text: what the model said.
        score: what it is worth; between 0 and 1 unless the metric has another range.
        images: names of its images.
        most: what an item is worth at most, as far as the file says.
    """

    id: str
    question: str
    answers: Sequence[str]
    text: str
    score: float
    images: Sequence[str]
    most: float = 1.0


def read_run(folder: Path, *, name: str | None = None) -> RunRecord:
    """A run from its folder.

    Raises:
        ConfigError: a file is missing or is not what `omniloom train` writes; with file and line.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder. Give the `folder` of a recipe that was trained.")
    path = folder / STEPS_FILE
    text = _text(path)
    whole, _, rest = text.rpartition("\n")
    rows = list(_rows(whole, path))
    if not rows:
        raise ConfigError(f"{path}: no whole line found; one JSON object a step expected. Has the run taken a step?")
    steps = [_step(row, f"{path}, line {number}") for number, row in rows]
    for index, (before, step) in enumerate(pairwise(steps), 1):
        if step <= before:
            raise ConfigError(f"{path}, line {rows[index][0]}: step {step} after step {before}; rising ones expected.")
    names = dict.fromkeys(key for _, row in rows for key in row if key != "step")
    columns = {key: [_optional(row.get(key), f"{path}, line {n}", key) for n, row in rows] for key in names}
    recipe_path = folder / RECIPE_FILE
    recipe = load_yaml(_text(recipe_path), name=str(recipe_path))
    if not isinstance(recipe, Mapping):
        raise ConfigError(f"{recipe_path}: {type(recipe).__name__} found; a mapping of settings expected.")
    return RunRecord(
        name=name or folder.resolve().name, folder=folder, steps=steps, columns=columns, recipe=recipe,
        cut_line=bool(rest.strip()),
    )  # fmt: skip


def read_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """Several runs; those whose folders have one name are told apart by the folders above."""
    names = [folder.resolve().name for folder in folders]
    full = [f"{folder.resolve().parent.name}/{name}" for folder, name in zip(folders, names, strict=True)]
    chosen = [name if names.count(name) == 1 else longer for name, longer in zip(names, full, strict=True)]
    return [read_run(folder, name=name) for folder, name in zip(folders, chosen, strict=True)]


def read_result(path: Path) -> ResultRecord:
    """A result file.

    Raises:
        ConfigError: it is missing or is not what `omniloom evaluate --output` writes; with file and key.
    """
    row = _loads(_text(path), path, None)
    if not isinstance(row, Mapping):
        raise ConfigError(
            f"{path}: {type(row).__name__} found; an object that `omniloom evaluate --output` wrote expected."
        )
    words = ("task", "title", "metric", "variant", "checked_against")
    texts = {key: _kind(row, key, str, str(path)) for key in words}
    scores = _numbers(_kind(row, "scores", Mapping, str(path)), f"{path}, scores")
    if not scores:
        raise ConfigError(f"{path}: 'scores' is empty; at least one score expected.")
    kinds = _kind(row, "groups", Mapping, str(path))
    groups = {str(kind): _numbers(_kind(kinds, kind, Mapping, f"{path}, groups"), f"{path}, {kind}") for kind in kinds}
    found = _kind(row, "counts", Mapping, str(path))
    counts = {key: _kind(found, key, int, f"{path}, counts") for key in (*_COUNTS, *_FAULTS)}
    ids = _kind(row, "ids", Mapping, str(path))
    known = {*words, "scores", "groups", "counts", "ids", "complete"}
    return ResultRecord(
        path=path, **texts, scores=scores, groups=groups, counts=counts,
        ids={str(kind): [str(each) for each in _kind(ids, kind, list, f"{path}, ids")] for kind in ids},
        complete=_kind(row, "complete", bool, str(path)),
        about={str(key): value for key, value in row.items() if key not in known},
    )  # fmt: skip


def read_items(path: Path) -> list[ItemRecord]:
    """The lines of an items file.

    Raises:
        ConfigError: it is missing, empty, or a line is not what `omniloom evaluate --items` writes; with the line.
    """
    items = []
    for number, row in _rows(_text(path), path):
        where = f"{path}, line {number}"
        score = _optional(_kind(row, "score", object, where), where, "score")
        items.append(
            ItemRecord(
                id=str(_kind(row, "id", str | int, where)),
                question=_kind(row, "question", str, where),
                answers=[str(each) for each in _kind(row, "answers", list, where)],
                text=_kind(row, "text", str, where),
                score=0.0 if score is None else score,
                images=[str(each) for each in _kind(row, "images", list, where)] if "images" in row else (),
                most=_optional(row.get("most"), where, "most") or 1.0,
            )
        )
    if not items:
        raise ConfigError(f"{path}: no line found; one item a line expected, as `omniloom evaluate --items` writes.")
    return items


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: there is no such file. Check the path, and that the command that makes it ran."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}, byte {error.start}: no UTF-8 found. Is it the right file?") from error
    except OSError as error:
        raise storage_error("read", path, error) from error


def _rows(text: str, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            row = _loads(line, path, number)
            if not isinstance(row, Mapping):
                raise ConfigError(f"{path}, line {number}: {type(row).__name__} found; a JSON object expected.")
            yield number, row


def _loads(text: str, path: Path, line: int | None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path}, line {line or error.lineno}: no JSON: {error.msg} (column {error.colno})."
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}, line {line or 1}: JSON that cannot be read: {error}.") from error


def _step(row: Mapping[str, Any], where: str) -> int:
    step: int = _kind(row, "step", int, where)
    if not 0 <= step < _LARGEST_WHOLE:
        raise ConfigError(f"{where}: step {str(step)[:30]} found; 0 to 2**53 expected.")
    return step


def _optional(value: Any, where: str, key: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where}: {key!r} is {value!r}; a number or null expected.")
    return float(value) if -_LARGEST <= value <= _LARGEST else None  # NaN is not within them


def _numbers(row: Mapping[Any, Any], where: str) -> dict[str, float]:
    read = {str(key): _optional(value, where, str(key)) for key, value in row.items()}
    return {key: math.nan if value is None else value for key, value in read.items()}


def _kind(row: Mapping[Any, Any], key: Any, kind: Any, where: str) -> Any:
    if key not in row:
        raise ConfigError(f"{where}: no key {key!r}; found: {', '.join(map(str, row)) or 'nothing'}.")
    value = row[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool and kind is not object):
        expected = getattr(kind, "__name__", str(kind))
        raise ConfigError(f"{where}: {key!r} is {str(value)[:80]!r} ({type(value).__name__}); {expected} expected.")
    return value
