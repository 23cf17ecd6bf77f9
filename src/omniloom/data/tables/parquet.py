"""Parquet files as rows in any order: a row group is the shard, decoded once into a spool."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from omniloom.data.shards.archive_file import mark_at
from omniloom.data.shards.pool import OPEN_FILES, Pool
from omniloom.data.shards.rows import RowFile
from omniloom.data.tables.columns import ColumnKind, column_kinds, import_pyarrow
from omniloom.data.tables.spool import process_spool
from omniloom.data.tables.table_rows import TableRows, check_rows, open_table_rows
from omniloom.errors import ShardError
from omniloom.storage.object_file import ObjectFile
from omniloom.storage.urls import is_url, name_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

BATCH_ROWS = 32
BUFFER_BYTES = 1 << 20
UNKNOWN_GROUP_ROWS = 1_024
_TABLES = Pool("table", OPEN_FILES)


class ParquetTable:
    """One Parquet file.

    Args:
        file: where it is and how many rows it has.
        columns: the columns that are read.
    """

    def __init__(self, file: RowFile, columns: tuple[str, ...]) -> None:
        self.file = file
        self._columns = columns
        self._metadata: Any = None
        self._stamp = 0, 0
        self._ends: list[int] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetTable, (self.file, self._columns)

    def release(self, what: str) -> None:
        """Forget the footer; the next question reads it again (see `Pool`)."""
        self._metadata = None

    def row(self, row: int) -> dict[str, Any]:
        """Values of a row by column. Raises ShardError or StorageError."""
        group, group_row = self._group_of(row)
        name = self.file.path, self._stamp, group, self._columns
        values: dict[str, Any] = process_spool().row(name, group_row, lambda: self._group(group))
        return values

    def bring(self, row: int) -> None:
        """Decode the row group of a row, so that it is here when the row is read."""
        group, _ = self._group_of(row)
        name = self.file.path, self._stamp, group, self._columns
        process_spool().bring(name, lambda: self._group(group))

    def block_of(self, row: int) -> int:
        """A number that rows of one row group share; neighbours where the footer is not known yet."""
        return bisect_right(self._ends, row) if self._metadata is not None else -1 - row // UNKNOWN_GROUP_ROWS

    def byte_range(self, row: int) -> tuple[int, int] | None:
        """First byte of the row group of a row and the byte after its last."""
        group = self._footer().row_group(self._group_of(row)[0])
        chunks = [group.column(number) for number in range(group.num_columns)]
        first = min(chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks)
        return first, first + sum(chunk.total_compressed_size for chunk in chunks)

    def _footer(self) -> Any:
        """What the file says of its row groups. Raises ShardError when it has another number of rows than it had."""
        metadata = self._metadata
        if metadata is None:
            with open_parquet(self.file.path) as opened:
                metadata = opened.metadata
            check_rows(self.file, metadata.num_rows)
            mark = mark_at(self.file.path)
            self._stamp = mark.size_bytes, mark.mtime_ns
            self._ends = list(accumulate(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)))
            self._metadata = metadata
            _TABLES.keep(self, 1)
        return metadata

    def _group_of(self, row: int) -> tuple[int, int]:
        """Number of the row group of a row, and the row in it."""
        self._footer()
        group = bisect_right(self._ends, row)
        return group, row - (self._ends[group - 1] if group else 0)

    def _group(self, group: int) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        pa = import_pyarrow(self.file.path)
        table = open_parquet(self.file.path)
        schema = pa.schema([field for field in table.schema_arrow if field.name in self._columns])
        return schema, self._batches(table, group, schema)

    def _batches(self, table: pq.ParquetFile, group: int, schema: pa.Schema) -> Iterable[pa.RecordBatch]:
        pa = import_pyarrow(self.file.path)
        try:
            with table:
                yield from table.iter_batches(BATCH_ROWS, row_groups=[group], columns=schema.names, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise ShardError(
                f"{self.file.path}: row group {group} cannot be decoded: {error}. Fetch the file again.",
                shard=self.file.name,
                reason="bad-parquet",
            ) from error


def open_parquet(path: str) -> pq.ParquetFile:
    """Open a Parquet file; reads its footer.

    Raises:
        ConfigError: pyarrow is not installed.
        ShardError: no Parquet file, or a damaged one.
    """
    pa = import_pyarrow(path)
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

    try:
        # Not buffered ahead: a column of images would be read whole at once.
        if not is_url(path):
            return pq.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False)
        # Over a network the pieces of columns are fetched in as few long ranges as possible.
        return pq.ParquetFile(pa.PythonFile(ObjectFile(path), "r"), pre_buffer=True)
    except (pa.ArrowException, OSError) as error:
        raise ShardError(
            f"{path}: cannot be opened as Parquet: {error}. Fetch the file again, or take it out.",
            shard=name_of(path),
            reason="bad-parquet",
        ) from error


def open_parquet_rows(files: Sequence[RowFile], *, root: str, wanted: Container[str] | None = None) -> TableRows:
    """The rows of Parquet files, whose footers are read for their counts and columns.

    Args:
        files: the files; their own count of rows is not looked at.
        root: folder of the data set.
        wanted: columns that are read; ``None``: all.

    Raises:
        ShardError: a file is damaged, or has other columns than the first one.
        ConfigError: pyarrow is not installed.
    """

    def look(path: str) -> tuple[dict[str, ColumnKind], int]:
        with open_parquet(path) as table:
            return column_kinds(table.schema_arrow), table.metadata.num_rows

    return open_table_rows(files, look=look, table=ParquetTable, root=root, wanted=wanted)
