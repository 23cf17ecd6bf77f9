"""Lays out a file of ``torch.save`` before its tensors are there, so that they can be streamed to their places.

The zip holds what torch writes: the pickle, the byte order, one stored entry per tensor aligned to 64 bytes, and the
version; with right checksums, and with zip64 fields where a size or an offset needs them. Tests load it with torch,
with and without ``mmap``, and check it with Python's zipfile.
"""

from __future__ import annotations

import collections
import io
import pickle
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from omniloom.errors import WeightsError
from omniloom.weights.layout import Extent, FileLayout
from omniloom.weights.source import TensorInfo

_ALIGNMENT = 64
_ROOT = "archive/"
_LIMIT = 0xFFFFFFFF
_STORAGES: Mapping[torch.dtype, Any] = {
    torch.float32: torch.FloatStorage,
    torch.float64: torch.DoubleStorage,
    torch.float16: torch.HalfStorage,
    torch.bfloat16: torch.BFloat16Storage,
    torch.int64: torch.LongStorage,
    torch.int32: torch.IntStorage,
    torch.int16: torch.ShortStorage,
    torch.int8: torch.CharStorage,
    torch.uint8: torch.ByteStorage,
    torch.bool: torch.BoolStorage,
}


@dataclass(frozen=True)
class Planned:
    """Stands in what is saved for a tensor that will be written later.

    Attributes:
        key: of its extent in the layout.
        info: shape and dtype.
    """

    key: str
    info: TensorInfo


class _StorageId(NamedTuple):
    planned: Planned
    number: int


class _Entry(NamedTuple):
    name: bytes
    header_start: int
    extra: bytes
    size_bytes: int
    content: bytes | None  # None: filled from outside, under the key
    key: str


def lay_out_torch_file(path: str, data: Any) -> FileLayout:
    """Where everything goes in a file of ``torch.save(data)``.

    Args:
        path: of the file within its folder.
        data: what ``torch.load`` will give; plain objects with `Planned` in place of tensors.

    Raises:
        WeightsError: a dtype has no storage in torch's files, or a key is planned twice.
    """
    pickled, planned = _pickled(data)
    contents: list[tuple[str, str, int, bytes | None]] = [
        ("data.pkl", "", len(pickled), pickled),
        ("byteorder", "", 6, b"little"),
        *((f"data/{number}", one.key, one.info.size_bytes, None) for number, one in enumerate(planned)),
        ("version", "", 2, b"3\n"),
    ]
    entries: list[_Entry] = []
    extents: dict[str, Extent] = {}
    at = 0
    for name, key, size_bytes, content in contents:
        entry = _entry((_ROOT + name).encode(), at, size_bytes, content, key)
        start = at + 30 + len(entry.name) + len(entry.extra)
        entries.append(entry)
        if content is None:
            extents[key] = Extent(start, size_bytes)
        at = start + size_bytes
    if len(extents) != len(planned):
        raise WeightsError(f"{path}: two tensors were planned under one key")
    directory_start = at

    def closing(checksums: Mapping[str, int]) -> tuple[tuple[int, bytes], ...]:
        return _closing(entries, directory_start, checksums)

    size_bytes = directory_start + len(closing(dict.fromkeys(extents, 0))[-1][1])
    return FileLayout(path=path, size_bytes=size_bytes, extents=extents, closing=closing, wants_checksums=True)


