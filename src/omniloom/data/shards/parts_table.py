"""The file that keeps what a scan of a shard found: a few bytes per sample.

A finished scan is not repeated while its shard is unchanged, and a shard whose samples lie scattered is read through
this file. Layout: ``OMNIPART``, the length of a JSON header (4 bytes, little-endian), the header, then two sections
packed with zlib: the keys as JSON, and the positions as differences, which pack to almost nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import zlib
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from operator import add, sub
from pathlib import Path
from typing import Any

from omniloom.data.shards.scan import ShardScan
from omniloom.errors import ShardError
from omniloom.storage.files import replace_file
from omniloom.storage.node_copy import StoredFile, fetched

MAGIC = b"OMNIPART"
FORMAT = 1
HEADER_LIMIT_BYTES = 1 << 28
_FIXED_BYTES = len(MAGIC) + 4
# Differences of neighbouring positions; I is tried first, q where they are long or negative.
_COLUMNS = ("sample_sizes", "row_steps", "header_steps", "start_steps", "payload_sizes", "name_ids")
_SCAN_COLUMNS = ("keys", "offsets", "part_rows", "part_names", "part_headers", "part_starts", "part_stops")
_SCAN_FIELDS = tuple(f.name for f in dataclasses.fields(ShardScan) if f.name not in _SCAN_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSummary:
    """What a parts table says of its shard without being unpacked.

    Attributes:
        fields: the fields of `ShardScan` that are no columns, by name.
        samples: number of samples.
        part_counts: how many parts of each name there are.
        key_range: smallest and largest key; ``None`` without samples.
        irregular: as `ShardScan.irregular`.
        mtime_ns: time of the last change of the shard when it was scanned.
        on_duplicate: the policy it was scanned with.
    """

    fields: dict[str, Any]
    samples: int
    part_counts: dict[str, int]
    key_range: tuple[str, str] | None
    irregular: bool
    mtime_ns: int
    on_duplicate: str


def write_parts_table(
    path: str | os.PathLike[str], scan: ShardScan, *, mtime_ns: int, on_duplicate: str
) -> ScanSummary:
    """Write a scan to a file, under a temporary name first.

    Args:
        path: the file; its folder is made when it is missing.
        scan: what to write.
        mtime_ns: time of the last change of the shard.
        on_duplicate: the policy of the scan.

    Returns:
        What `read_summary` will say.

    Raises:
        StorageError: the file cannot be written; nothing is left of it.
    """
    names: dict[str, int] = {}
    columns = _columns_of(scan, names)
    body = b"".join(_little_endian(column).tobytes() for column in columns)
    keys = json.dumps(scan.keys).encode()
    summary = ScanSummary(
        fields={name: getattr(scan, name) for name in _SCAN_FIELDS},
        samples=len(scan.keys),
        part_counts=dict(Counter(scan.part_names)),
        key_range=(min(scan.keys), max(scan.keys)) if scan.keys else None,
        irregular=scan.irregular,
        mtime_ns=mtime_ns,
        on_duplicate=on_duplicate,
    )
    packed_keys, packed_body = zlib.compress(keys, 1), zlib.compress(body, 1)
    header = json.dumps(
        {
            "format": FORMAT,
            **dataclasses.asdict(summary),
            "names": list(names),
            "first_offset": scan.offsets[0],
            "typecodes": "".join(column.typecode for column in columns),
            "counts": [len(column) for column in columns],
            "bytes": [len(keys), len(body), len(packed_keys), len(packed_body)],
        }
    ).encode()
    fixed = MAGIC + len(header).to_bytes(4, "little")
    replace_file(path, b"".join((fixed, header, packed_keys, packed_body)))
    return summary


def read_summary(path: str | os.PathLike[str]) -> ScanSummary:
    """The summary alone, without unpacking anything.

    Raises:
        ShardError: ``bad-parts-table``: the file is missing, damaged or of another format.
    """
    with _Reading(path) as file:
        return file.summary


def read_keys(path: str | os.PathLike[str]) -> list[str]:
    """The keys of the samples alone. Raises as `read_summary` does."""
    with _Reading(path) as file:
        return file.keys()


def read_parts_table(path: str | os.PathLike[str]) -> ShardScan:
    """The scan as it was written. Raises as `read_summary` does."""
    with _Reading(path) as file:
        return file.scan()


class PartsTable:
    """The parts of each sample of one shard, by row. Unpacked at the first question; pickles as its path.

    Attributes:
        path: the file, which may have to be brought here first.
    """

    def __init__(self, path: str | os.PathLike[str] | StoredFile) -> None:
        self.path: str | StoredFile = path if isinstance(path, StoredFile) else os.fspath(path)
        self._scan: ShardScan | None = None

    def __getstate__(self) -> str | StoredFile:
        return self.path

    def __setstate__(self, path: str | StoredFile) -> None:
        self.path = path
        self._scan = None

    def __len__(self) -> int:
        return len(self._opened().keys)

    @property
    def scan(self) -> ShardScan:
        """The whole scan. Raises as `read_summary` does."""
        return self._opened()

    @property
    def size_bytes(self) -> int:
        """Memory that the unpacked table takes, roughly."""
        scan = self._opened()
        return 100 * len(scan.keys) + 44 * len(scan.part_rows)

    def row(self, row: int) -> tuple[str, list[tuple[str, int, int]]]:
        """Key of a sample and (part name, first payload byte, byte after it) of its parts, in archive order.

        Raises:
            ShardError: as `read_summary` does.
            IndexError: there is no such row.
        """
        scan = self._opened()
        if not 0 <= row < len(scan.keys):
            raise IndexError(f"{scan.shard}: there is no row {row:,}; the shard has {len(scan.keys):,} samples")
        first = bisect_left(scan.part_rows, row)
        stop = bisect_left(scan.part_rows, row + 1, first)
        parts = zip(scan.part_names[first:stop], scan.part_starts[first:stop], scan.part_stops[first:stop], strict=True)
        return scan.keys[row], list(parts)

    def close(self) -> None:
        """Give the memory back; the next question reads the file again."""
        self._scan = None

    def _opened(self) -> ShardScan:
        if self._scan is None:
            self._scan = read_parts_table(fetched(self.path))
        return self._scan


class _Reading:
    """An open parts table whose header has been checked."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        try:
            self._file = Path(path).open("rb")  # noqa: SIM115 - closed by __exit__
        except OSError as error:
            raise self._bad(f"cannot be opened: {error.strerror}") from error
        try:
            self._header = self._read_header()
            self.summary = self._summary()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._file.close()
            raise error if isinstance(error, ShardError) else self._bad(f"its header is damaged ({error!r})") from error

    def __enter__(self) -> _Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def keys(self) -> list[str]:
        """The keys, in order of the rows."""
        unpacked, _, packed, _ = self._header["bytes"]
        keys = json.loads(self._unpack(unpacked, packed))
        if not isinstance(keys, list) or len(keys) != self.summary.samples:
            raise self._bad(f"it holds another number of keys than the {self.summary.samples:,} of its header")
        return keys

    def scan(self) -> ShardScan:
        """All columns, put together again."""
        keys = self.keys()
        _, unpacked, _, packed = self._header["bytes"]
        body = self._unpack(unpacked, packed)
        columns = []
        position = 0
        for typecode, count in zip(self._header["typecodes"], self._header["counts"], strict=True):
            column: array[int] = array("q" if typecode == "q" else "I")
            stop = position + count * column.itemsize
            column.frombytes(body[position:stop])
            columns.append(_little_endian(column))
            position = stop
        if position != len(body):
            raise self._bad(f"its columns take {position:,} of {len(body):,} bytes")
        try:
            return _scan_of(keys, columns, self._header, self.summary)
        except (ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            raise self._bad(f"its columns do not fit together ({error!r})") from error

    def _read_header(self) -> dict[str, Any]:
        fixed = self._file.read(_FIXED_BYTES)
        if len(fixed) != _FIXED_BYTES or not fixed.startswith(MAGIC):
            raise self._bad(f"it begins with {fixed[:8]!r}, expected {MAGIC!r}")
        length = int.from_bytes(fixed[len(MAGIC) :], "little")
        if length > HEADER_LIMIT_BYTES:
            raise self._bad(f"its header claims {length:,} bytes, at most {HEADER_LIMIT_BYTES:,} are expected")
        header: dict[str, Any] = json.loads(self._file.read(length))
        if header["format"] != FORMAT:
            raise self._bad(f"it has format {header['format']!r}, this version reads format {FORMAT}")
        return header

    def _summary(self) -> ScanSummary:
        known = {field.name for field in dataclasses.fields(ScanSummary)}
        given = {name: self._header[name] for name in known}
        given["key_range"] = given["key_range"] and tuple(given["key_range"])
        summary = ScanSummary(**given)
        if set(summary.fields) != set(_SCAN_FIELDS):
            raise self._bad("it was written by another version")
        return summary

    def _unpack(self, unpacked_bytes: int, packed_bytes: int) -> bytes:
        unpacker = zlib.decompressobj()
        try:
            data = unpacker.decompress(self._file.read(packed_bytes), unpacked_bytes + 1)
        except zlib.error as error:
            raise self._bad(f"a section is damaged ({error})") from error
        if len(data) != unpacked_bytes or not unpacker.eof:
            raise self._bad(f"a section unpacks to {len(data):,} bytes, expected {unpacked_bytes:,}")
        return data

    def _bad(self, problem: str) -> ShardError:
        return ShardError(
            f"{self._path}: not a usable parts table: {problem}. Run `omniloom prepare` again; it makes a new one.",
            shard=self._path,
            reason="bad-parts-table",
        )


def _columns_of(scan: ShardScan, names: dict[str, int]) -> list[array[int]]:
    """The columns of a table, in the order of ``_COLUMNS``; fills the table of names."""
    offsets, rows, headers = scan.offsets, scan.part_rows, scan.part_headers
    of_row = offsets[:-1] if len(rows) == len(scan.keys) else [offsets[row] for row in rows]
    return [
        _narrow(map(sub, offsets[1:], offsets)),
        _narrow(map(sub, rows, [0, *rows[:-1]])),
        _narrow(map(sub, headers, of_row)),
        _narrow(map(sub, scan.part_starts, headers)),
        _narrow(map(sub, scan.part_stops, scan.part_starts)),
        array("I", [names.setdefault(name, len(names)) for name in scan.part_names]),
    ]


def _scan_of(keys: list[str], columns: list[array[int]], header: dict[str, Any], summary: ScanSummary) -> ShardScan:
    sizes, row_steps, header_steps, start_steps, payload_sizes, name_ids = columns
    offsets = array("Q", accumulate(sizes, initial=header["first_offset"]))
    rows = array("I", accumulate(row_steps))
    if len(offsets) != len(keys) + 1 or any(len(column) != len(rows) for column in columns[2:]):
        raise ValueError("their lengths differ")
    headers = array("Q", map(add, map(offsets.__getitem__, rows), header_steps))
    starts = array("Q", map(add, headers, start_steps))
    fields = dict(summary.fields)
    fields["dotted_names"] = tuple(fields["dotted_names"])
    names = header["names"]
    return ShardScan(
        keys=keys,
        offsets=offsets,
        part_rows=rows,
        part_names=[names[number] for number in name_ids],
        part_headers=headers,
        part_starts=starts,
        part_stops=array("Q", map(add, starts, payload_sizes)),
        **fields,
    )


def _narrow(values: Iterable[int]) -> array[int]:
    kept = list(values)
    try:
        return array("I", kept)
    except OverflowError:
        return array("q", kept)


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column
