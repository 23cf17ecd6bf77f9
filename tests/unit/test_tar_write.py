"""The writer: what CPython's tarfile reads back, byte for byte the same twice, nothing left of a failure."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from omniloom.data.shards.tar import walk_tar
from omniloom.data.shards.write import TarWriter
from omniloom.errors import ConfigError

MEMBERS = [
    ("a.txt", b"hello"),
    ("dir/b.bin", bytes(range(256)) * 5),
    ("empty.txt", b""),
    ("ümläut/键.jpg", b"\x00" * 512),
    ("k" * 150 + ".jpg", b"long name"),
    ("d" * 90 + "/" + "e" * 90 + ".jpg", b"prefix"),
    ("x" * 300 + ".json", b"{}"),
]


def test_is_what_tarfile_and_our_walker_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with TarWriter(path) as writer:
        written = [writer.add(name, data) for name, data in MEMBERS]
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert [(m.name, m.offset, m.offset_data, m.size) for m in members] == [
            (m.name, m.header_start, m.start, m.stop - m.start) for m in written
        ]
        for member, (name, data) in zip(members, MEMBERS, strict=True):
            extracted = archive.extractfile(member)
            assert extracted is not None
            assert (member.name, extracted.read()) == (name, data)
            assert (member.mtime, member.mode, member.uid, member.gid) == (0, 0o644, 0, 0)
    assert list(walk_tar(str(path), shard="a.tar")) == written
    assert path.stat().st_size % 10_240 == 0


def test_the_same_members_give_the_same_bytes_as_tarfile_writes(tmp_path: Path) -> None:
    plain = [(name, data) for name, data in MEMBERS if name.isascii() and len(name) < 100]
    with TarWriter(tmp_path / "a.tar") as writer:
        for name, data in plain:
            writer.add(name, data)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in plain:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    assert (tmp_path / "a.tar").read_bytes() == buffer.getvalue()


def test_a_failure_leaves_nothing_and_the_old_archive_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"old")

    def fail() -> None:
        with TarWriter(path) as writer:
            writer.add("a.txt", b"x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [one.name for one in tmp_path.iterdir()] == ["a.tar"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("name", ["", "a\0b.txt", "\0"])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    with TarWriter(tmp_path / "a.tar") as writer:
        with pytest.raises(ConfigError, match=r"a\.tar.*cannot be the name of a member"):
            writer.add(name, b"x")
        writer.add("b.txt", b"y")
    assert [one.name for one in walk_tar(str(tmp_path / "a.tar"), shard="a.tar")] == ["b.txt"]


def test_same_bytes_as_tarfile(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a.tar", tmp_path / "b.tar"
    with TarWriter(ours) as writer, tarfile.open(theirs, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in MEMBERS:
            writer.add(name, data)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    assert ours.read_bytes() == theirs.read_bytes()
