"""The floor under preparing: read every tar header in two processes, and fill the tables of index.sqlite."""

import mmap
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from meter import arguments, report

TABLES = """
CREATE TABLE samples (tar_file_id INTEGER NOT NULL, sample_key TEXT NOT NULL UNIQUE, sample_index INTEGER NOT NULL,
    byte_offset INTEGER, byte_size INTEGER);
CREATE TABLE sample_parts (tar_file_id INTEGER, sample_index INTEGER, part_name TEXT,
    content_byte_offset INTEGER, content_byte_size INTEGER);
"""
INDEXES = """
CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index);
CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset);
CREATE INDEX idx_sample_parts_full ON sample_parts(
    tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size);
"""


def headers(path: str) -> list[tuple[str, int, int]]:
    """(name, header offset, payload size) of the members of a plain ustar archive."""
    found = []
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as archive:
        offset = 0
        while archive[offset]:
            name = archive[offset : offset + 100].rstrip(b"\0").decode()
            size = int(archive[offset + 124 : offset + 135], 8)
            found.append((name, offset, size))
            offset += 512 + (size + 511) // 512 * 512
    return found


def rows(scans: list[list[tuple[str, int, int]]]) -> Iterator[tuple[int, int, str, str, int, int]]:
    for shard, members in enumerate(scans):
        for row, (name, offset, size) in enumerate(members):
            key, _, part = name.partition(".")
            yield shard, row, key, part, offset, size


def main() -> None:
    options = arguments("data", "out")
    started = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        scans = list(pool.map(headers, sorted(str(path) for path in Path(options.data).glob("*.tar"))))
    read_seconds = time.perf_counter() - started
    base = sqlite3.connect(options.out)
    base.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;" + TABLES)
    samples = ((s, k, r, o, 512 + (n + 511) // 512 * 512) for s, r, k, _, o, n in rows(scans))
    base.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", samples)
    parts = ((s, r, p, o + 512, n) for s, r, _, p, o, n in rows(scans))
    base.executemany("INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)", parts)
    base.executescript(INDEXES)
    base.commit()
    base.close()
    report(headers_seconds=read_seconds, seconds=time.perf_counter() - started)


if __name__ == "__main__":
    main()
