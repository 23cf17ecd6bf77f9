"""``.nv-meta/index.sqlite``: where the sample of a key lies. For look-ups by key; training never opens it.

The tables and indexes are Energon's. A data set that has a key in more than one shard gets the older form without the
uniqueness constraint, which Energon's users know from sets of earlier versions.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from operator import sub
from pathlib import Path
from typing import Any, NamedTuple

from omniloom.data.index.duplicates import EXAMPLE_LIMIT, DuplicateKey, DuplicateKeys
from omniloom.data.index.info import read_info
from omniloom.data.index.layout import DATABASE, MAIN_FOLDER, meta_path
from omniloom.data.index.media_tables import copy_media_tables
from omniloom.data.index.sqlite_errors import SQLITE_ERRORS
from omniloom.data.shards.scan import ShardScan
from omniloom.errors import DatasetError, StorageError
from omniloom.storage.files import remove_file

STAGE_SUFFIX = ".stage"
_CACHE_KIB = 32_768
# sqlite keeps a statement as it was written: with Energon's line breaks the schemas are equal as text.
_BREAK = "\n" + 20 * " "
_END = "\n" + 16 * " " + ")"
_SAMPLES = (
    f"CREATE TABLE {{schema}}samples ({_BREAK}tar_file_id INTEGER NOT NULL,{_BREAK}sample_key TEXT NOT NULL{{unique}},"
    f"{_BREAK}sample_index INTEGER NOT NULL,{_BREAK}byte_offset INTEGER,{_BREAK}byte_size INTEGER{_END}"
)
_PARTS = (
    f"CREATE TABLE sample_parts ({_BREAK}tar_file_id INTEGER,{_BREAK}sample_index INTEGER,{_BREAK}part_name TEXT,"
    f"{_BREAK}content_byte_offset INTEGER,{_BREAK}content_byte_size INTEGER{_END}"
)
_KEY_INDEX = "CREATE INDEX idx_samples_sample_key ON samples(sample_key)"
_REPEATED = f"""SELECT sample_key FROM stage.samples GROUP BY sample_key HAVING count(*) > 1
    ORDER BY sample_key LIMIT {EXAMPLE_LIMIT}"""
_INDEXES = (
    "CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index)",
    "CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset)",
    "CREATE INDEX idx_sample_parts_full ON sample_parts"
    "(tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size)",
)


class SampleLocation(NamedTuple):
    """Where a sample lies.

    Attributes:
        key: its key.
        shard: name of its shard.
        row: its number within the shard.
        start: first byte of its headers in the shard.
        size_bytes: length of its span, headers included.
    """

    key: str
    shard: str
    row: int
    start: int
    size_bytes: int


class DatabaseWriter:
    """Builds a database from scans, shard by shard, in bounded memory.

    Samples first go to a side table without an index and then, sorted by key, to their place: so the index of keys
    grows at its end only, however the keys are scattered over the shards.

    Args:
        path: the file; it is made anew. ``path + ".stage"`` is used meanwhile.
        former: the database that will be replaced; its media tables are taken over.
    """

    def __init__(self, path: str | os.PathLike[str], *, former: Path | None = None) -> None:
        self.path = os.fspath(path)
        self._samples = 0
        for old in (self.path, self.path + STAGE_SUFFIX):
            remove_file(old)
        try:
            self._db = sqlite3.connect(Path(self.path).absolute().as_uri(), uri=True, isolation_level=None)
        except sqlite3.Error as error:
            raise _cannot_write(self.path, error) from error
        try:
            self._run(f"PRAGMA cache_size=-{_CACHE_KIB}")
            # The file is built under a temporary name: after a crash it is made again, so nothing guards it.
            self._run("PRAGMA journal_mode=OFF")
            self._run("PRAGMA synchronous=OFF")
            self._run("PRAGMA locking_mode=EXCLUSIVE")
            self._run("ATTACH ? AS stage", (Path(self.path + STAGE_SUFFIX).absolute().as_uri(),))
            if former is not None:
                copy_media_tables(former, self._db)
            self._run("PRAGMA stage.journal_mode=OFF")
            self._run("PRAGMA stage.synchronous=OFF")
            self._run("BEGIN")
            self._run(_SAMPLES.format(schema="stage.", unique=""))
            self._run(_PARTS)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def append(self, tar_file_id: int, scan: ShardScan) -> None:
        """Add the samples and parts of one shard.

        Args:
            tar_file_id: the shard's position in ``shard_counts``.
            scan: what its scan found.

        Raises:
            StorageError: the disk is full, or the database cannot be written.
        """
        offsets = scan.offsets
        self._samples += len(scan.keys)
        samples = zip(scan.keys, range(len(scan.keys)), offsets, map(sub, offsets[1:], offsets), strict=False)
        sizes = map(sub, scan.part_stops, scan.part_starts)
        parts = zip(scan.part_rows, scan.part_names, scan.part_starts, sizes, strict=True)
        self._insert(f"INSERT INTO stage.samples VALUES ({int(tar_file_id)}, ?, ?, ?, ?)", samples, scan.keys)
        self._insert(f"INSERT INTO sample_parts VALUES ({int(tar_file_id)}, ?, ?, ?, ?)", parts, scan.part_names)

    def finish(self) -> DuplicateKeys:
        """Sort the samples by key, make the indexes and close the file.

        Returns:
            The keys that are there more than once. If there are any, the table has the older form without uniqueness.

        Raises:
            StorageError: the disk is full, or the database cannot be written.
        """
        try:
            duplicates = self._place_samples()
            for statement in _INDEXES:
                self._run(statement)
            self._run("COMMIT")
            self._db.close()
        except sqlite3.Error as error:
            raise self._failed(error) from error
        remove_file(self.path + STAGE_SUFFIX)
        return duplicates

    def discard(self) -> None:
        """Close and remove everything."""
        self._db.close()
        for name in (self.path, self.path + STAGE_SUFFIX, self.path + "-journal"):
            remove_file(name)

    def _place_samples(self) -> DuplicateKeys:
        # A constraint that fails would need the journal that is switched off: OR IGNORE counts instead.
        place = "INSERT OR IGNORE INTO main.samples SELECT * FROM stage.samples ORDER BY sample_key, tar_file_id"
        self._run(_SAMPLES.format(schema="main.", unique=" UNIQUE"))
        repeated = self._samples - self._run(place).rowcount
        if not repeated:
            return DuplicateKeys(0, [])
        examples = self._run(_REPEATED).fetchall()
        self._run("DROP TABLE main.samples")
        self._run(_SAMPLES.format(schema="main.", unique=""))
        self._run(place)
        self._run(_KEY_INDEX)
        return DuplicateKeys(repeated, [DuplicateKey(_readable(key), self._places_of(key)) for (key,) in examples])

    def _places_of(self, key: str | bytes) -> list[tuple[int, int]]:
        query = "SELECT tar_file_id, sample_index FROM stage.samples WHERE sample_key = ? ORDER BY 1, 2 LIMIT 10"
        return self._db.execute(query, (key,)).fetchall()

    def _insert(self, statement: str, rows: Iterable[tuple[Any, ...]], texts: list[str]) -> None:
        try:
            if _is_clean(texts):
                self._db.executemany(statement, rows)
            else:
                self._db.executemany(statement, ([_storable(value) for value in row] for row in rows))
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _run(self, statement: str, values: tuple[str, ...] = ()) -> sqlite3.Cursor:
        return self._db.execute(statement, values)

    def _failed(self, error: sqlite3.Error) -> StorageError:
        self.discard()
        return _cannot_write(self.path, error)


def look_up(root: str | os.PathLike[str], key: str) -> SampleLocation:
    """Find a sample by its key.

    Raises:
        DatasetError: no such key, a key that several shards have (the message lists them), or no database.
        StorageError: the database is damaged.
    """
    found = find_all(root, key)
    if not found:
        raise DatasetError(f"{os.fspath(root)}: no sample has the key {key!r}.")
    if len(found) > 1:
        places = " and ".join(f"{place.shard} (row {place.row:,})" for place in found)
        raise DatasetError(
            f"{os.fspath(root)}: the key {key!r} is ambiguous: it is in {places}. Name the shard too, or make the keys "
            "unique with `omniloom prepare --fix-duplicates`."
        )
    return found[0]


def find_all(root: str | os.PathLike[str], key: str) -> list[SampleLocation]:
    """Every sample of that key, in shard order; an empty list when there is none. Raises as `look_up` does."""
    path = meta_path(root, DATABASE)
    if not path.is_file():
        raise DatasetError(
            f"{path}: there is no key database, so no sample can be found by key. Run `omniloom prepare "
            f"{os.fspath(root)}` without --no-sqlite."
        )
    shards = list(read_info(root).shard_counts)
    try:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            rows = db.execute(
                "SELECT tar_file_id, sample_index, byte_offset, byte_size FROM samples WHERE sample_key = ? "
                "ORDER BY tar_file_id, sample_index",
                (_storable(key),),
            ).fetchall()
        finally:
            db.close()
    except SQLITE_ERRORS as error:
        raise StorageError(f"{path}: cannot be read: {error}. Make it again: `omniloom prepare`.") from error
    if not all(type(value) is int and value >= 0 for row in rows for value in row):
        raise StorageError(f"{path}: holds places that are no numbers. Make it again: `omniloom prepare`.")
    if rows and rows[-1][0] >= len(shards):
        raise DatasetError(f"{path}: lists more shards than .info.json. Make both again: `omniloom prepare`.")
    return [SampleLocation(key, shards[number], row, start, size) for number, row, start, size in rows]


def _cannot_write(path: str, error: sqlite3.Error) -> StorageError:
    full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    reason = "the disk is full" if full else str(error)
    advice = "Free some space" if full else "Check the disk and the permissions"
    return StorageError(
        f"cannot write the key database {path}: {reason}. {advice} and run the command again (finished scans are "
        "kept), build it elsewhere with --tmp-path, or leave it out with --no-sqlite: training does not need it."
    )


def _is_clean(texts: list[str]) -> bool:
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _storable(value: Any) -> Any:
    """Names that are not UTF-8 are kept as their bytes; sqlite has no other way to hold them."""
    if isinstance(value, str) and not _is_clean([value]):
        return value.encode("utf-8", "surrogateescape")
    return value


def _readable(key: str | bytes) -> str:
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else key


def has_database(root: str | os.PathLike[str]) -> bool:
    """Whether a data set has a key database."""
    return Path(root, MAIN_FOLDER, DATABASE).is_file()
