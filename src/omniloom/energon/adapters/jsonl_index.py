"""The index beside a JSONL file, as converters for Energon read and write it: where records begin and the file ends."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Any, ClassVar

from omniloom.energon.adapters.epath import EPath

IJSONL_SUFFIX = ".jsonl.idx"
_ENTRY = struct.Struct("<Q")

Paths = str | os.PathLike[str]


class _Closing:
    """What is closed at the end of a ``with``."""

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(finalize=error is None)

    def close(self, finalize: bool = True) -> None:
        """Be done with it."""


class IndexReader(_Closing):
    """The offsets that the index beside a file holds.

    Args:
        path: the file.
    """

    suffix: ClassVar[str]

    def __init__(self, path: Paths) -> None:
        data = EPath(path).with_suffix(self.suffix).read_bytes()
        self._offsets: list[int] = [offset for (offset,) in _ENTRY.iter_unpack(data)]

    def __getitem__(self, index: int) -> int:
        if index < 0:
            raise IndexError(f"offset {index} found, one from 0 on expected")
        return self._offsets[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)


class IndexWriter(_Closing):
    """Writes the index beside a file; it is complete, or absent where the ``with`` ends in an error.

    Args:
        path: the file.
    """

    suffix: ClassVar[str]

    def __init__(self, path: Paths) -> None:
        self.final_name = EPath(path).with_suffix(self.suffix)
        self._entries: list[bytes] = []

    def append(self, offset: int) -> None:
        """Add the first byte of a record; at last where the last one ends."""
        self._entries.append(_ENTRY.pack(offset))

    def close(self, finalize: bool = True) -> None:
        """Write the index, or with ``finalize=False`` none."""
        if finalize:
            self.final_name.write_bytes(b"".join(self._entries))


class IJsonlIndexReader(IndexReader):
    """The offsets of a JSONL file's index: one for each record, and the size of the file.

    Args:
        path: the JSONL file, beside which the index lies.
    """

    suffix = IJSONL_SUFFIX

    @staticmethod
    def count_samples(jsonl_path: Paths) -> int:
        """Records of an indexed JSONL file."""
        return len(IJsonlIndexReader(jsonl_path)) - 1

    @staticmethod
    def size(jsonl_path: Paths) -> int:
        """Bytes of an indexed JSONL file."""
        reader = IJsonlIndexReader(jsonl_path)
        return reader[len(reader) - 1]


class IJsonlIndexWriter(IndexWriter):
    """Writes the index of a JSONL file.

    Args:
        path: the JSONL file, beside which the index will lie.
    """

    suffix = IJSONL_SUFFIX
