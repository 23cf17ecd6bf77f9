"""Compressed archives: read forward, unpacked byte for byte, refused when they are cut or damaged anywhere."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from omniloom.data.shards import compressed
from omniloom.data.shards.compressed import read_compressed, recompress_to_tar, unpacked_chunks
from omniloom.data.shards.compression import plain_name
from omniloom.data.shards.scan import scan_shard
from omniloom.errors import ConfigError, ShardError, StorageError
from tests.contract.archive_blocks import END, header, long_name, member, pax, write

zstandard = pytest.importorskip("zstandard")

Pack = Callable[[bytes], bytes]
PACKERS: dict[str, Pack] = {
    "gzip": gzip.compress,
    "zstd": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),  # as the program zstd does
    "xz": lzma.compress,
    "bzip2": bz2.compress,
}
every_compression = pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)

MEMBERS = {
    "a.txt": b"hello",
    "long/" + "n" * 150 + ".bin": Random(0).randbytes(1_200_000),
    "empty.txt": b"",
    "b.bin": Random(1).randbytes(70_000),
}


@pytest.fixture(scope="module")
def archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in MEMBERS.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1_700_000_000.25
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def refusal(path: Path, target: Path | None = None) -> tuple[str, int | None]:
    with pytest.raises(ShardError, match=r"^s: ") as first:
        for _ in read_compressed(path, shard="s"):
            pass
    if target is not None:
        with pytest.raises(ShardError, match=r"^s: ") as second:
            recompress_to_tar(path, target, shard="s")
        assert second.value.reason == first.value.reason
        assert list(target.parent.iterdir()) == [path]
    return first.value.reason, first.value.offset_bytes


@every_compression
def test_read_forward_and_unpacked(tmp_path: Path, archive: bytes, pack: Pack) -> None:
    path = write(tmp_path / "a.packed", pack(archive))
    assert dict(read_compressed(path, shard="s")) == MEMBERS
    target = tmp_path / "a.tar"
    walk = recompress_to_tar(path, target)
    assert target.read_bytes() == archive
    assert (walk.size_bytes, walk.has_end_marker) == (len(archive), True)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.packed", "a.tar"]
    assert scan_shard(target, shard="a.tar").keys == ["a", "long/" + "n" * 150, "empty", "b"]
    with pytest.raises(ShardError, match=r"omniloom convert tar .*a\.packed --out") as caught:
        scan_shard(path, shard="s")
    assert caught.value.reason == "compressed"


@every_compression
def test_several_frames_are_one_archive(tmp_path: Path, archive: bytes, pack: Pack) -> None:
    pieces = [archive[at : at + 400_003] for at in range(0, len(archive), 400_003)]
    path = write(tmp_path / "a.packed", *map(pack, pieces))
    assert dict(read_compressed(path, shard="s")) == MEMBERS
    recompress_to_tar(path, tmp_path / "a.tar")
    assert (tmp_path / "a.tar").read_bytes() == archive


def test_zeros_after_the_last_frame_are_padding(tmp_path: Path, archive: bytes) -> None:
    path = write(tmp_path / "a.tgz", gzip.compress(archive), bytes(100_000))
    assert dict(read_compressed(path, shard="s")) == MEMBERS


@every_compression
def test_a_cut_is_seen_wherever_it_is(tmp_path: Path, archive: bytes, pack: Pack) -> None:
    packed = pack(archive[:30_000] + bytes(10_000))
    path, target = tmp_path / "a.packed", tmp_path / "a.tar"
    for cut in (len(packed) - 1, len(packed) - 8, len(packed) // 2, 40):
        path.write_bytes(packed[:cut])
        assert refusal(path, target)[0] == "truncated"


@every_compression
def test_a_cut_before_it_was_compressed(tmp_path: Path, archive: bytes, pack: Pack) -> None:
    path = tmp_path / "a.packed"
    for cut, told in ((500_000, "truncated"), (len(archive) - 20_000 - 70_000, "truncated"), (700, "truncated")):
        path.write_bytes(pack(archive[:cut]))
        assert refusal(path, tmp_path / "a.tar")[0] == told


@every_compression
def test_damage_inside(tmp_path: Path, archive: bytes, pack: Pack) -> None:
    packed = bytearray(pack(archive))
    packed[len(packed) // 2] ^= 0x55
    path = write(tmp_path / "a.packed", bytes(packed))
    assert refusal(path, tmp_path / "a.tar")[0] in ("bad-compression", "bad-checksum", "truncated")


@every_compression
def test_other_bytes_after_the_last_frame(tmp_path: Path, archive: bytes, pack: Pack) -> None:
    path = write(tmp_path / "a.packed", pack(archive), b"junk" * 200)
    assert refusal(path, tmp_path / "a.tar")[0] == "bad-compression"


@every_compression
def test_a_second_archive_inside(tmp_path: Path, pack: Pack) -> None:
    one = member("a.txt", b"a") + END
    path = write(tmp_path / "a.packed", pack(one + one))
    assert refusal(path, tmp_path / "a.tar") == ("concatenated", 2048)


def test_what_is_inside_has_to_be_an_archive(tmp_path: Path) -> None:
    for content, reason in (
        (b"", "empty-file"),
        (b"text" * 500, "not-tar"),
        (gzip.compress(b"x" * 9000), "compressed"),
    ):
        path = write(tmp_path / "a.tgz", gzip.compress(content))
        assert refusal(path, tmp_path / "a.tar")[0] == reason


def test_files_that_are_not_compressed(tmp_path: Path, archive: bytes) -> None:
    path = write(tmp_path / "a.tgz", archive)
    assert refusal(path, tmp_path / "a.tar") == ("not-compressed", 0)
    assert refusal(write(tmp_path / "a.tgz"), tmp_path / "a.tar") == ("not-compressed", 0)
    assert refusal(write(tmp_path / "a.tgz", b"PK\x03\x04" + bytes(600)), tmp_path / "a.tar") == ("compressed", 0)
    path.unlink()
    assert refusal(path)[0] == "missing-shard"


def test_headers_of_every_kind_in_a_stream(tmp_path: Path) -> None:
    pieces = (
        pax(b"g", comment="c"), header("d/", kind=b"5"),
        pax(mtime="1.5"), pax(path="p" * 200 + ".x"), member("p", b"1"),
        long_name("l" * 200 + ".x"), member("l", b"2"), header("s.x", kind=b"2", link="p"),
        *(pax(mtime=f"{at}.5") for at in range(1000)), member("far.x", b"3"), END,
    )  # fmt: skip
    path = write(tmp_path / "a.tgz", gzip.compress(b"".join(pieces)))
    assert dict(read_compressed(path, shard="s")) == {"p" * 200 + ".x": b"1", "l" * 200 + ".x": b"2", "far.x": b"3"}


def test_members_too_large_to_hand_over(tmp_path: Path, archive: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "MEMBER_LIMIT_BYTES", 1_000_000)
    path = write(tmp_path / "a.tgz", gzip.compress(archive))
    assert refusal(path)[0] == "too-large"


def test_a_payload_nobody_asks_for_is_not_kept(tmp_path: Path) -> None:
    packed = gzip.compress(header("big.x", 300_000_000, b"Z") + bytes(300_000_256) + member("a.txt", b"a") + END, 1)
    path = write(tmp_path / "a.tgz", packed)
    sizes = [len(chunk) for chunk in unpacked_chunks(path, shard="s")]
    assert max(sizes) < 20_000_000
    assert list(read_compressed(path, shard="s")) == [("a.txt", b"a")]


def test_a_target_that_cannot_be_written(tmp_path: Path, archive: bytes) -> None:
    path = write(tmp_path / "a.tgz", gzip.compress(archive))
    for target in (tmp_path / "none" / "a.tar", tmp_path):
        with pytest.raises(StorageError, match=str(target)):
            recompress_to_tar(path, target)
    old = write(tmp_path / "old.tar", b"old")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ShardError):
        recompress_to_tar(path, old)
    assert old.read_bytes() == b"old"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.tgz", "old.tar"]


def test_zstandard_is_an_extra(tmp_path: Path, archive: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.tar.zst", PACKERS["zstd"](archive))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ConfigError, match=r"pip install 'omniloom\[zstd\]'"):
        recompress_to_tar(path, tmp_path / "a.tar")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("d/a.tar.gz", "d/a.tar"), ("a.tgz", "a.tar"), ("a.tar.zst", "a.tar"), ("A.TAR.XZ", "A.TAR"), ("a.gz", "a.tar"),
        ("a.tar", "a.plain.tar"),
    ],
)  # fmt: skip
def test_names_of_plain_archives(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_payloads_are_the_same_after_unpacking(tmp_path: Path, archive: bytes) -> None:
    path = write(tmp_path / "a.tar.gz", gzip.compress(archive))
    recompress_to_tar(path, tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as tar:
        for one in tar:
            data = tar.extractfile(one).read()  # type: ignore[union-attr]
            assert hashlib.sha256(data).digest() == hashlib.sha256(MEMBERS[one.name]).digest()
