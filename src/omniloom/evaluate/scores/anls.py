"""ANLS: average normalised Levenshtein similarity (Biten et al. 2019), for DocVQA, InfoVQA and ST-VQA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from omniloom.errors import ConfigError

Boundary = Literal["paper", "rrc"]

THRESHOLD = 0.5
_SHORT = 64
"""Characters from which on arrays are faster than a loop."""


def anls(prediction: str, answers: Sequence[str], *, boundary: Boundary = "rrc") -> float:
    """The similarity to the nearest answer, between 0 and 1; 0 where less than half is alike.

    Args:
        prediction: the model's answer.
        answers: those that are right.
        boundary: what a similarity of exactly one half is. ``paper``: nothing (distance < 0.5 is asked for, as in the
            paper and PyPI's anls). ``rrc``: one half, as in the script of the Robust Reading Competition, which also
            divides by lengths before white space is folded, and which DocVQA's leaderboard and most evaluation
            harnesses follow.

    Raises:
        ConfigError: no answers.
    """
    if not answers:
        raise ConfigError("anls: no answers to compare with; at least one expected")
    return max(_similarity(prediction, answer, boundary) for answer in answers)


def _similarity(prediction: str, answer: str, boundary: Boundary) -> float:
    said, right = " ".join(prediction.lower().split()), " ".join(answer.lower().split())
    distance = levenshtein(said, right)
    longest = max(len(prediction), len(answer)) if boundary == "rrc" else max(len(said), len(right))
    share = distance / longest if longest else 0.0
    if boundary == "rrc":
        return 1 - share if 1 - share >= THRESHOLD else 0.0
    return 1 - share if share < THRESHOLD else 0.0


def levenshtein(one: Sequence[str], other: Sequence[str]) -> int:
    """Insertions, deletions and replacements that make one text, or one list of texts, the other."""
    if len(one) < len(other):
        one, other = other, one
    if len(other) > _SHORT:
        return _levenshtein_of_long(one, other)
    row = list(range(len(other) + 1))
    for index, character in enumerate(one, 1):
        before, row[0] = row[0], index
        for place, match in enumerate(other, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (character != match)),
            )
    return row[-1]


def _levenshtein_of_long(one: Sequence[str], other: Sequence[str]) -> int:
    numbers: dict[str, int] = {}
    firsts, seconds = ([numbers.setdefault(each, len(numbers)) for each in several] for several in (one, other))
    targets, places = np.array(seconds), np.arange(len(other) + 1)
    row = places
    for index, number in enumerate(firsts, 1):
        least = np.minimum(row[1:] + 1, row[:-1] + (targets != number))
        # What insertions cost is a distance in places: their least is a running minimum without it.
        row = np.minimum.accumulate(np.concatenate([[index], least]) - places) + places
    return int(row[-1])
