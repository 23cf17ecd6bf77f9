"""Conversions by several machines: shares of one data set, made by executors or one by one, in a store or on a disk."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from tests.contract.remote_sets import BUCKET, remote_files, upload, use_server, write_tar
from tests.contract.s3_server import s3_server

from omniloom.data.convert.shares import joined_config
from omniloom.tools.main import run

pytestmark = pytest.mark.usefixtures("_own_cache")
SHARES = 3


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server("sets") as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture
def _own_cache(tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_server(monkeypatch, endpoint)
    monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMNILOOM_SIDECAR_SECONDS", "0")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "llava"
    (root / "images").mkdir(parents=True)
    entries = []
    for number in range(10):
        kind = "PNG" if number % 4 else "JPEG"
        buffer = io.BytesIO()
        Image.new("RGB", (8 + number, 8), (number, 0, 0)).save(buffer, kind)
        (root / "images" / f"{number}.img").write_bytes(buffer.getvalue())
        talk = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": f"The {number}."}]
        entries.append({"id": f"e{number}", "image": f"images/{number}.img", "conversations": talk})
    (root / "train.json").write_text(json.dumps(entries))
    return root


def words(source: Path | str, out: Path | str, *more: str) -> list[str]:
    return ["convert", "llava", f"{source}/train.json", "--out", str(out), "--max-count", "2", *more, "--no-progress"]


def archives(folder: Path) -> dict[str, bytes]:
    """Shards and their indexes; tables of parts hold times."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.tar*"))}
    return {name: data for name, data in found.items() if ".nv-meta" not in name}


def test_who_makes_the_shares_makes_no_difference(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (2, 0):
        assert run(words(source, tmp_path / "one", "--shard-range", f"{number}/{SHARES}")) == 0
    assert f"omniloom merge {tmp_path / 'one'}" in capsys.readouterr().out
    assert run(["merge", str(tmp_path / "one")]) == 1
    assert "1 of 3 shares are missing or not finished: share-001-of-003" in capsys.readouterr().err
    assert run(words(source, tmp_path / "one", "--shard-range", f"1/{SHARES}")) == 0
    assert run(["merge", str(tmp_path / "one"), "--split-ratio", "1,0,0"]) == 0
    assert "10 samples in 5 shards" in capsys.readouterr().out
    assert run(words(source, tmp_path / "other", "--shares", str(SHARES), "--executor", "processes://2")) == 0
    assert archives(tmp_path / "one") == archives(tmp_path / "other")
    config = (tmp_path / "one" / ".nv-meta" / "dataset.yaml").read_text()
    assert config == (tmp_path / "other" / ".nv-meta" / "dataset.yaml").read_text()
    assert "VQASample" in config
    assert run(["lint", str(tmp_path / "other")]) == 0
    # The windows of two entries went to the shares in turn.
    assert len(list((tmp_path / "one" / "share-000-of-003").glob("*.tar"))) == 2


def test_from_a_store_into_a_store(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    upload(source, f"{BUCKET}/llava")
    place = f"{BUCKET}/shared"
    assert run(words(source, tmp_path / "here", "--shares", "7", "--executor", "threads://2")) == 0
    there = words(f"{BUCKET}/llava", place, "--shares", "7", "--executor", "threads://3", "--json")
    assert run(there) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["samples"], summary["images"], summary["shards"]) == (10, 10, 5)
    made = {name: data for name, data in remote_files(place).items() if ".tar" in name and ".nv-meta" not in name}
    assert made == archives(tmp_path / "here")
    assert run(["lint", place]) == 0
    assert run(there) == 0  # all shares are there: nothing is made again
    assert run(["info", place]) == 0


def test_shares_of_one_type_keep_it_and_others_become_crude() -> None:
    question = {"sample_type": {"__class__": "VQASample"}, "field_map": {"image": "png", "context": "json[0][value]"}}
    photographs = {**question, "field_map": {"image": "jpg,png", "context": "json[0][value]"}}
    assert joined_config([question, question]) == question
    assert joined_config([question, photographs])["field_map"] == {"image": "png,jpg", "context": "json[0][value]"}
    crude = {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}
    assert joined_config([question, crude])["__class__"] == "CrudeWebdataset"


def test_archives_of_a_store_are_unpacked_into_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = tmp_path / "plain"
    for number in range(3):
        write_tar(plain / f"s{number}.tar", [(f"{number}-{row}.txt", b"text " * 400) for row in range(20)])
        packed = tmp_path / "packed" / "sub" / f"s{number}.tar.gz"
        packed.parent.mkdir(parents=True, exist_ok=True)
        packed.write_bytes(gzip.compress((plain / f"s{number}.tar").read_bytes()))
    (tmp_path / "packed" / "sub" / "cut.tar.gz").write_bytes(packed.read_bytes()[:-20])
    upload(tmp_path / "packed", f"{BUCKET}/packed")
    unpack = ["convert", "tar", f"{BUCKET}/packed", "--out", f"{BUCKET}/unpacked", "--json", "--no-progress"]
    assert run([*unpack, "--num-workers", "2"]) == 1
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(found["written"]) == 3
    assert [fault["reason"] for fault in found["faults"]] == ["truncated"]
    there = remote_files(f"{BUCKET}/unpacked")
    assert there == {f"sub/s{n}.tar": (plain / f"s{n}.tar").read_bytes() for n in range(3)}
    assert run([*unpack, "--executor", "threads://2"]) == 1
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["kept"]) == 3
    one = ["convert", "tar", f"{BUCKET}/packed/sub/s1.tar.gz", "--out", str(tmp_path / "one.tar"), "--no-progress"]
    assert run(one) == 0
    assert (tmp_path / "one.tar").read_bytes() == (plain / "s1.tar").read_bytes()


def test_duplicates_of_a_store_are_not_renamed_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tar(tmp_path / "twice" / "s0.tar", [("a.txt", b"1"), ("a.txt", b"2")])
    upload(tmp_path / "twice", f"{BUCKET}/twice")
    assert run(["prepare", f"{BUCKET}/twice", "--fix-duplicates", "--split-ratio", "1,0,0", "--non-interactive"]) == 1
    assert "`omniloom prepare --fix-duplicates FOLDER`" in capsys.readouterr().err
