"""The index beside a shard, and samples by their place in it, as tools for Energon read and write them."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager

from omniloom.data.kinds import edataclass
from omniloom.data.shards.tar_index import INDEX_SUFFIX as ITAR_SUFFIX
from omniloom.energon.adapters.epath import EPath
from omniloom.energon.adapters.jsonl_index import IndexReader, IndexWriter

Paths = str | os.PathLike[str]


@edataclass
class ITarSamplePointer:
    """Where a sample lies.

    Attributes:
        tar_file_id: number of its shard.
        byte_offset: first byte of its first header.
        byte_size: length of its headers and contents.
    """

    tar_file_id: int
    byte_offset: int
    byte_size: int


@edataclass
class ITarRawSamplePartPointer:
    """Where the content of a part lies.

    Attributes:
        tar_file_id: number of its shard.
        raw_byte_offset: its first byte.
        raw_byte_size: its length.
    """

    tar_file_id: int
    raw_byte_offset: int
    raw_byte_size: int


class TarIndexReader(IndexReader):
    """The offsets in the index of a shard: where each sample begins, and where the last one ends.

    Args:
        tar_path: the shard, beside which the index lies.
    """

    suffix = ITAR_SUFFIX


class TarIndexWriter(IndexWriter):
    """Writes the index of a shard; it is complete, or absent where the ``with`` ends in an error.

    Args:
        tar_path: the shard, beside which the index will lie.
    """

    suffix = ITAR_SUFFIX


def get_itar_byte_offset(path: Paths, sample_offset: int = 0) -> int:
    """First byte of a sample of a shard; after the last one, where that ends.

    Args:
        path: the shard.
        sample_offset: number of the sample.
    """
    return TarIndexReader(path)[sample_offset] if sample_offset else 0


def span_of_sample(path: Paths, row: int) -> tuple[int, int]:
    """First byte and length of a sample of a shard."""
    reader = TarIndexReader(path)
    begin = reader[row] if row else 0
    return begin, reader[row + 1] - begin


@contextmanager
def open_itar(path: Paths, byte_offset: int = 0, byte_size: int | None = None) -> Iterator[tarfile.TarFile]:
    """A part of a shard as an archive of its own.

    Args:
        path: the shard.
        byte_offset: first byte, of a header.
        byte_size: its length; ``None``: to the end.
    """
    with EPath(path).open("rb") as file:
        file.seek(byte_offset)
        data = file.read() if byte_size is None else file.read(byte_size)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        yield archive