def concatenated(path: str, layouts: Sequence[FileLayout]) -> tuple[FileLayout, tuple[Extent, ...]]:
    """Several laid-out files one after the other in one file, as torch's distributed checkpoints keep them.

    Args:
        path: of the file within its folder.
        layouts: the files; their keys must differ.

    Returns:
        The layout of the whole, and where each file lies in it.
    """
    starts: list[int] = []
    at = 0
    for layout in layouts:
        starts.append(at)
        at += -(-layout.size_bytes // _ALIGNMENT) * _ALIGNMENT

    def closing(checksums: Mapping[str, int]) -> tuple[tuple[int, bytes], ...]:
        return tuple(
            (start + offset, data)
            for start, layout in zip(starts, layouts, strict=True)
            for offset, data in layout.closing(checksums)
        )

    extents = {
        key: Extent(start + extent.offset, extent.size_bytes)
        for start, layout in zip(starts, layouts, strict=True)
        for key, extent in layout.extents.items()
    }
    whole = FileLayout(path=path, size_bytes=at, extents=extents, closing=closing, wants_checksums=True)
    return whole, tuple(Extent(start, one.size_bytes) for start, one in zip(starts, layouts, strict=True))


def _pickled(data: Any) -> tuple[bytes, list[Planned]]:
    planned: list[Planned] = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            if not isinstance(obj, _StorageId):
                return None
            info = obj.planned.info
            if info.dtype not in _STORAGES:
                raise WeightsError(f"{obj.planned.key!r} is {info}, which files of torch.save have no storage for")
            return ("storage", _STORAGES[info.dtype], str(obj.number), "cpu", torch.Size(info.shape).numel())

        def reducer_override(self, obj: Any) -> Any:
            if not isinstance(obj, Planned):
                return NotImplemented
            planned.append(obj)
            storage = _StorageId(obj, len(planned) - 1)
            shape = obj.info.shape
            rebuild = torch._utils._rebuild_tensor_v2  # the name under which every file of torch.save builds tensors
            return rebuild, (storage, 0, shape, _contiguous_stride(shape), False, collections.OrderedDict())

    stream = io.BytesIO()
    Pickler(stream, protocol=2).dump(data)
    return stream.getvalue(), planned


def _contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    stride: list[int] = []
    step = 1
    for length in reversed(shape):
        stride.append(step)
        step *= max(length, 1)
    return tuple(reversed(stride))


def _entry(name: bytes, header_start: int, size_bytes: int, content: bytes | None, key: str) -> _Entry:
    extra = struct.pack("<HHQQ", 1, 16, size_bytes, size_bytes) if size_bytes > _LIMIT else b""
    start = header_start + 30 + len(name) + len(extra)
    if content is None:
        gap = -(start + 4) % _ALIGNMENT
        extra += struct.pack("<2sH", b"FB", gap) + b"Z" * gap  # the filler that torch itself writes
    return _Entry(name, header_start, extra, size_bytes, content, key)


def _closing(
    entries: list[_Entry], directory_start: int, checksums: Mapping[str, int]
) -> tuple[tuple[int, bytes], ...]:
    pieces: list[tuple[int, bytes]] = []
    directory = b""
    for entry in entries:
        checksum = checksums[entry.key] if entry.content is None else zlib.crc32(entry.content)
        size = min(entry.size_bytes, _LIMIT)
        version = 45 if entry.size_bytes > _LIMIT else 20
        common = struct.pack("<5H3I2H", version, 0, 0, 0, 0x21, checksum, size, size, len(entry.name), len(entry.extra))
        local = b"PK\x03\x04" + common + entry.name + entry.extra
        pieces.append((entry.header_start, local + (entry.content or b"")))
        directory += _directory_entry(entry, checksum)
    pieces.append((directory_start, directory + _end(len(entries), len(directory), directory_start)))
    return tuple(pieces)


def _directory_entry(entry: _Entry, checksum: int) -> bytes:
    large = [entry.size_bytes, entry.size_bytes] if entry.size_bytes > _LIMIT else []
    large += [entry.header_start] if entry.header_start > _LIMIT else []
    extra = struct.pack(f"<HH{len(large)}Q", 1, 8 * len(large), *large) if large else b""
    size, start = min(entry.size_bytes, _LIMIT), min(entry.header_start, _LIMIT)
    version = 45 if large else 20
    fixed = struct.pack(
        "<4s6H3I5H2I",
        *(b"PK\x01\x02", version, version, 0, 0, 0, 0x21, checksum, size, size),
        *(len(entry.name), len(extra), 0, 0, 0, 0, start),
    )
    return fixed + entry.name + extra


def _end(count: int, directory_bytes: int, directory_start: int) -> bytes:
    end64 = b""
    if count > 0xFFFF - 1 or directory_start + directory_bytes > _LIMIT:
        end64 = struct.pack(
            "<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, directory_bytes, directory_start
        )
        end64 += struct.pack("<4sIQI", b"PK\x06\x07", 0, directory_start + directory_bytes, 1)
    short = min(count, 0xFFFF)
    start = _LIMIT if end64 else directory_start
    return end64 + struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, short, short, min(directory_bytes, _LIMIT), start, 0)
