"""The index of a join: which row of each data set goes with which, found by sorting keys, kept in a mapped file.

Keys are digests of 128 bits. They are dealt to buckets by their first bits, so that memory holds one bucket of each
data set at a time however many rows there are; within a bucket the secondary's keys are sorted and the primary's are
looked up. The result is an array of int64, a line for each joined row in the order of the primary and a column for each
data set, -1 where there is no partner. It lies beside the metadataset, in the folder that Energon uses for its own, or
under the user's cache.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from omniloom.data.index.layout import INFO_JSON, UUID_FILE, meta_path
from omniloom.data.index.tar_rows import TarRows
from omniloom.data.mix.row_keys import KeyPiece, key_at, key_pieces
from omniloom.data.mix.tree import Nonmatch
from omniloom.data.plan.permute import Int64
from omniloom.data.shards.archive_file import mark_at
from omniloom.data.shards.rows import Rows
from omniloom.errors import DatasetError, StorageError

logger = logging.getLogger("omniloom")

FORMAT = 1
BUCKET_ROWS = 1_000_000
"""Rows of a data set that are sorted at a time: 24 bytes each, and as much again for sorting."""

CACHE_VARIABLE = "OMNILOOM_CACHE"
_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("row", "<i8")])
_SHOWN = 3


@dataclass(frozen=True)
class Column:
    """One data set of a join.

    Attributes:
        rows: its rows.
        nonmatch: what becomes of a row of the primary that has no partner in it.
        where: what to call it in messages.
    """

    rows: Rows
    nonmatch: Nonmatch
    where: str


def join_index_path(columns: Sequence[Column], *, cache_folder: str | None) -> str:
    """The file that holds the index of a join; built if it is not there.

    Args:
        columns: the data sets, the primary first.
        cache_folder: where to keep it, in a folder of omniloom's own: Energon removes files that it does not know.
            ``None``, or a place that cannot be written: the user's cache.

    Raises:
        DatasetError: a row has no partner where it has to have one, or a key comes twice.
        StorageError: there is nowhere to keep it.
    """
    name = f"omniloom_join_{_fingerprint(columns)}.npy"
    own = None if cache_folder is None else os.path.join(cache_folder, "omniloom")  # noqa: PTH118 - may be a URL
    folders = [folder for folder in (own, _user_cache()) if folder and "://" not in folder]
    for folder in folders:
        path = Path(folder) / name
        if path.is_file():
            return str(path)
    for folder in folders:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=".omniloom_join_") as work:
                partial = build_join_index(columns, Path(work))
                partial.replace(Path(folder) / name)
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            logger.warning("%s: a join's index cannot be kept here (%s)", folder, error.strerror or error)
            continue
        return str(Path(folder) / name)
    raise StorageError(
        f"no place for the index of a join: tried {', '.join(folders)}. Set {CACHE_VARIABLE} to a folder."
    )


def build_join_index(columns: Sequence[Column], work: Path, *, bucket_rows: int = BUCKET_ROWS) -> Path:
    """Build the index of a join.

    Args:
        columns: the data sets, the primary first.
        work: folder for the file and for what is needed meanwhile; as much as 24 bytes a row.
        bucket_rows: rows of a data set that are held in memory at a time, about.

    Returns:
        The finished file in ``work``.
    """
    primary = columns[0]
    total = len(primary.rows)
    buckets = max(1, -(-max(len(column.rows) for column in columns) // bucket_rows))
    stores = [_Buckets(work, f"column{number}", buckets) for number in range(len(columns))]
    for column, store in zip(columns, stores, strict=True):
        for piece in key_pieces(column.rows):
            store.add(piece)
    # A line for each row of the primary: -1 where a secondary has no partner, -2 where the row itself is left out.
    lines = _new_array(work / "lines.npy", (total, len(columns)))
    lines[:, 0] = -2
    lines[:, 1:] = -1
    for bucket in range(buckets):
        entries = stores[0].read(bucket)
        rows = entries["row"]
        lines[rows, 0] = rows
        for number in range(1, len(columns)):
            lines[rows, number] = _partners(entries, stores[number].read(bucket), columns[number])
    kept = lines[:, 0] >= 0
    for number, column in enumerate(columns[1:], 1):
        if column.nonmatch == "error":
            _refuse_missing(primary, column, np.flatnonzero(kept & (lines[:, number] < 0)))
        if column.nonmatch == "skip":
            kept &= lines[:, number] >= 0
    path = work / "index.npy"
    joined = _new_array(path, (int(kept.sum()), len(columns)))
    _copy_kept(lines, kept, joined)
    joined.flush()
    logger.info("joined %d of %d rows of %s", len(joined), total, primary.where)
    return path


def _new_array(path: Path, shape: tuple[int, int]) -> np.memmap[Any, np.dtype[np.int64]]:
    """An array of int64 that lies in a file."""
    made: np.memmap[Any, np.dtype[np.int64]] = np.lib.format.open_memmap(  # type: ignore[no-untyped-call]
        path, mode="w+", dtype=np.int64, shape=shape
    )
    return made


class _Buckets:
    """Keys of one data set, dealt to files by their first bits; in memory where one bucket is enough."""

    def __init__(self, work: Path, name: str, count: int) -> None:
        self._count = count
        self._held: list[np.ndarray[Any, Any]] = []
        self._paths = [work / f"{name}.{number}" for number in range(count)]

    def add(self, piece: KeyPiece) -> None:
        entries = np.empty(len(piece.rows), dtype=_ENTRY)
        entries["high"], entries["low"], entries["row"] = piece
        if self._count == 1:
            self._held.append(entries)
            return
        numbers = (piece.high >> np.uint64(32)) * np.uint64(self._count) >> np.uint64(32)
        for number in np.unique(numbers):
            with self._paths[int(number)].open("ab") as file:
                entries[numbers == number].tofile(file)

    def read(self, number: int) -> np.ndarray[Any, Any]:
        if self._count == 1:
            return np.concatenate(self._held) if self._held else np.empty(0, dtype=_ENTRY)
        path = self._paths[number]
        return np.fromfile(path, dtype=_ENTRY) if path.exists() else np.empty(0, dtype=_ENTRY)


def _partners(primary: np.ndarray[Any, Any], secondary: np.ndarray[Any, Any], column: Column) -> Int64:
    """The row of a secondary for each entry of a primary; -1 where there is none."""
    secondary = secondary[np.lexsort((secondary["low"], secondary["high"]))]
    high, low, rows = secondary["high"].copy(), secondary["low"], secondary["row"]
    twice = np.flatnonzero((high[1:] == high[:-1]) & (low[1:] == low[:-1]))
    if twice.size:
        examples = [key_at(column.rows, int(rows[number])) for number in twice[:_SHOWN]]
        raise DatasetError(
            f"{column.where}: {len(twice):,} keys come more than once, so that it cannot be joined: "
            f"{', '.join(map(repr, examples))}. Exclude the second ones in its split file."
        )
    found = np.full(len(primary), -1, dtype=np.int64)
    open_ones = np.arange(len(primary))
    places = np.searchsorted(high, primary["high"])
    while open_ones.size:  # a second turn only where two keys have the same first half
        at = places[open_ones]
        inside = at < len(high)
        open_ones, at = open_ones[inside], at[inside]
        same = high[at] == primary["high"][open_ones]
        open_ones, at = open_ones[same], at[same]
        hit = low[at] == primary["low"][open_ones]
        found[open_ones[hit]] = rows[at[hit]]
        open_ones = open_ones[~hit]
        places[open_ones] += 1
    return found


def _copy_kept(lines: Int64, kept: np.ndarray[Any, Any], joined: Int64, piece_rows: int = 1 << 20) -> None:
    done = 0
    for start in range(0, len(lines), piece_rows):
        some = lines[start : start + piece_rows][kept[start : start + piece_rows]]
        joined[done : done + len(some)] = some
        done += len(some)


def _refuse_missing(primary: Column, column: Column, missing: Int64) -> None:
    if not missing.size:
        return
    examples = ", ".join(repr(key_at(primary.rows, int(row))) for row in missing[:_SHOWN])
    raise DatasetError(
        f"{column.where}: no sample for {missing.size:,} of {len(primary.rows):,} keys of {primary.where}, such as "
        f"{examples}. Set its `nonmatch` to 'skip' to leave such rows out, or to 'none' to join them without it."
    )


def _fingerprint(columns: Sequence[Column]) -> str:
    """What the index hangs on: the data sets as they were indexed, their splits and excludes, and the rules."""
    told = [FORMAT, [[_identity(column.rows), column.nonmatch] for column in columns]]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def _identity(rows: Rows) -> Any:
    if not isinstance(rows, TarRows):
        files = getattr(rows, "files", ())
        return [repr(rows), len(rows), [[str(file.path), *_stamp(file.path)] for file in files]]
    index = rows.index
    uuid = meta_path(index.root, UUID_FILE)
    mark = uuid.read_text() if uuid.is_file() else _stamp(meta_path(index.root, INFO_JSON))
    shards = [[entry.name, entry.samples, sorted(entry.excluded_keys)] for entry in index.shards]
    return [index.root, mark, shards]


def _stamp(path: str | Path) -> list[int | str]:
    try:
        return list(mark_at(str(path)))
    except OSError:
        return []


def _user_cache() -> str:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return os.environ.get(CACHE_VARIABLE) or str(Path(home) / "omniloom" / "joins")
