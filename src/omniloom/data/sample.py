"""What names a sample and where its bytes lie."""

from __future__ import annotations

from dataclasses import dataclass
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


class PackKey(NamedTuple):
    """The identity of a pack: the samples that it was made of, in their order.

    Attributes:
        samples: their keys.
        part: which pack of them, where a packer makes several.
    """

    samples: tuple[SampleKey, ...]
    part: int = 0


ItemKey = SampleKey | PackKey
"""What a value in the pipeline was made from."""


def first_sample(key: ItemKey) -> SampleKey:
    """The sample by which a value's random numbers are seeded."""
    return key.samples[0] if type(key) is PackKey else key  # type: ignore[return-value]


def samples_of(key: ItemKey) -> tuple[SampleKey, ...]:
    """The samples that leave the run if this value is left out; those of a pack go with its first part."""
    if type(key) is PackKey:
        return key.samples if not key.part else ()
    return (key,)  # type: ignore[return-value]


UNIT_END = SampleKey(-1, -1, -1)
"""Comes where a unit of an evaluation ends: what is collected there is handed on, full or not."""


class RawSample(NamedTuple):
    """What was read for a row, before anything is decoded.

    Attributes:
        name: the sample's key in its shard, such as ``v1.0/0001``.
        shard: the shard, relative to the data set.
        parts: part name (``jpg``) to its bytes.
    """

    name: str
    shard: str
    parts: dict[str, bytes]


@dataclass(slots=True, unsafe_hash=True)
class SourceInfo:
    """Where data of a sample came from.

    Not frozen, only because that would make it four times as slow to make.

    Attributes:
        dataset_path: path or URL of the data set.
        index: row in the data set, or a name where rows have none.
        shard_name: the shard, relative to the data set.
        file_names: the files (parts) that were read.
    """

    dataset_path: str
    index: str | int
    shard_name: str
    file_names: tuple[str, ...]

    def __reduce__(self) -> tuple[object, ...]:
        return SourceInfo, (self.dataset_path, self.index, self.shard_name, self.file_names)


class Span(NamedTuple):
    """Bytes ``[start, stop)`` of an object, named by its URL or path."""

    url: str
    start: int
    stop: int
