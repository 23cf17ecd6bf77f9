"""A key database whose bytes are damaged is a storage error that names the file, whatever sqlite makes of it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from PIL import Image

from omniloom.data.index.database import find_all
from omniloom.data.index.media_filter import MediaFilterConfig
from omniloom.data.index.media_prepare import add_media_metadata
from omniloom.data.index.media_store import MediaMetadataTable
from omniloom.data.index.prepare import prepare_dataset
from omniloom.data.side.key_index import KeyIndex
from omniloom.errors import StorageError
from tests.contract.corruption import archive
from tests.unit.image_files import encoded


def _database(root: Path) -> Path:
    (root / "s.tar").write_bytes(archive([("sample", {"txt": b"text", "jpg": encoded(Image.new("RGB", (8, 8)))})]))
    prepare_dataset(root, num_workers=1)
    return root / ".nv-meta/index.sqlite"


def _damaged(root: Path, table: bytes) -> Path:
    """A database of whose schema a byte within a table is no UTF-8."""
    database = _database(root)
    add_media_metadata(root, media_filter=MediaFilterConfig.parse(None, False, True), num_workers=1)
    data = bytearray(database.read_bytes())
    data[data.index(table) + 3] = 0xEC
    database.write_bytes(data)
    return database


def test_a_schema_that_is_no_text(tmp_path: Path) -> None:
    _damaged(tmp_path, b"sample_key TEXT")
    with pytest.raises(StorageError, match=r"index.sqlite: cannot be read: .*Make it again"):
        find_all(tmp_path, "sample")
    with pytest.raises(StorageError, match=r"index.sqlite: cannot be read: .*Make it again"):
        KeyIndex(str(tmp_path)).places("sample")


def test_a_schema_of_media_metadata_that_is_no_text(tmp_path: Path) -> None:
    _damaged(tmp_path, b"entry_key TEXT")
    with pytest.raises(StorageError, match=r"index.sqlite: media metadata cannot be read: .*Make them again"):
        MediaMetadataTable(str(tmp_path)).get_many(["a.jpg"])


@pytest.mark.parametrize("column", ["sample_index", "byte_offset", "byte_size", "tar_file_id"])
def test_places_that_are_no_numbers(column: str, tmp_path: Path) -> None:
    database = _database(tmp_path)
    with sqlite3.connect(database) as db:
        db.execute(f"UPDATE samples SET {column} = 'text'")
    with pytest.raises(StorageError, match="holds places that are no numbers"):
        find_all(tmp_path, "sample")
