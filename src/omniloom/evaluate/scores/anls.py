"""ANLS: average normalised Levenshtein similarity (Biten et al. 2019), for DocVQA, InfoVQA and ST-VQA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from omniloom.errors import ConfigError

Boundary = Literal["paper", "rrc"]

THRESHOLD = 0.5


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


def levenshtein(one: str, other: str) -> int:
    """Insertions, deletions and replacements that make one text the other."""
    if len(one) < len(other):
        one, other = other, one
    row = list(range(len(other) + 1))
    for index, character in enumerate(one, 1):
        before, row[0] = row[0], index
        for place, match in enumerate(other, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (character != match)),
            )
    return row[-1]
