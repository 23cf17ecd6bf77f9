"""From items and answers to a result that says what it is worth: every id once, or the result says which not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal

from omniloom._version import __version__
from omniloom.errors import ConfigError
from omniloom.evaluate.answer import Answer
from omniloom.evaluate.placing import placed
from omniloom.evaluate.task import Item, Scores, Task

Missing = Literal["wrong", "leave-out"]

_LONGEST_NAME = 80
_OF_THE_TRUTH = "each answer is, word by word, one that is right: was a file of right answers given?"
_SECRET = frozenset(("", "?"))
"""What parts of benchmarks have in the place of answers that are secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What became of every id.

    Attributes:
        expected: items of the benchmark.
        answered: items with an answer that is not empty.
        missing: ids without an answer.
        empty: ids whose answer is empty.
        doubled: ids with several equal answers, of which one counts.
        conflicting: ids with several different answers, of which the first counts.
        unknown: ids of answers that are no item's, an entry each; of those without an id, what was asked or said.
    """

    expected: int
    answered: int
    missing: tuple[str, ...]
    empty: tuple[str, ...]
    doubled: tuple[str, ...]
    conflicting: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether each item has one answer, and there are no others. Empty answers are answers, and are wrong."""
        return not (self.missing or self.conflicting or self.unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A score and all that it hangs on.

    Attributes:
        task: the benchmark.
        variant: the rule.
        scores: of the items that count.
        account: of the ids.
        missing_policy: ``wrong``: items without an answer count as answered by nothing; ``leave-out``: not at all.
        about: what else is known: model, files, their fingerprints.
        items: the items that count, in the order of ``scores.items``.
        texts: their answers.
    """

    task: Task
    variant: str
    scores: Scores
    account: Account
    missing_policy: Missing
    about: Mapping[str, Any]
    items: Sequence[Item]
    texts: Sequence[str]

    def to_plain(self) -> dict[str, Any]:
        """The result as JSON can hold it. Failed are items without an answer, or with an empty one."""
        account = self.account
        prompts = [self.task.prompt(item) for item in self.items]
        ids = {name: getattr(account, name) for name in ("missing", "empty", "doubled", "conflicting", "unknown")}
        return {
            "task": self.task.name,
            "title": self.task.title,
            "metric": self.task.metric,
            "metric_version": self.task.version,
            "variant": self.variant,
            "omniloom_version": __version__,
            "checked_against": self.task.oracle or "unverified",
            "scores": dict(self.scores.metrics),
            **({"left_out": self.task.left_out} if self.task.left_out else {}),
            "groups": {kind: dict(groups) for kind, groups in self.scores.groups.items()},
            "counts": {
                "expected": account.expected,
                "answered": account.answered,
                "failed": account.expected - account.answered,
                "scored": len(self.items),
            }
            | {name: len(each) for name, each in ids.items()},
            "ids": {name: list(each) for name, each in ids.items() if each},
            **({"note": _OF_THE_TRUTH} if self._is_the_truth() else {}),
            "missing_policy": self.missing_policy,
            "complete": account.complete,
            "prompt_example": prompts[0] if prompts else "",
            "prompts_sha256": sha256("\0".join(prompts).encode("utf-8", "surrogatepass")).hexdigest(),
            **self.about,
        }

    def _is_the_truth(self) -> bool:
        """Whether each of several answers is one that the benchmark's file has as right, word by word."""
        return len(self.items) > 1 and all(
            text in item.answers for item, text in zip(self.items, self.texts, strict=True)
        )


def evaluate(
    task: Task,
    items: Sequence[Item],
    answers: Sequence[Answer],
    *,
    variant: str | None = None,
    missing: Missing = "wrong",
    about: Mapping[str, Any] | None = None,
) -> Result:
    """Score answers.

    Args:
        task: the benchmark.
        items: its items; options and right answers that they lack are taken from the answers, if those bring them.
        answers: of a model; matched by id.
        variant: the rule; ``None``: the first of the task's.
        missing: what becomes of items without an answer.
        about: what else the result is to say.

    Raises:
        ConfigError: the variant is unknown, an id comes twice among the items, no answer is one to them, nothing tells
            what is right, or answers are the questions.
    """
    variant = checked(task, items, variant)
    said: dict[str, list[Answer]] = {}
    for answer in placed(items, answers):
        said.setdefault(answer.id, []).append(answer)
    account = _account(items, said)
    if len(account.missing) == len(items):
        raise ConfigError(
            f"{task.name}: no answer is to one of the {len(items)} items: ids like {next(iter(said), 'none')!r} found, "
            f"like {items[0].id!r} expected."
        )
    counted = [item for item in items if missing == "wrong" or item.id in said]
    completed = [_completed(item, said[item.id][0]) if item.id in said else item for item in counted]
    texts = [said[item.id][0].text if item.id in said else "" for item in counted]
    check_truth(task, completed)
    _check_answers(task, completed, texts)
    return Result(
        task=task,
        variant=variant,
        scores=task.score(completed, texts, variant),
        account=account,
        missing_policy=missing,
        about=about or {},
        items=completed,
        texts=texts,
    )


def checked(task: Task, items: Sequence[Item], variant: str | None) -> str:
    """The variant, the first of the task's for ``None``, where answers to some items can be scored by it.

    Raises:
        ConfigError: the variant is unknown, there are no items, or an id comes twice among them.
    """
    variant = variant or task.variants[0]
    if variant not in task.variants:
        raise ConfigError(f"{task.name}: variant {variant!r} found; one of {', '.join(task.variants)} expected.")
    if not items:
        raise ConfigError(f"{task.name}: there are no items. At least one is expected.")
    check_ids(task, items)
    return variant


def check_ids(task: Task, items: Sequence[Item]) -> None:
    """See that each id comes once. Raises ConfigError with one that comes twice: of its answers, one would be lost."""
    twice = [name for name, count in Counter(item.id for item in items).items() if count > 1]
    if twice:
        raise ConfigError(
            f"{task.name}: id {twice[0]!r} comes twice among the items, as do {len(twice) - 1:,} others. Each id once "
            "is expected: mend the benchmark's file."
        )


def check_truth(task: Task, items: Sequence[Item]) -> None:
    """See that something is right for each item.

    Raises:
        ConfigError: for some of them nothing is, or for none of them anything but a blank or a question mark, as in
            parts of benchmarks whose answers are kept secret.
    """
    lacking = [item.id for item in items if not item.answers]
    if not lacking and all(text.strip() in _SECRET for item in items for text in item.answers):
        lacking = [item.id for item in items]
    if lacking:
        raise ConfigError(
            f"{task.name}: nothing tells what is right for {len(lacking):,} of {len(items):,} items, such as "
            f"{lacking[0]!r}. Give the part of the benchmark whose answers are public; of a secret one, `omniloom "
            "generate` makes the answers to hand in."
        )


def _check_answers(task: Task, items: Sequence[Item], texts: Sequence[str]) -> None:
    if all(text and text == item.question for item, text in zip(items, texts, strict=True)):
        raise ConfigError(
            f"{task.name}: each answer is its question, word by word: a file of questions was given in the place of "
            "one of answers."
        )


def _account(items: Sequence[Item], said: Mapping[str, Sequence[Answer]]) -> Account:
    known = {item.id for item in items}
    several = {name: {answer.text for answer in each} for name, each in said.items() if len(each) > 1 and name in known}
    empty = tuple(item.id for item in items if item.id in said and not said[item.id][0].text.strip())
    missing = tuple(item.id for item in items if item.id not in said)
    return Account(
        expected=len(items),
        answered=len(items) - len(missing) - len(empty),
        missing=missing,
        empty=empty,
        doubled=tuple(name for name, texts in several.items() if len(texts) == 1),
        conflicting=tuple(name for name, texts in several.items() if len(texts) > 1),
        unknown=tuple(_called(each) for name, several in said.items() if name not in known for each in several),
    )


def _called(answer: Answer) -> str:
    """What an answer to no item goes by."""
    return answer.id or f"(no id) {answer.asked or answer.text}"[:_LONGEST_NAME]


def _completed(item: Item, answer: Answer) -> Item:
    """An item with what its benchmark's file lacks and the answer's brings."""
    if item.options or not answer.options:
        return item
    return replace(item, options=answer.options, answers=item.answers or answer.answers)
