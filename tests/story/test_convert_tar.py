"""A person has compressed archives and wants shards: one, a folder, damaged ones, a second run."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from omniloom.tools.main import run


def _archive(count: int) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for number in range(count):
            for part in ("jpg", "txt"):
                info = tarfile.TarInfo(f"{number:04d}.{part}")
                info.size = 1000 + number
                archive.addfile(info, io.BytesIO(bytes([number % 256]) * info.size))
    return stream.getvalue()


def _zstd(data: bytes) -> bytes:
    zstandard = pytest.importorskip("zstandard", reason="in the extra 'zstd'")
    return bytes(zstandard.ZstdCompressor().compress(data))


@pytest.mark.parametrize(
    ("name", "compress"),
    [
        ("a.tar.gz", gzip.compress),
        ("a.tgz", gzip.compress),
        ("a.tar.bz2", bz2.compress),
        ("a.tar.xz", lzma.compress),
        ("a.tar.zst", _zstd),
        ("a.tar", gzip.compress),
    ],
)
def test_one_archive_becomes_the_same_bytes(name: str, compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    plain = _archive(5)
    (tmp_path / name).write_bytes(compress(plain))
    target = tmp_path / "plain" / "b.tar"
    assert run(["convert", "tar", str(tmp_path / name), "--out", str(target)]) == 0
    assert target.read_bytes() == plain


def test_the_command_that_prepare_names_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(_archive(3)))
    prepare = ["prepare", str(tmp_path), "--non-interactive", "--split-ratio", "1,0,0", "--num-workers", "1"]
    assert run(prepare) == 1
    command = capsys.readouterr().err.split("`omniloom ", 1)[1].split("`", 1)[0]
    assert run(command.split()) == 0
    (tmp_path / "a.tar.gz").unlink()
    assert run(prepare) == 0
    assert json.loads((tmp_path / ".nv-meta/.info.json").read_text())["shard_counts"] == {"a.tar": 3}


def test_a_folder_a_damaged_archive_and_a_second_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    (source / "sub").mkdir(parents=True)
    (source / "a.tar.gz").write_bytes(gzip.compress(_archive(2)))
    (source / "sub" / "b.tgz").write_bytes(gzip.compress(_archive(3)))
    (source / "hidden.tar").write_bytes(gzip.compress(_archive(4)))
    (source / "plain.tar").write_bytes(_archive(1))
    damaged = gzip.compress(_archive(50), mtime=0)
    (source / "bad.tar.gz").write_bytes(damaged[: len(damaged) // 2])
    words = ["convert", "tar", str(source), "--out", str(out)]
    assert run(words) == 1
    text, errors = capsys.readouterr()
    assert "Wrote 3 plain archives" in text
    assert "bad.tar.gz: the compressed file is cut" in errors
    written = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert written == {"a.tar": _archive(2), "sub/b.tar": _archive(3), "hidden.plain.tar": _archive(4)}
    (source / "bad.tar.gz").write_bytes(damaged)
    assert run([*words, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["written"] == [str(out / "bad.tar")]
    assert len(summary["kept"]) == 3
    assert summary["faults"] == []
    assert run([*words, "--overwrite", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["written"]) == 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        ([], "there is no such file or folder"),
        (["x/plain.tar"], "no compressed archive below it; 1 plain ones"),
        (["x/a.tgz", "x/a.tar.gz"], "would both become"),
    ],
)
def test_refusals(make: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in make:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(_archive(1) if path.suffix == ".tar" else gzip.compress(_archive(1)))
    assert run(["convert", "tar", str(tmp_path / "x"), "--out", str(tmp_path / "out")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_plain_archive_is_refused_with_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tar").write_bytes(_archive(1))
    assert run(["convert", "tar", str(tmp_path / "a.tar"), "--out", str(tmp_path / "b.tar")]) == 1
    assert "no compression that can be unpacked" in capsys.readouterr().err
    assert not (tmp_path / "b.tar").exists()
