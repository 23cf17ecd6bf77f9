"""Shards written anew so that no key and no part comes twice."""

from __future__ import annotations

import errno
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from omniloom.data.index.fix_duplicates import fix_duplicates
from omniloom.data.index.prepare import prepare_dataset
from omniloom.errors import BadShardsError, StorageError
from omniloom.tools.main import run


def _tar(path: Path, *members: tuple[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def _read(path: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(path) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]


def test_a_key_in_several_shards_gets_the_shards_name(tmp_path: Path) -> None:
    _tar(tmp_path / "d/x.tar", ("a.jpg", b"1"), ("a.txt", b"2"), ("__meta__/i.json", b"{}"), ("README", b"r"))
    _tar(tmp_path / "y.tar", ("a.jpg", b"3" * 1_000), ("b" * 150 + ".txt", b"4"))
    (tmp_path / "y.tar").chmod(0o640)
    assert fix_duplicates(tmp_path) == ["d/x.tar", "y.tar"]
    assert _read(tmp_path / "d/x.tar") == [
        ("d/x.tar/a.jpg", b"1"),
        ("d/x.tar/a.txt", b"2"),
        ("__meta__/i.json", b"{}"),
        ("README", b"r"),
    ]
    assert _read(tmp_path / "y.tar") == [("y.tar/a.jpg", b"3" * 1_000), (f"y.tar/{'b' * 150}.txt", b"4")]
    assert (tmp_path / "y.tar").stat().st_mode & 0o777 == 0o640
    prepared = prepare_dataset(tmp_path, num_workers=1, duplicate_keys="error")
    assert (prepared.samples, prepared.facts.readable_by_energon) == (3, True)
    assert fix_duplicates(tmp_path) == []


def test_a_part_twice_gets_a_number(tmp_path: Path) -> None:
    members = (("a.jpg", b"1"), ("a.JPG", b"2"), ("a.txt", b"t"), ("a.jpg", b"3"))
    _tar(tmp_path / "x.tar", *members)
    _tar(tmp_path / "y.tar", ("b.txt", b"t"))
    assert fix_duplicates(tmp_path) == ["x.tar"]
    names = [name for name, _ in _read(tmp_path / "x.tar")]
    assert names == ["a.jpg", "a.2.JPG", "a.txt", "a.3.jpg"]
    assert prepare_dataset(tmp_path, num_workers=1).samples == 2
    _tar(tmp_path / "x.tar", *members)
    fix_duplicates(tmp_path, rule="last-dot")
    assert prepare_dataset(tmp_path, num_workers=1, rule="last-dot").samples == 2


def test_hard_links_become_files(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        member = tarfile.TarInfo("./a.jpg")
        member.size = 5
        tar.addfile(member, io.BytesIO(b"bytes"))
        link = tarfile.TarInfo("b.jpg")
        link.type, link.linkname = tarfile.LNKTYPE, "a.jpg"
        tar.addfile(link)
    _tar(tmp_path / "y.tar", ("b.jpg", b"other"))
    assert fix_duplicates(tmp_path) == ["x.tar", "y.tar"]
    assert _read(tmp_path / "x.tar") == [("x.tar/./a.jpg", b"bytes"), ("x.tar/b.jpg", b"bytes")]


def test_an_interrupted_run_can_be_repeated(tmp_path: Path) -> None:
    _tar(tmp_path / "x.tar", ("x.tar/a.txt", b"done"))
    _tar(tmp_path / "y.tar", ("a.txt", b"1"))
    _tar(tmp_path / "z.tar", ("a.txt", b"2"))
    assert fix_duplicates(tmp_path) == ["y.tar", "z.tar"]
    assert [name for name, _ in _read(tmp_path / "x.tar")] == ["x.tar/a.txt"]


def test_a_broken_shard_stops_it_before_anything_is_renamed(tmp_path: Path) -> None:
    for name in ("x.tar", "y.tar", "z.tar"):
        _tar(tmp_path / name, ("a.txt", b"1" * 600))
    os.truncate(tmp_path / "z.tar", 900)
    before = (tmp_path / "x.tar").read_bytes()
    with pytest.raises(BadShardsError, match=r"\[truncated\] z\.tar"):
        fix_duplicates(tmp_path)
    assert (tmp_path / "x.tar").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.tar", "y.tar", "z.tar"]


def test_a_full_disk_leaves_the_old_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("x.tar", "y.tar"):
        _tar(tmp_path / name, ("a.txt", b"1" * 600))
    before = (tmp_path / "x.tar").read_bytes()
    real = Path.replace

    def replace(source: Path, target: Any) -> Any:
        if str(target).endswith("x.tar"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(source, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(StorageError, match="No space left"):
        fix_duplicates(tmp_path)
    assert (tmp_path / "x.tar").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.tar", "y.tar"]


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("x.tar", "y.tar"):
        _tar(tmp_path / name, ("a.txt", b"1"), ("a.txt", b"2"))
    words = ["prepare", str(tmp_path), "--split-ratio=1,0,0", "--skip-dataset-yaml", "--num-workers=2"]
    assert run(words) == 1
    assert "[duplicate] x.tar: sample 'a' has two parts called 'txt', at bytes 0 and 1,024" in capsys.readouterr().err
    assert run([*words, "--fix-duplicates"]) == 0
    told = capsys.readouterr()
    assert "Rewrote 2 shards." in told.out
    assert [name for name, _ in _read(tmp_path / "y.tar")] == ["y.tar/a.txt", "y.tar/a.2.txt"]
    assert run([*words, "--fix-duplicates", "--force-overwrite"]) == 0
    assert "No duplicate keys found." in capsys.readouterr().out
