"""``x.tar.idx``: where the samples of ``x.tar`` begin, as Energon writes it.

One unsigned 64-bit number per sample, the byte of its first header, and one more: the byte where the last member ends.
There is no header and no magic; the numbers are little-endian on every machine that Energon runs on.
"""

from __future__ import annotations

import itertools
import os
import sys
from array import array
from pathlib import Path

from omniloom.errors import DatasetError
from omniloom.storage.files import read_file
from omniloom.storage.urls import is_url

ENTRY_BYTES = 8
INDEX_SUFFIX = ".tar.idx"
SHARD_SUFFIX = ".tar"


def tar_index_path(tar_path: str | os.PathLike[str]) -> str:
    """Path, or URL, of a shard's index: the last suffix of its name becomes ``.tar.idx``."""
    if is_url(path := os.fspath(tar_path)):
        bare, mark, query = path.partition("?")
        return f"{bare[: -len(SHARD_SUFFIX)] if bare.endswith(SHARD_SUFFIX) else bare}{INDEX_SUFFIX}{mark}{query}"
    folder, name = os.path.split(path)
    stem = name[: name.rfind(".")] if name.rfind(".") > 0 else name
    return f"{folder}/{stem}{INDEX_SUFFIX}" if folder else stem + INDEX_SUFFIX


def encode_tar_index(offsets: array[int]) -> bytes:
    """Content of an index file.

    Args:
        offsets: n + 1 bytes, as `ShardScan.offsets`.
    """
    if sys.byteorder == "big":
        offsets = offsets[:]
        offsets.byteswap()
    return offsets.tobytes()


def read_tar_index(tar_path: str | os.PathLike[str]) -> array[int]:
    """The n + 1 offsets of a shard, in bytes.

    Raises:
        DatasetError: there is no index, or it is damaged.
        StorageError: it cannot be read.
    """
    return read_index_file(tar_index_path(tar_path))


def read_index_file(path: str) -> array[int]:
    """The offsets that an index file holds. Raises as `read_tar_index` does."""
    data = read_file(path, what="index of the shard", advice="Make it: `omniloom prepare DATASET`.")
    samples_in_bytes(len(data), path=path)
    offsets = array("Q")
    offsets.frombytes(data)
    if sys.byteorder == "big":
        offsets.byteswap()
    if any(later <= earlier for earlier, later in itertools.pairwise(offsets)):
        raise DatasetError(f"{path}: damaged: its offsets do not rise. Make it again: `omniloom prepare DATASET`.")
    return offsets


def samples_in_index(tar_path: str | os.PathLike[str]) -> int:
    """Number of samples of a shard by the size of its index. Raises as `read_tar_index` does."""
    path = Path(tar_index_path(tar_path))
    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise DatasetError(
            f"{path}: there is no index of the shard ({error.strerror}). Make it: `omniloom prepare DATASET`."
        ) from error
    return samples_in_bytes(size_bytes, path=str(path))


def samples_in_bytes(size_bytes: int, *, path: str) -> int:
    """Number of samples that an index file of this size lists.

    Raises:
        DatasetError: no index file has this size.
    """
    if size_bytes % ENTRY_BYTES or not size_bytes:
        raise DatasetError(
            f"{path}: damaged: {size_bytes:,} bytes, expected a multiple of {ENTRY_BYTES} and at least one entry. "
            "Make it again: `omniloom prepare DATASET`."
        )
    return size_bytes // ENTRY_BYTES - 1
