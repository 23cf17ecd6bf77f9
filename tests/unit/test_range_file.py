"""A file over range reads: any reads and seeks give what a file gives, and no more than needed is fetched."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniloom.errors import StorageError
from omniloom.storage.range_file import BLOCK_BYTES, RangeFile, open_range

DATA = bytes(range(256)) * 2_000


def opened(data: bytes = DATA) -> RangeFile:
    return RangeFile(lambda start, stop: data[start:stop], size_bytes=len(data))


@given(st.lists(st.tuples(st.integers(0, len(DATA) + 10), st.integers(-1, 200_000)), max_size=20))
def test_reads_equal_those_of_a_file(reads: list[tuple[int, int]]) -> None:
    file, expected = opened(), io.BytesIO(DATA)
    for place, size in reads:
        assert file.seek(place) == expected.seek(place)
        assert file.read(size) == expected.read(size)
        assert file.tell() == max(place, expected.tell())


def test_a_jump_fetches_a_block_and_a_stream_ever_more() -> None:
    file = opened(bytes(20 * BLOCK_BYTES))
    file.seek(10 * BLOCK_BYTES + 5)
    file.read(10)
    assert (file.fetched_bytes, file.requests) == (BLOCK_BYTES, 1)
    file.seek(0)
    while file.read(1_000):
        pass
    assert file.fetched_bytes <= 21 * BLOCK_BYTES
    assert file.requests <= 8


def test_seeks_and_buffers() -> None:
    file = opened()
    assert file.seek(-4, io.SEEK_END) == len(DATA) - 4
    assert file.seek(1, io.SEEK_CUR) == len(DATA) - 3
    buffer = bytearray(10)
    assert file.readinto(buffer) == 3
    assert bytes(buffer[:3]) == DATA[-3:]
    assert file.readable()
    assert file.seekable()
    with pytest.raises(ValueError, match="before"):
        file.seek(-1)


def test_a_short_answer_is_an_error() -> None:
    file = RangeFile(lambda start, stop: b"x", size_bytes=100, name="s3://bucket/a.mp4")
    with pytest.raises(StorageError, match=r"s3://bucket/a.mp4: 1 bytes came for bytes 0 to 100"):
        file.read()


def test_spans_of_local_files(tmp_path: Path) -> None:
    path = tmp_path / "shard.tar"
    path.write_bytes(DATA)
    assert open_range(str(path)).read() == DATA
    assert open_range(str(path), start=100, stop=300).read() == DATA[100:300]
    with pytest.raises(StorageError):
        open_range(str(tmp_path / "absent"))
