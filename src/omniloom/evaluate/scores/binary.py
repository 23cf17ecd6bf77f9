"""Yes or no: POPE's confusion matrix and MME's accuracies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_NO = frozenset(("No", "no", "not"))
_MME_SEEN = 4  # characters of an answer


class BinaryScores(NamedTuple):
    """What follows from a confusion matrix in which "yes" is positive. Shares between 0 and 1.

    Attributes:
        accuracy: right answers.
        precision: of those answered yes, the share that is.
        recall: of those that are, the share answered yes.
        f1: harmonic mean of precision and recall.
        yes_share: answers that are yes.
        items: how many there are.
    """

    accuracy: float
    precision: float
    recall: float
    f1: float
    yes_share: float
    items: int


def pope_answer(response: str) -> bool:
    """Whether a response says yes by POPE's rule (Li et al. 2023): no "No", "no" or "not" in its first sentence."""
    words = response.split(".", maxsplit=1)[0].replace(",", "").split(" ")
    return not _NO.intersection(words)


def mme_answer(response: str) -> str:
    """``yes``, ``no`` or ``other``, as MME's program finds it in the first four characters (Fu et al. 2023)."""
    beginning = response.lower()[:_MME_SEEN]
    return next((word for word in ("yes", "no") if word in beginning), "other")


def binary_scores(pairs: Iterable[tuple[bool, bool]]) -> BinaryScores:
    """Scores of (answered, right) pairs. A share of nothing is 0."""
    counts = {(said, right): 0 for said in (True, False) for right in (True, False)}
    for said, right in pairs:
        counts[said, right] += 1
    items = sum(counts.values())
    both, said_yes = counts[True, True], counts[True, True] + counts[True, False]
    are_yes = both + counts[False, True]
    precision, recall = _share(both, said_yes), _share(both, are_yes)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    correct = both + counts[False, False]
    return BinaryScores(_share(correct, items), precision, recall, f1, _share(said_yes, items), items)


def mme_score(correct: Mapping[str, Sequence[bool]]) -> float:
    """MME's score of a part (Fu et al. 2023), between 0 and 200: accuracy plus accuracy+, both in percent.

    Args:
        correct: for each image, whether each of its two questions was answered right; accuracy+ wants both.
    """
    answers = [one for several in correct.values() for one in several]
    both = sum(all(several) for several in correct.values())
    return 100 * (_share(sum(answers), len(answers)) + _share(both, len(correct)))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
