"""A file whose every byte has its place before the first tensor is read: what a streamed conversion writes into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from omniloom.weights.megatron_cuts import WHOLE, Cut


class Extent(NamedTuple):
    """Bytes of a file: where they begin and how many they are."""

    offset: int
    size_bytes: int


def _nothing(_checksums: Mapping[str, int]) -> tuple[tuple[int, bytes], ...]:
    return ()


@dataclass(frozen=True)
class FileLayout:
    """A file to be filled.

    Attributes:
        path: within its folder.
        size_bytes: length of the finished file.
        extents: for each key, where its numbers go.
        opening: bytes that are known beforehand, with their offsets.
        closing: gives the bytes, with their offsets, that are known when the CRC-32 of every extent is.
        wants_checksums: whether ``closing`` needs them.
    """

    path: str
    size_bytes: int
    extents: Mapping[str, Extent]
    opening: tuple[tuple[int, bytes], ...] = ()
    closing: Callable[[Mapping[str, int]], tuple[tuple[int, bytes], ...]] = _nothing
    wants_checksums: bool = False


class Slot(NamedTuple):
    """One place for a tensor or a rank's slice of it.

    Attributes:
        file: path of the file within its folder.
        key: of the extent in that file.
        cut: how the tensor is dealt.
        rank: whose slice goes here.
        ranks: number of slices.
    """

    file: str
    key: str
    cut: Cut = WHOLE
    rank: int = 0
    ranks: int = 1


class Job(NamedTuple):
    """A tensor to be read once, and all places where it goes."""

    name: str
    slots: tuple[Slot, ...]
