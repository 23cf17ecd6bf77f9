"""A key database whose bytes are damaged is a storage error that names the file, whatever sqlite makes of it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from omniloom.data.index.database import find_all
from omniloom.data.index.prepare import prepare_dataset
from omniloom.errors import StorageError
from tests.contract.corruption import archive


def _database(root: Path) -> Path:
    (root / "s.tar").write_bytes(archive([("sample", {"txt": b"text"})]))
    prepare_dataset(root, num_workers=1)
    return root / ".nv-meta/index.sqlite"


def test_a_schema_that_is_no_text(tmp_path: Path) -> None:
    database = _database(tmp_path)
    data = bytearray(database.read_bytes())
    data[data.index(b"sample_key TEXT") + 3] = 0xEC  # no UTF-8
    database.write_bytes(data)
    with pytest.raises(StorageError, match=r"index.sqlite: cannot be read: .*Make it again"):
        find_all(tmp_path, "sample")


@pytest.mark.parametrize("column", ["sample_index", "byte_offset", "byte_size", "tar_file_id"])
def test_places_that_are_no_numbers(column: str, tmp_path: Path) -> None:
    database = _database(tmp_path)
    with sqlite3.connect(database) as db:
        db.execute(f"UPDATE samples SET {column} = 'text'")
    with pytest.raises(StorageError, match="holds places that are no numbers"):
        find_all(tmp_path, "sample")
