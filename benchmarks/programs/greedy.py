"""What both sides of the packing benchmark are given as user code: lengths, packs, groups."""

from __future__ import annotations

from typing import Any

CAPACITY = 4_096
GROUP_WIDTH = 64


def length_of(sample: Any) -> int:
    """Bytes stand for tokens: the records are about 400 long."""
    return len(sample.text)


def greedy_packs(samples: list[Any]) -> list[list[Any]]:
    """First fit of the samples by falling length, as task encoders of Energon's users have it."""
    packs: list[list[Any]] = []
    room: list[int] = []
    for sample in sorted(samples, key=length_of, reverse=True):
        length = length_of(sample)
        for number, left in enumerate(room):
            if length <= left:
                packs[number].append(sample)
                room[number] -= length
                break
        else:
            packs.append([sample])
            room.append(CAPACITY - length)
    return packs


def group_of(sample: Any) -> int:
    """Lengths of one group differ by less than 64."""
    return length_of(sample) // GROUP_WIDTH
