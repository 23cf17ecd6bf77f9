"""``x.jsonl.idx``: where the records of ``x.jsonl`` begin, as Energon writes it.

One unsigned little-endian 64-bit number per record and one more, the size of the file. A record begins where the one
before it ended: blank lines belong to the record before them, those at the begin of the file to the first one.
"""

from __future__ import annotations

import errno
import os
import struct
from array import array
from pathlib import Path

from omniloom.data.shards.tar_index import ENTRY_BYTES, encode_tar_index
from omniloom.errors import DatasetError, ShardError, StorageError
from omniloom.storage.files import file_exists, file_size, replace_file, storage_error
from omniloom.storage.node_copy import kept_copy
from omniloom.storage.urls import is_url, name_of

INDEX_SUFFIX = ".idx"
MAX_UNINDEXED_BYTES = 1 << 30
_BOM = b"\xef\xbb\xbf"
_OPEN, _CLOSE = ord("{"), ord("}")
_SHOWN = 80


def line_index_path(path: str | os.PathLike[str]) -> str:
    """Path, or URL, of a file's index: ``.idx`` is put behind its name."""
    bare, mark, query = os.fspath(path).partition("?") if is_url(os.fspath(path)) else (os.fspath(path), "", "")
    return f"{bare}{INDEX_SUFFIX}{mark}{query}"


def has_line_index(path: str | os.PathLike[str]) -> bool:
    """Whether a file has an index beside it."""
    return file_exists(line_index_path(path))


def find_lines(path: str | os.PathLike[str]) -> array[int]:
    """The n + 1 offsets of a JSONL file, found by reading it once.

    Raises:
        DatasetError: a line is no JSON object by its first and last character, or there is no record.
        StorageError: the file cannot be read.
    """
    offsets = array("Q")
    last = position = 0
    try:
        with kept_copy(path).open("rb") as file:
            for number, raw in enumerate(file, start=1):
                position += len(raw)
                line = raw.strip()
                if not line:
                    last = position if last else last
                    continue
                if number == 1:
                    line = line.removeprefix(_BOM) or raw
                if line[0] != _OPEN or line[-1] != _CLOSE:
                    raise DatasetError(
                        f"{os.fspath(path)}: line {number:,} is {line[:_SHOWN]!r}; expected one JSON object a line, "
                        "from '{' to '}'. Write each object on a line of its own."
                    )
                offsets.append(last)
                last = position
    except OSError as error:
        raise storage_error("read", path, error) from error
    if not offsets:
        raise DatasetError(f"{os.fspath(path)}: holds no records. Expected one JSON object a line.")
    offsets.append(last)
    return offsets


def write_line_index(path: str | os.PathLike[str], offsets: array[int]) -> None:
    """Put the index beside its file, with its permissions.

    Raises:
        StorageError: the folder cannot be written to.
    """
    mode = None if is_url(os.fspath(path)) else Path(path).stat().st_mode & 0o777 | 0o600
    replace_file(line_index_path(path), encode_tar_index(offsets), mode=mode)


def records_in_index(path: str | os.PathLike[str]) -> int | None:
    """Number of records by the size of the index of a file; ``None`` where it has none.

    Raises:
        DatasetError: the index has an impossible size, or was made of a file of another size.
    """
    index = line_index_path(path)
    try:
        with kept_copy(index).open("rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            if size_bytes % ENTRY_BYTES or size_bytes < 2 * ENTRY_BYTES:
                raise DatasetError(
                    f"{index}: damaged: {size_bytes:,} bytes, expected a multiple of {ENTRY_BYTES} and at least "
                    f"{2 * ENTRY_BYTES}. Make it again: `omniloom prepare {os.fspath(path)}`."
                )
            file.seek(size_bytes - ENTRY_BYTES)
            (end,) = struct.unpack("<Q", file.read(ENTRY_BYTES))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise error if isinstance(error, StorageError) else storage_error("read", index, error) from error
    check_size(path, end)
    return size_bytes // ENTRY_BYTES - 1


def check_size(path: str | os.PathLike[str], end: int) -> None:
    """See that a file has the size that its index says.

    Raises:
        ShardError: ``index-stale``.
        StorageError: the file cannot be looked at.
    """
    size_bytes = file_size(path)
    if size_bytes != end:
        raise ShardError(
            f"{os.fspath(path)}: has {size_bytes:,} bytes, but its index was made when it had {end:,}. Make it again: "
            f"`omniloom prepare {os.fspath(path)}`.",
            shard=name_of(os.fspath(path)),
            reason="index-stale",
        )


def offsets_without_index(path: str | os.PathLike[str]) -> array[int]:
    """The offsets of a file that has no index, found anew; refused for files that take long.

    Raises:
        DatasetError: the file is larger than a gigabyte, or as `find_lines`.
    """
    try:
        size_bytes = file_size(path)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        raise DatasetError(f"{os.fspath(path)}: there is no such file. Check the path of the data set.") from None
    if size_bytes > MAX_UNINDEXED_BYTES:
        raise DatasetError(
            f"{os.fspath(path)}: has no index, and {size_bytes:,} bytes are too many to look for its records at each "
            f"start. Make it: `omniloom prepare {os.fspath(path)}`."
        )
    return find_lines(path)


def unpack_pair(data: bytes, path: str) -> tuple[int, int]:
    """First byte of a record and the byte after its last, out of an index.

    Raises:
        StorageError: the index ends before.
    """
    if len(data) != 2 * ENTRY_BYTES:
        raise StorageError(f"{path}: ends within an entry. Make it again: `omniloom prepare`.")
    start, stop = struct.unpack("<QQ", data)
    return start, stop
