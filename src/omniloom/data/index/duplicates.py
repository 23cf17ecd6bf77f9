"""Keys that more than one shard has, found without a database and in bounded memory.

Within a shard a key is unique, so only shards whose ranges of keys overlap are compared. Their keys are sorted
externally, as 64-bit hashes dealt to buckets that fit into memory; what meets there is then compared as text.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXAMPLE_LIMIT = 20
BUCKET_KEYS = 1 << 20
MAX_BUCKETS = 256
_VERIFIED = 1_000


class DuplicateKey(NamedTuple):
    """A key of several samples, and the (shard number, row) of the first ten of them."""

    key: str
    places: list[tuple[int, int]]


class DuplicateKeys(NamedTuple):
    """How many samples have a key that an earlier sample has, and the first such keys in order."""

    repeated: int
    examples: list[DuplicateKey]


class KeyedShard(NamedTuple):
    """A shard as the comparison sees it.

    Attributes:
        number: its number, for the result.
        samples: how many keys it has.
        key_range: smallest and largest key; ``None`` without samples.
        read_keys: gives its keys, in row order.
    """

    number: int
    samples: int
    key_range: tuple[str, str] | None
    read_keys: Callable[[], list[str]]


def find_duplicates(shards: Sequence[KeyedShard], *, work_folder: str | Path) -> DuplicateKeys:
    """Find the keys that several shards have.

    Args:
        shards: all shards of a data set.
        work_folder: an existing folder on a disk with room for eight bytes per key.

    Returns:
        The duplicates. Beyond a thousand the number counts equal 64-bit hashes, which is the number of equal keys but
        for one set of a hundred million keys in a few thousand.

    Raises:
        OSError: the disk is full.
    """
    suspects = _overlapping(shards)
    if not suspects:
        return DuplicateKeys(0, [])
    repeated, hashes = _repeated_hashes(suspects, work_folder)
    if not repeated:
        return DuplicateKeys(0, [])
    places: dict[str, list[tuple[int, int]]] = {}
    for shard in suspects:
        for row, key in enumerate(shard.read_keys()):
            if hash(key) in hashes:
                places.setdefault(key, []).append((shard.number, row))
    found = {key: where for key, where in places.items() if len(where) > 1}
    if len(hashes) < _VERIFIED:
        repeated = sum(len(where) - 1 for where in found.values())
    return DuplicateKeys(
        repeated, [DuplicateKey(key, sorted(found[key])[:10]) for key in sorted(found)[:EXAMPLE_LIMIT]]
    )


def _overlapping(shards: Sequence[KeyedShard]) -> list[KeyedShard]:
    """The shards whose range of keys meets that of another."""
    ranged = sorted(((shard.key_range, at) for at, shard in enumerate(shards) if shard.key_range is not None))
    meeting: set[int] = set()
    largest, owner = "", -1
    for (first, last), at in ranged:
        if owner >= 0 and first <= largest:
            meeting |= {at, owner}
        if owner < 0 or last > largest:
            largest, owner = last, at
    return [shards[at] for at in sorted(meeting)]


def _repeated_hashes(shards: Sequence[KeyedShard], work_folder: str | Path) -> tuple[int, set[int]]:
    """How many keys repeat an earlier one, by their hashes, and the first thousand such hashes."""
    import numpy as np  # noqa: PLC0415 - most data sets never come here, and numpy is slow to import

    total = sum(shard.samples for shard in shards)
    buckets = min(max(1, -(-total // BUCKET_KEYS)), MAX_BUCKETS)
    borders = np.linspace(-(2.0**63), 2.0**63, buckets + 1)[1:-1].astype(np.int64)
    repeated, hashes = 0, set[int]()
    with tempfile.TemporaryDirectory(dir=work_folder, prefix="keys-") as folder:
        paths = [Path(folder, f"{number:03d}") for number in range(buckets)]
        _deal(shards, borders, paths)
        for path in paths:
            values = np.sort(np.fromfile(path, np.int64))
            again = values[1:][values[1:] == values[:-1]]
            repeated += len(again)
            hashes.update(np.unique(again)[: _VERIFIED - len(hashes)].tolist())
    return repeated, hashes


def _deal(shards: Sequence[KeyedShard], borders: NDArray[np.int64], paths: Sequence[Path]) -> None:
    import numpy as np  # noqa: PLC0415

    files = [path.open("wb") for path in paths]
    try:
        for shard in shards:
            keys = shard.read_keys()
            values = np.sort(np.fromiter(map(hash, keys), np.int64, len(keys)))
            for file, piece in zip(files, np.split(values, np.searchsorted(values, borders)), strict=True):
                file.write(piece.tobytes())
    finally:
        for file in files:
            file.close()
