"""What names a sample and where its bytes lie."""

from __future__ import annotations

from typing import NamedTuple


class SampleKey(NamedTuple):
    """The identity of a drawn sample: same key, same bytes, same augmentation, for ever.

    Attributes:
        dataset: position of the leaf in the mix. A local handle: seeds use the leaf's stable name.
        epoch: how many times the leaf had been dealt whole before this draw (from 0).
        row: row of the leaf, in the order of its split, after subset and excludes.
        part: which sample of the row, where an encoder makes several out of one.
    """

    dataset: int
    epoch: int
    row: int
    part: int = 0


class Span(NamedTuple):
    """Bytes ``[start, stop)`` of an object, named by its URL or path."""

    url: str
    start: int
    stop: int
