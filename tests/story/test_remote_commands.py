"""The commands on a data set in a store: prepared, looked at, checked, by shares, beside the same on a disk."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.contract.remote_sets import BUCKET, remote_files, upload, use_server, write_tar
from tests.contract.s3_server import s3_server

from omniloom.data.convert import staged_output
from omniloom.errors import StorageError
from omniloom.storage.open import open_store
from omniloom.tools.main import run

pytestmark = pytest.mark.usefixtures("_own_cache")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server("sets") as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture
def _own_cache(tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_server(monkeypatch, endpoint)
    monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMNILOOM_SIDECAR_SECONDS", "0")


def _png(side: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (side, 8), (side, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def _images(root: Path, *, spoiled: int | None = None) -> Path:
    for shard in range(3):
        members: list[tuple[str, bytes]] = []
        for row in range(4):
            number = 4 * shard + row
            data = b"no image" if number == spoiled else _png(10 + number)
            members += [(f"{number:02d}.png", data), (f"{number:02d}.txt", b"word")]
        write_tar(root / f"s{shard}.tar", members)
    return root


def _json(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert run(list(words)) == code
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def _run(*words: str) -> int:
    try:
        return run(list(words))
    except SystemExit as end:
        return int(str(end.code))


PREPARE = (
    "--non-interactive", "--split-ratio", "2,1,0", "--sample-type", "CaptioningSample",
    "--field-map", '{"image": "png", "caption": "txt"}',
)  # fmt: skip


def test_every_command_says_of_a_store_what_it_says_of_a_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = _images(tmp_path / "set")
    upload(root, f"{BUCKET}/story")
    places = (str(root), f"{BUCKET}/story")
    for place in places:
        assert run(["prepare", place, *PREPARE]) == 0
    told = capsys.readouterr().out
    assert "requests, which took" in told
    assert f"Wrote {BUCKET}/story/.nv-meta/dataset.yaml" in told
    here, there = (_json(capsys, "info", place, "--json") for place in places)
    assert {**here, "path": "", "name": ""} == {**there, "path": "", "name": ""}
    assert (there["samples"], there["size_bytes"], there["missing_shards"]) == (12, here["size_bytes"], [])
    assert there["key_database"]
    shown = []
    for place in places:
        assert run(["preview", place, "--json", "--count", "20"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    here, there = (_json(capsys, "lint", place, "--json") for place in places)
    assert here == there
    media = []
    for place in places:
        found = _json(capsys, "prepare-media", place, "--media-metadata-by-extension", "--json")
        media.append({**found, "root": ""})
    assert media[0] == media[1]
    assert media[1]["media_indexed"] == 12
    again = _json(capsys, "prepare-media", places[1], "--media-metadata-by-extension", "--json")
    assert (again["looked_at"], again["unchanged"]) == (0, 3)


def test_lint_finds_the_bad_sample_of_a_store_and_excludes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upload(_images(tmp_path / "set", spoiled=5), f"{BUCKET}/spoiled")
    place = f"{BUCKET}/spoiled"
    assert run(["prepare", place, *PREPARE, "--no-progress"]) == 0
    for executor in ((), ("--executor", "processes://2")):
        assert _run("lint", place, "--json", *executor) == 1
        report = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert report["bad_samples"] == 1
        assert report["findings"][0]["key"] == "05"
    found = [_run("lint", place, "--json", "--shard-range", f"{share}/3") for share in range(3)]
    assert found == [0, 1, 0]  # of three jobs, the one whose share holds the bad sample
    assert _run("lint", place, "--exclude-bad", "--shard-range", "0/3") == 2
    capsys.readouterr()
    assert _run("lint", place, "--exclude-bad") == 1
    assert b"s1.tar/05" in remote_files(place)[".nv-meta/split.yaml"]
    assert _run("lint", place) == 0


def test_shares_and_a_merge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    upload(_images(tmp_path / "set"), f"{BUCKET}/merged")
    place = f"{BUCKET}/merged"
    for share in ("0/2", "1/2"):
        assert run(["prepare", place, "--shard-range", share]) == 0
    assert "Scanned 1 of 3 shards" in capsys.readouterr().out
    assert run(["merge", place, *PREPARE]) == 0
    assert "3 of them unchanged since an earlier scan" in capsys.readouterr().out
    assert not [name for name in remote_files(place) if ".partial" in name]


def test_a_sidecar_elsewhere_is_a_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    upload(_images(tmp_path / "set"), f"{BUCKET}/frozen")
    before = remote_files(f"{BUCKET}/frozen")
    meta = str(tmp_path / "meta")
    assert run(["prepare", f"{BUCKET}/frozen", *PREPARE, "--meta-dir", meta]) == 0
    assert remote_files(f"{BUCKET}/frozen") == before
    capsys.readouterr()
    facts = _json(capsys, "info", meta, "--json")
    assert (facts["samples"], facts["missing_shards"], facts["sample_type"]) == (12, [], "CaptioningSample")
    assert run(["lint", meta]) == 0
    assert run(["preview", meta, "--count", "1"]) == 0


def test_what_is_not_there_and_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"{BUCKET}/nothing?secret_access_key=sesame-opens"
    assert run(["info", url]) == 1
    assert run(["prepare", url, "--non-interactive", "--split-ratio", "1,0,0"]) == 1
    told = capsys.readouterr()
    assert "s3://sets/nothing" in told.err
    assert "sesame" not in told.err + told.out
    assert open_store(BUCKET).exists(f"{BUCKET}/nothing") is False


def _llava(root: Path, count: int = 7) -> Path:
    (root / "images").mkdir(parents=True)
    entries = []
    for number in range(count):
        (root / "images" / f"{number}.png").write_bytes(_png(20 + number))
        talk = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": f"The {number}."}]
        entries.append({"id": f"e{number}", "image": f"{number}.png", "conversations": talk})
    (root / "train.json").write_text(json.dumps(entries))
    return root


def test_a_conversion_into_a_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _llava(tmp_path / "llava")
    place = f"{BUCKET}/converted"
    words = ["convert", "llava", str(source / "train.json"), "--images", str(source / "images"), "--max-count", "3"]
    assert run([*words, "--out", str(tmp_path / "here")]) == 0
    sent: list[str] = []

    def break_off(path: Path, url: str) -> None:
        if len(sent) == 2:
            raise StorageError("the line is down")
        sent.append(url)
        copy(path, url)

    copy = staged_output.copy_there
    monkeypatch.setattr(staged_output, "_THREADS", 1)
    with monkeypatch.context() as patch:
        patch.setattr(staged_output, "copy_there", break_off)
        assert run([*words, "--out", place]) == 1
    assert not [name for name in remote_files(place) if name.endswith(".info.json")]
    capsys.readouterr()
    assert run([*words, "--out", place]) == 0
    assert f"{place} is ready" in capsys.readouterr().out
    here = {
        path.relative_to(tmp_path / "here").as_posix(): path.read_bytes()
        for path in (tmp_path / "here").rglob("*")
        if path.is_file()
    }
    there = remote_files(place)
    assert set(there) == set(here)
    varying = {".nv-meta/omniloom.json", ".nv-meta/index.uuid"}
    for name, data in here.items():
        if not name.startswith(".nv-meta/parts/") and name not in varying:
            assert there[name] == data, name
    assert run(["lint", place]) == 0
    assert run([*words, "--out", place]) == 1
    assert "no conversion of this machine is writing" in capsys.readouterr().err
    assert run([*words, "--out", place, "--overwrite"]) == 0
