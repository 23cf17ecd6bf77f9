"""Parquet tables of benchmarks, as Hugging Face keeps them: rows without images, and an image when it is asked for."""

from __future__ import annotations

from functools import lru_cache
from glob import escape
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError, SampleError
from omniloom.evaluate.task import Cell

_OPEN_TABLES = 4


def parquet_files(path: Path) -> list[Path]:
    """The tables of a file, a folder, or a prefix of names (``data/test`` for ``data/test-00000-of-00002.parquet``).

    Raises:
        ConfigError: a folder has tables of several splits.
    """
    if path.is_file():
        return [path] if path.suffix == ".parquet" else []
    if not path.is_dir():
        return sorted(path.parent.glob(f"{escape(path.name)}-*.parquet")) if path.parent.is_dir() else []
    found = sorted(path.rglob("*.parquet"))
    splits = sorted({file.name.split("-")[0] for file in found if "-of-" in file.name})
    if len(splits) > 1:
        raise ConfigError(
            f"{path}: tables of several splits found: {', '.join(splits)}. Give one, as {path / splits[-1]}."
        )
    return found


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table; images, which are columns of bytes or of ``bytes`` and ``path``, become `Cell`."""
    table = _table(path)
    kinds = {field.name: str(field.type) for field in table.schema_arrow}
    pictures = {name for name, kind in kinds.items() if kind == "binary" or kind.startswith("struct<bytes: binary")}
    texts = [name for name in kinds if name not in pictures]
    rows: list[dict[str, Any]] = table.read(columns=texts).to_pylist()
    if pictures:
        rows = rows or [{} for _ in range(table.metadata.num_rows)]
    for name in sorted(pictures):
        there = _present(table, name, kinds[name])
        for number, row in enumerate(rows):
            row[name] = Cell(path, number, name) if there[number] else None
    return rows


def cell_bytes(cell: Cell) -> bytes:
    """The content of an image in a table. Raises SampleError where there is none."""
    table = _table(cell.path)
    row = cell.row
    for group in range(table.num_row_groups):
        size = table.metadata.row_group(group).num_rows
        if row < size:
            value = _column(cell.path, group, cell.column)[row].as_py()
            content = value.get("bytes") if isinstance(value, dict) else value
            if content:
                return bytes(content)
            break
        row -= size
    raise SampleError(f"{cell}: no image there", reason="no-image")


def _present(table: Any, name: str, kind: str) -> list[bool]:
    """Whether each row has an image, without reading its bytes where the names of images tell."""
    if "path: string" in kind:
        column = table.read(columns=[f"{name}.path"]).column(0)
        if not column.null_count:
            return [True] * len(column)
    values = table.read(columns=[name]).column(0)
    return [bool(value) for value in values.is_valid().to_pylist()]


@lru_cache(maxsize=_OPEN_TABLES)
def _table(path: Path) -> Any:
    try:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError(f"{path}: reading Parquet needs pyarrow. Install omniloom[tables].") from None
    try:
        return parquet.ParquetFile(path)
    except ArrowException as error:
        raise ConfigError(f"{path}: no Parquet: {error}. Fetch it again.") from None


@lru_cache(maxsize=_OPEN_TABLES)
def _column(path: Path, group: int, name: str) -> Any:
    return _table(path).read_row_group(group, columns=[name]).column(0)
