"""`TableRows`: the rows of table files of one form, laid end to end."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Protocol

from omniloom.data.sample import RawSample
from omniloom.data.shards.rows import FileRows, RowFile
from omniloom.data.tables.columns import ColumnKind, row_parts
from omniloom.errors import DatasetError, ShardError, SkipSample
from omniloom.storage.inside_store import inside_folder
from omniloom.storage.urls import is_url

KEY_COLUMN = "__key__"
"""A column of this name holds the keys of the samples, as in tables that were made of WebDatasets."""

_RESERVED = frozenset(("__shard__", "__restore_key__", "__subflavors__", "__sources__"))


class Table(Protocol):
    """One table file, opened when it is asked; picklable while closed."""

    def row(self, row: int) -> dict[str, Any]:
        """Values of a row by column."""

    def byte_range(self, row: int) -> tuple[int, int] | None:
        """First byte of what has to be read for a row and the byte after its last; ``None`` where it lies apart."""


class TableRows(FileRows):
    """The rows of table files, laid end to end.

    Args:
        files: the files.
        tables: each file as a table.
        kinds: what becomes of each column that is read.
        names: all columns that there are.
        root: folder of the data set; files that rows name are read below it.
    """

    def __init__(
        self,
        files: Sequence[RowFile],
        tables: Sequence[Table],
        *,
        kinds: Mapping[str, ColumnKind],
        names: Sequence[str],
        root: str,
    ) -> None:
        super().__init__(files)
        self._read_kinds = dict(kinds)
        self.kinds = {name: kind for name, kind in kinds.items() if name != KEY_COLUMN}
        self.names = tuple(names)
        self._tables = list(tables)
        self._inside = inside_folder(root)

    def read(self, row: int) -> RawSample:
        """The parts of a row. Raises SkipSample, ShardError or StorageError."""
        number, file_row = self.find_included(row)
        parts = row_parts(self._tables[number].row(file_row), self._read_kinds, self._inside.read)
        key = parts.pop(KEY_COLUMN, b"").decode() or self.key_of(number, file_row)
        return RawSample(key, self.files[number].name, parts)

    brought_at_a_time = 4  # each may take a hundred megabytes of memory meanwhile

    @property
    def is_far(self) -> bool:
        """Whether its files lie in a store, and are not copied here."""
        return self.brings and is_url(self.files[0].path)

    @property
    def brings(self) -> bool:
        """Whether `bring` does anything."""
        return hasattr(self._tables[0], "bring")

    def bring(self, row: int) -> None:
        """Fetch and decode what a row lies in."""
        number, file_row = self.find(row)
        self._tables[number].bring(file_row)  # type: ignore[attr-defined]

    def opened_by(self, row: int) -> tuple[int, int]:
        """File and block of a row."""
        number, file_row = self.find(row)
        return number, self._tables[number].block_of(file_row)  # type: ignore[attr-defined]

    def knows_places(self, row: int) -> bool:
        """There is nothing to be known: blocks are brought as a whole."""
        return True

    def places(self, row: int) -> tuple[tuple[str, int, int], ...]:
        """None: see `bring`."""
        return ()

    def make_ready(self, row: int) -> None:
        """Nothing is to be done before."""

    def origin(self, row: int) -> tuple[str, tuple[int, int] | None]:
        """File of a row, and the bytes that have to be read for it; never raises."""
        number, file_row = self.find(row)
        try:
            return self.files[number].name, self._tables[number].byte_range(file_row)
        except Exception:
            return self.files[number].name, None

    def parts_of_first_row(self) -> frozenset[str]:
        """Names of the parts of the first row; nothing where it cannot be read."""
        try:
            return frozenset(self.read(0).parts)
        except (DatasetError, SkipSample, OSError):
            return frozenset()


def open_table_rows(
    files: Sequence[RowFile],
    *,
    look: Callable[[str], tuple[dict[str, ColumnKind], int]],
    table: Callable[[RowFile, tuple[str, ...]], Table],
    root: str,
    wanted: Container[str] | None = None,
) -> TableRows:
    """The rows of table files, each looked at once.

    Args:
        files: the files; their own count of rows is not looked at.
        look: columns and count of rows of a file.
        table: a file as a table of some columns.
        root: folder of the data set.
        wanted: columns that are read; ``None``: all.

    Raises:
        ShardError: a file is damaged, or has other columns than the first one.
    """
    counted: list[RowFile] = []
    kinds: dict[str, ColumnKind] = {}
    for file in files:
        found, rows = look(file.path)
        if counted:
            check_columns(file, found, counted[0], kinds)
        kinds = found
        counted.append(file._replace(rows=rows))
    read = chosen(kinds, wanted)
    return TableRows(counted, [table(file, tuple(read)) for file in counted], kinds=read, names=list(kinds), root=root)


def check_columns(file: RowFile, kinds: Mapping[str, ColumnKind], first: RowFile, known: Mapping[str, str]) -> None:
    """See that a file has the columns of the first one.

    Raises:
        ShardError: ``other-columns``.
    """
    differing = sorted(name for name in kinds.keys() | known.keys() if kinds.get(name) != known.get(name))
    if differing:
        name = differing[0]
        raise ShardError(
            f"{file.path}: column {name!r} is {kinds.get(name, 'not there')} here and {known.get(name, 'not there')} "
            f"in {first.path}. Keep files of one form in a folder.",
            shard=file.name,
            reason="other-columns",
        )


def check_rows(file: RowFile, rows: int) -> None:
    """See that a file has as many rows as when the data set was opened.

    Raises:
        ShardError: ``index-stale``.
    """
    if rows != file.rows:
        raise ShardError(
            f"{file.path}: has {rows:,} rows now and had {file.rows:,} when the data set was opened. Make the loader "
            "again.",
            shard=file.name,
            reason="index-stale",
        )


def chosen(kinds: Mapping[str, ColumnKind], wanted: Container[str] | None) -> dict[str, ColumnKind]:
    """The columns that are read; keys always, where they are texts, and nothing that has the name of a base field."""
    read = {name: kind for name, kind in kinds.items() if wanted is None or name in wanted}
    if kinds.get(KEY_COLUMN) == "text":
        read[KEY_COLUMN] = "text"
    else:
        read.pop(KEY_COLUMN, None)
    return {name: kind for name, kind in read.items() if name not in _RESERVED}
