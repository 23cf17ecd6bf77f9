"""The keys of all rows of a data set, in large pieces, for joining."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omniloom.data.index.info import read_info
from omniloom.data.index.layout import DATABASE, MAIN_FOLDER
from omniloom.data.index.place import place_of
from omniloom.data.index.sqlite_errors import SQLITE_ERRORS
from omniloom.data.index.tar_rows import TarRows
from omniloom.data.plan.permute import Int64, UInt64
from omniloom.data.shards.rows import Rows
from omniloom.errors import DatasetError, SkipSample, StorageError

PIECE_ROWS = 65_536


class KeyPiece(NamedTuple):
    """Keys of some rows, as digests of 128 bits: two keys of a trillion are alike with a chance of one in 10^14.

    Attributes:
        high: first half of each digest.
        low: second half.
        rows: their rows.
    """

    high: UInt64
    low: UInt64
    rows: Int64


def key_pieces(rows: Rows) -> Iterator[KeyPiece]:
    """The keys of rows, those that are left out excepted; in any order.

    A prepared data set's keys come from its database; others are read row by row.

    Raises:
        DatasetError: the database is damaged.
    """
    database = _database(rows.index.root) if isinstance(rows, TarRows) else None
    if isinstance(rows, TarRows) and database is not None:
        return _from_database(rows, database)
    return _row_by_row(rows)


def _database(root: str) -> Path | None:
    """The key database of a data set, brought here where it lies in a store; ``None`` where there is none."""
    file = place_of(root).file(f"{MAIN_FOLDER}/{DATABASE}")
    try:
        return Path(file.fetch())
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return None


def key_at(rows: Rows, row: int) -> str:
    """The key of one row, for messages."""
    return rows.read(row).name


def _row_by_row(rows: Rows) -> Iterator[KeyPiece]:
    for start in range(0, len(rows), PIECE_ROWS):
        keys, numbers = [], []
        for row in range(start, min(start + PIECE_ROWS, len(rows))):
            try:
                keys.append(rows.read(row).name)
            except SkipSample:
                continue
            numbers.append(row)
        yield _piece(keys, np.asarray(numbers, dtype=np.int64))


def _from_database(rows: TarRows, path: Path) -> Iterator[KeyPiece]:
    index = rows.index
    ids = {name: number for number, name in enumerate(read_info(index.root).shard_counts)}
    excluded = {ids[entry.name]: entry.excluded_keys for entry in index.shards if entry.excluded_keys}
    first_rows = _first_rows(rows, ids)
    try:
        database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            cursor = database.execute("SELECT tar_file_id, sample_index, sample_key FROM samples")
            while found := cursor.fetchmany(PIECE_ROWS):
                if excluded:
                    found = [one for one in found if _text(one[2]) not in excluded.get(one[0], ())]
                shards, numbers, keys = zip(*found, strict=True) if found else ((), (), ())
                yield from _placed(first_rows, np.asarray(shards, dtype=np.int64), np.asarray(numbers, np.int64), keys)
        finally:
            database.close()
    except SQLITE_ERRORS as error:
        raise DatasetError(
            f"{path}: cannot be read ({error}). Make it again: `omniloom prepare {index.root}`"
        ) from error


def _first_rows(rows: TarRows, ids: dict[str, int]) -> list[Int64]:
    """First row of each shard by its number, -1 where the split has it not; once more for shards listed again."""
    turns: list[Int64] = []
    seen: dict[str, int] = {}
    start = 0
    for entry in rows.index.shards:
        turn = seen[entry.name] = seen.get(entry.name, -1) + 1
        if turn == len(turns):
            turns.append(np.full(len(ids), -1, dtype=np.int64))
        turns[turn][ids[entry.name]] = start
        start += entry.samples
    return turns


def _placed(first_rows: list[Int64], shards: Int64, numbers: Int64, keys: Sequence[str | bytes]) -> Iterator[KeyPiece]:
    piece = _piece(keys, numbers)
    for starts in first_rows:
        first = starts[shards]
        inside = first >= 0
        yield KeyPiece(piece.high[inside], piece.low[inside], first[inside] + numbers[inside])


def _text(key: str | bytes) -> str:
    """A key of the database, which holds those that are not UTF-8 as bytes."""
    return key if isinstance(key, str) else key.decode("utf-8", "surrogateescape")


def _bytes(key: str | bytes) -> bytes:
    return key if isinstance(key, bytes) else key.encode("utf-8", "surrogateescape")


def _piece(keys: Sequence[str | bytes], rows: Int64) -> KeyPiece:
    digests = b"".join([blake2b(_bytes(key), digest_size=16).digest() for key in keys])
    halves = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)
    return KeyPiece(halves[:, 0], halves[:, 1], rows)
