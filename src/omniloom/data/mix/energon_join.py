"""The index of a join as Energon keeps it, so that Energon reads what was prepared here.

Layout: ``JIDX0001``, the number of data sets as int64, then for each joined row and data set three int64: position of
the shard in the list of the split part (excluded shards count), first byte of the sample's headers, length of its span;
-1 three times where there is no partner. The file is named for the data sets' uuids, excludes and rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from omniloom.data.index.layout import UUID_FILE, meta_path
from omniloom.data.index.splits import read_splits
from omniloom.data.index.tar_rows import TarRows
from omniloom.data.mix.join_index import Column
from omniloom.data.plan.permute import Int64
from omniloom.data.shards.tar_index import tar_index_path

MAGIC = b"JIDX0001"
PIECE_ROWS = 1 << 18


def energon_index_name(columns: Sequence[Column], split_configs: Sequence[str]) -> str | None:
    """Name of the file in Energon's cache folder; ``None`` for data sets that Energon cannot join.

    Energon puts the excludes of a data set in the order of a Python set, which changes from process to process where
    there are two or more; here they are sorted.
    """
    digest = hashlib.sha256()
    for column, split_config in zip(columns, split_configs, strict=True):
        rows = column.rows
        if not isinstance(rows, TarRows) or not meta_path(rows.index.root, UUID_FILE).is_file():
            return None
        excluded = read_splits(rows.index.root, split_config=split_config).exclude
        digest.update(b"\0uuid=" + meta_path(rows.index.root, UUID_FILE).read_bytes() + b"\0excludes=")
        for entry in sorted(one for one in excluded if "/" in one):
            digest.update(entry.encode() + b"\0")
        digest.update(f"\0nonmatch={column.nonmatch}\0".encode())
    return f"join_index_{digest.hexdigest()}.bin"


def write_energon_index(path: Path, columns: Sequence[Column], split_configs: Sequence[str], lines: Int64) -> None:
    """Write the index of a join for Energon.

    Args:
        path: the file; it is complete or absent.
        columns: the data sets, all prepared ones.
        split_configs: name of the split file of each.
        lines: int64 (rows, columns), the joined rows.
    """
    tables = [
        _spans(column.rows, split_config)
        for column, split_config in zip(columns, split_configs, strict=True)
        if isinstance(column.rows, TarRows)
    ]
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(MAGIC + np.int64(len(columns)).tobytes())
        for start in range(0, len(lines), PIECE_ROWS):
            piece = lines[start : start + PIECE_ROWS]
            entries = np.stack([table[piece[:, number]] for number, table in enumerate(tables)], axis=1)
            entries[piece < 0] = -1
            entries.astype("<i8").tofile(file)
    partial.replace(path)


def _spans(rows: TarRows, split_config: str) -> Int64:
    """(shard, start, length) of each row, int64 (rows, 3)."""
    index = rows.index
    names = read_splits(index.root, split_config=split_config).parts[index.split_part]
    places = {name: number for number, name in enumerate(names)}
    pieces = []
    for entry in index.shards:
        offsets = np.fromfile(tar_index_path(entry.path), dtype="<u8").astype(np.int64)
        shard = np.full(entry.samples, places[entry.name])
        pieces.append(np.stack([shard, offsets[:-1], np.diff(offsets)], axis=1))
    return np.concatenate(pieces)
