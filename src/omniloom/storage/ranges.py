"""Many ranges of one object as few long ones: what is near each other is fetched together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from omniloom.storage.store import Range


@dataclass(frozen=True, slots=True)
class LongRange:
    """A range that is fetched at once.

    Attributes:
        start: first byte.
        stop: byte after the last one.
        members: positions of the asked ranges that lie in it.
    """

    start: int
    stop: int
    members: tuple[int, ...]


def merge_ranges(ranges: Sequence[Range], *, gap_bytes: int, longest_bytes: int) -> list[LongRange]:
    """Long ranges that together cover all asked ones, by first byte.

    Args:
        ranges: the asked ranges, in any order; they may overlap.
        gap_bytes: bytes between two ranges that are fetched along rather than asked around.
        longest_bytes: what no merged range grows beyond; a single asked range may be longer.
    """
    merged: list[LongRange] = []
    members: list[int] = []
    first, last = 0, 0
    for position in sorted(range(len(ranges)), key=lambda number: ranges[number]):
        start, stop = ranges[position]
        if members and start <= last + gap_bytes and max(stop, last) - first <= longest_bytes:
            members.append(position)
            last = max(last, stop)
            continue
        if members:
            merged.append(LongRange(first, last, tuple(members)))
        first, last, members = start, stop, [position]
    if members:
        merged.append(LongRange(first, last, tuple(members)))
    return merged


def cut_ranges(ranges: Sequence[Range], pieces: Iterable[tuple[LongRange, bytes]]) -> list[bytes]:
    """The asked ranges, cut out of the bytes of the long ones."""
    found: list[bytes] = [b""] * len(ranges)
    for piece, data in pieces:
        for member in piece.members:
            start, stop = ranges[member]
            whole = start == piece.start and stop == piece.stop
            found[member] = data if whole else data[start - piece.start : stop - piece.start]
    return found
