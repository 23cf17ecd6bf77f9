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


def levenshtein(one: Sequence[str], other: Sequence[str]) -> int:
    """Insertions, deletions and replacements that make one text, or one list of texts, the other.

    A column of the usual table is a pair of long integers, in which a bit tells that a number is one more, or one less,
    than the number above it; a few sums of these give the next column (Myers 1999, in the form of Hyyro 2003).
    """
    long, short = (one, other) if len(one) >= len(other) else (other, one)
    if not short:
        return len(long)
    places: dict[str, int] = {}
    for index, each in enumerate(long):
        places[each] = places.get(each, 0) | 1 << index
    distance, last = len(long), 1 << (len(long) - 1)
    everything = (last << 1) - 1
    more, less = everything, 0
    for each in short:
        equal = places.get(each, 0)
        across = (((equal & more) + more) ^ more) | equal
        right_more, right_less = less | (everything & ~(across | more)), more & across
        distance += bool(right_more & last) - bool(right_less & last)
        right_more, right_less = (right_more << 1) | 1, right_less << 1
        down = equal | less
        more, less = (right_less | ~(down | right_more)) & everything, right_more & down & everything
    return distance
