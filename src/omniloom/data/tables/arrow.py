"""Arrow files as rows, as Hugging Face `datasets` saves them: mapped, not read."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

from omniloom.data.shards.pool import OPEN_FILES, Pool
from omniloom.data.shards.rows import RowFile
from omniloom.data.tables.columns import BatchTable, ColumnKind, column_kinds, import_pyarrow
from omniloom.data.tables.table_rows import TableRows, check_rows, open_table_rows
from omniloom.errors import ShardError
from omniloom.storage.node_copy import kept_copy
from omniloom.storage.urls import name_of

if TYPE_CHECKING:
    import pyarrow as pa

_FILE_MAGIC = b"ARROW1"
_TABLES = Pool("table", OPEN_FILES)


class ArrowTable:
    """One Arrow file, mapped when it is asked.

    Args:
        file: where it is and how many rows it has.
        columns: the columns that are read.
    """

    def __init__(self, file: RowFile, columns: tuple[str, ...]) -> None:
        self.file = file
        self._columns = columns
        self._opened: BatchTable | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowTable, (self.file, self._columns)

    def release(self, what: str) -> None:
        """Let go of the map; the next question makes it again (see `Pool`)."""
        self._opened = None

    def row(self, row: int) -> dict[str, Any]:
        """Values of a row by column. Raises ShardError."""
        opened = self._opened
        if opened is None:
            opened = BatchTable([batch.select(list(self._columns)) for batch in map_arrow(self.file.path)[1]])
            check_rows(self.file, len(opened))
            self._opened = opened
            _TABLES.keep(self, 1)
        return opened.row(row)

    def byte_range(self, row: int) -> tuple[int, int] | None:
        """Nothing: values of a row lie apart in the file."""
        return None


def map_arrow(path: str) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Schema and record batches of an Arrow file, of the stream or the file form, mapped and not read.

    Raises:
        ConfigError: pyarrow is not installed.
        ShardError: no Arrow file, or a damaged one.
    """
    pa = import_pyarrow(path)
    try:
        source = pa.memory_map(str(kept_copy(path)))
        if source.read(len(_FILE_MAGIC)) == _FILE_MAGIC:
            reader = pa.ipc.open_file(source)
            return reader.schema, [reader.get_batch(number) for number in range(reader.num_record_batches)]
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        return stream.schema, list(stream)
    except (pa.ArrowException, OSError) as error:
        raise ShardError(
            f"{path}: cannot be opened as Arrow: {error}. Save the data set again, or take the file out.",
            shard=name_of(path),
            reason="bad-arrow",
        ) from error


def open_arrow_rows(files: Sequence[RowFile], *, root: str, wanted: Container[str] | None = None) -> TableRows:
    """The rows of Arrow files, which are mapped once for their counts and columns.

    Args:
        files: the files; their own count of rows is not looked at.
        root: folder of the data set.
        wanted: columns that are read; ``None``: all.

    Raises:
        ShardError: a file is damaged, or has other columns than the first one.
        ConfigError: pyarrow is not installed.
    """

    def look(path: str) -> tuple[dict[str, ColumnKind], int]:
        schema, batches = map_arrow(path)
        return column_kinds(schema), sum(batch.num_rows for batch in batches)

    return open_table_rows(files, look=look, table=ArrowTable, root=root, wanted=wanted)
