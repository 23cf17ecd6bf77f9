"""Words found where they stand: the rule of ICDAR's Robust Reading Competition for reading from end to end.

A word is found where its box and one of the model's overlap by more than half, and is right where the texts are equal
but for case and a sign at either end of the right one. Source: the rules of ICDAR 2015, task 4.4, end to end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from omniloom.evaluate.scores.said_values import Box, overlap

Words = Sequence[tuple[Box, str]]
_LEAST_SHARE = 0.5
_SIGNS = "!?.:,*\"()·[]/'"
_UNREADABLE = "###"
_QUOTED = re.compile(r'^\s*"(.*)"\s*$')


def spotting(said: Words, right: Words) -> float:
    """The harmonic mean of the shares of words that were found and of those said that are right.

    Args:
        said: of the model; boxes without an area do not count.
        right: those that stand there; ``###`` stands for an unreadable one, which nobody has to find.
    """
    said = [(box, _text(text)) for box, text in said if box[0] < box[2] and box[1] < box[3]]
    right = [(box, _text(text)) for box, text in right]
    if not said or not right:
        return 0.0
    unreadable = [box for box, text in right if text == _UNREADABLE]
    wanted = [word for word in right if word[1] != _UNREADABLE]
    counted = [word for word in said if not any(_inside(word[0], box) > _LEAST_SHARE for box in unreadable)]
    taken: set[int] = set()
    correct = 0
    for box, text in wanted:
        for number, (found, read) in enumerate(counted):
            if number not in taken and overlap(box, found) > _LEAST_SHARE:
                taken.add(number)
                correct += _same(text.upper(), read.upper())
                break
    return 2 * correct / (len(wanted) + len(counted)) if correct else 0.0


def _text(text: str) -> str:
    text = text.replace("\r", "")
    quoted = _QUOTED.match(text)
    return quoted[1].replace("\\\\", "\\").replace('\\"', '"') if quoted else text


def _same(right: str, read: str) -> bool:
    first, last = bool(right) and right[0] in _SIGNS, bool(right) and right[-1] in _SIGNS
    accepted = {right}
    accepted |= {right[1:]} if first else set()
    accepted |= {right[:-1]} if last else set()
    accepted |= {right[1:-1]} if first and last else set()
    return read in accepted


def _inside(box: Box, area: Box) -> float:
    """The share of a box that lies in an area."""
    width = min(box[2], area[2]) - max(box[0], area[0])
    height = min(box[3], area[3]) - max(box[1], area[1])
    return max(0, width) * max(0, height) / ((box[2] - box[0]) * (box[3] - box[1]))
