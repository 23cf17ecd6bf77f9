"""What a benchmark is: items, a prompt for each, and a score of the answers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from omniloom.errors import ConfigError, OmniloomError
from omniloom.evaluate.answer import Answer


class Cell(NamedTuple):
    """An image in a Parquet table.

    Attributes:
        path: of the table.
        row: from 0.
        column: of images.
    """

    path: Path
    row: int
    column: str

    def __str__(self) -> str:
        return f"{self.path.name}#{self.row}/{self.column}"


class Inline(NamedTuple):
    """An image that stands in a text, as VLMEvalKit's tables have it.

    Attributes:
        base64: its content.
    """

    base64: str

    def __str__(self) -> str:
        return f"an image of {len(self.base64)} characters of base64"


class StoredPictures(Protocol):
    """A data set whose samples show images."""

    def picture(self, shown: Stored) -> Any:
        """The content of an image or a video."""


class Stored(NamedTuple):
    """An image, or a video, of a sample of a data set.

    Attributes:
        data_set: that has it.
        number: of the data set in a mix.
        row: of the sample.
        place: among the sample's images.
        video: whether it is one.
    """

    data_set: StoredPictures
    number: int
    row: int
    place: int
    video: bool

    def __str__(self) -> str:
        return f"{self.data_set}: row {self.row} of data set {self.number}"


Shown = str | Cell | Inline | Stored
"""What names an image, or holds it."""

IMAGE_SUFFIXES = (".jpg", ".png", ".jpeg", ".webp")
"""Of images in folders, and of those that benchmarks name without one."""

_LONGEST_NAME = 1000

LACKING = "lacking"
"""The fact of an item that tells why it can be scored but not asked."""


def image_name(value: Any) -> Shown:
    """What a row says of an image: its name, a cell of the row's table, or its content."""
    if isinstance(value, Cell):
        return value
    text = str(value)
    return text if len(text) <= _LONGEST_NAME else Inline(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One question of a benchmark.

    Attributes:
        id: unique in the benchmark.
        question: as the benchmark's file has it; empty where there is none, as in captioning.
        answers: all that are right, or the references of a caption.
        images: files or videos, relative to the folder of images, or cells of tables, in the order of the question's
            placeholders.
        options: text of each option by its letter, where there are options.
        facts: what else a score or its breakdown asks for, under the names of the benchmark's file.
    """

    id: str
    question: str = ""
    answers: tuple[str, ...] = ()
    images: tuple[Shown, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What answers are worth.

    Attributes:
        metrics: scores by name, in the unit in which they are published; the first is the one that is quoted.
        items: score of each item, between 0 and 1 unless the metric has another range (CIDEr: 0 to 10).
        groups: the first metric by kind of group (``subject``) and by group.
    """

    metrics: Mapping[str, float]
    items: Sequence[float]
    groups: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


Read = TypeVar("Read")
Score = Callable[[Sequence[Item], Sequence[str], str], Scores]
"""Items, the text of each answer (empty where there is none), and the variant."""


def no_fields(item: Item, answer: str) -> Mapping[str, Any]:
    """Nothing else."""
    del item, answer
    return {}


def no_form(path: Path) -> list[Answer] | None:
    """No form of its own."""
    del path
    return None


def kept_fields(*names: str) -> Callable[[Item, str], Mapping[str, Any]]:
    """Facts of the item under their own names, where it has them."""

    def fields(item: Item, answer: str) -> Mapping[str, Any]:
        del answer
        return {name: item.facts[name] for name in names if item.facts.get(name) is not None}

    return fields


@dataclass(frozen=True, kw_only=True)
class Task:
    """One benchmark.

    Attributes:
        name: as on the command line.
        title: name and source.
        metric: what the first metric is, in words.
        reader: the items of a file or folder in the benchmark's own layout.
        prompt: the question as it is put to a model.
        score: the rule.
        variants: names of the rules that are in use, the default first.
        oracle: what the rule was checked against: an official program, a published file, or the text of a rule. An
            empty one is printed as *unverified*.
        version: of the rule as it is computed here; it changes whenever a score does.
        columns: keys that may hold the answer in this task's files, besides the usual ones.
        read_folder: items of a folder of images alone, where that makes sense.
        most: what an item is worth at most; where that is not 1, items are not right or wrong.
        left_out: metrics that published tables have and this task has not, and why; empty where there are none.
        fields: what else stands in a line of answers, of item and answer: the names of Megatron's example, where its
            evaluators look for others than ``answer`` and ``gt_answer``.
        own_answers: answers in a form that only this benchmark's own program has; ``None`` where a path is none of it.
    """

    name: str
    title: str
    metric: str
    reader: Callable[[Path], list[Item]]
    prompt: Callable[[Item], str]
    score: Score
    oracle: str
    variants: tuple[str, ...] = ("published",)
    version: str = "1"
    columns: tuple[str, ...] = ()
    read_folder: Callable[[Path], list[Item]] | None = None
    most: float = 1.0
    left_out: str = ""
    fields: Callable[[Item, str], Mapping[str, Any]] = no_fields
    own_answers: Callable[[Path], list[Answer] | None] = no_form

    def read(self, path: Path) -> list[Item]:
        """The items of a file or folder in the benchmark's own layout.

        Raises:
            ConfigError: it is missing, or in none of the forms that this benchmark has.
        """
        return self.formed(self.reader, path)

    def read_answers(self, path: Path) -> list[Answer] | None:
        """Answers in a form that only this benchmark's own program has; ``None``: in none of these.

        Raises:
            ConfigError: as `read`.
        """
        return self.formed(self.own_answers, path)

    def formed(self, reader: Callable[[Path], Read], path: Path) -> Read:
        """What a reader makes of a path; all that it stumbles over is told as a form that this benchmark has not.

        Raises:
            ConfigError: with the path.
        """
        try:
            return reader(path)
        except OmniloomError as told:
            if str(path) in str(told):
                raise
            raise ConfigError(f"{path}: {told}") from told
        except (LookupError, TypeError, ValueError, AttributeError) as odd:
            raise ConfigError(
                f"{path}: in no form that {self.name} has: {type(odd).__name__}: {str(odd)[:200]}. Compare it with the "
                "benchmark's own file; docs/evaluation.md names the forms."
            ) from odd

    def read_images(self, folder: Path) -> list[Item]:
        """An item for each image of a folder, for questions that hang on nothing but the image.

        Raises:
            ConfigError: the task asks about its images, or there are none.
        """
        if self.read_folder is None:
            raise ConfigError(f"{self.name}: its questions are in the benchmark's file. Give it with --gt-path.")
        return self.read_folder(folder)


def question_only(item: Item) -> str:
    """The question as it stands."""
    return item.question


def question_with(instruction: str) -> Callable[[Item], str]:
    """The question, and on the next line how to answer."""

    def prompt(item: Item) -> str:
        return f"{item.question}\n{instruction}"

    return prompt


SINGLE_WORD = question_with("Answer the question using a single word or phrase.")
SINGLE_WORD_OR_NUMBER = question_with("Answer the question using a single word, phrase, or number.")


def lettered(item: Item) -> str:
    """The question, its options with letters, and the order to answer by letter (LLaVA-1.5's form)."""
    options = "\n".join(f"{letter}. {text}" for letter, text in item.options.items())
    return f"{item.question}\n{options}\nAnswer with the option's letter from the given choices directly."


def mean_score(
    rule: Callable[[Item, str, str], float], *, metric: str = "accuracy", groups: Sequence[str] = (), scale: float = 100
) -> Score:
    """A score that is the mean of what each answer is worth. One that says nothing is worth nothing, whatever the rule.

    Rules that drop articles make nothing of a right answer "A", too, which is not the same.

    Args:
        rule: worth of an answer, between 0 and 1: item, text, variant.
        metric: name of the mean.
        groups: facts of the items by which it is broken down.
        scale: what a perfect score is.
    """

    def score(items: Sequence[Item], texts: Sequence[str], variant: str) -> Scores:
        answered = zip(items, texts, strict=True)
        worth = [rule(item, text, variant) if text.strip() else 0.0 for item, text in answered]
        return Scores(
            metrics={metric: scale * mean(worth)},
            items=worth,
            groups={name: grouped(items, worth, name, scale=scale) for name in groups},
        )

    return score


def grouped(items: Sequence[Item], worth: Sequence[float], fact: str, *, scale: float = 100) -> dict[str, float]:
    """The mean worth by a fact of the items, sorted by its value; items without that fact are left out."""
    found: dict[str, list[float]] = defaultdict(list)
    for item, value in zip(items, worth, strict=True):
        if item.facts.get(fact) is not None:
            found[str(item.facts[fact])].append(value)
    return {name: scale * mean(found[name]) for name in sorted(found)}


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of nothing."""
    return math.fsum(values) / len(values) if values else 0.0
