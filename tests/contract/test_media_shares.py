"""Media looked at by shares, on a disk and in a store: put together they are what one run finds."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import omniloom as ol
from omniloom.data.index.media_filter import MediaFilterConfig
from omniloom.data.index.media_prepare import add_media_metadata
from omniloom.data.index.media_shares import SHARES_FOLDER, look_at_share
from omniloom.data.index.shard_share import ShardRange
from omniloom.tools.main import run
from tests.contract.remote_sets import BUCKET, remote_files, upload, use_server, write_tar
from tests.contract.s3_server import s3_server

BY_EXTENSION = MediaFilterConfig.parse(None, False, True)
OPTIONS = ("--media-metadata-by-extension", "--json")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server("sets") as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_server(monkeypatch, endpoint)
    monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMNILOOM_SIDECAR_SECONDS", "0")


def _png(side: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (side, 8)).save(buffer, "PNG")
    return buffer.getvalue()


def _shards(root: Path) -> Path:
    for shard in range(5):
        keys = [f"{shard}{row}" for row in range(3)]
        members = [(f"{key}.png", b"no image" if key == "42" else _png(10 + int(key))) for key in keys]
        write_tar(root / f"s{shard}.tar", members)
    ol.prepare_dataset(root, split_ratio={"train": 1.0}, num_workers=1)
    return root


def _content(database: bytes, tmp_path: Path) -> dict[str, list[Any]]:
    """Everything that is known of media, but for when a filter was first used and when a file was changed."""
    path = tmp_path / "look.sqlite"
    path.write_bytes(database)
    with contextlib.closing(sqlite3.connect(path)) as opened:
        queries = {
            "media": "SELECT * FROM media_metadata ORDER BY 1",
            "filters": "SELECT filter_id, strategy, patterns FROM media_filters ORDER BY 1",
            "sources": "SELECT source, strategy, size_bytes, rows, faults FROM omniloom_media_sources ORDER BY 1",
        }
        return {name: opened.execute(query).fetchall() for name, query in queries.items()}


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run(list(words)) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("in_store", [False, True])
def test_shares_put_together_are_one_run(in_store: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = _shards(tmp_path / "one")
    whole = _json(capsys, "prepare-media", str(one), *OPTIONS)
    assert (whole["media_indexed"], len(whole["faults"])) == (14, 1)
    many = _shards(tmp_path / "many")
    place = f"{BUCKET}/many" if in_store else str(many)
    if in_store:
        upload(many, place)

    def files() -> dict[str, bytes]:
        return (
            remote_files(place) if in_store else {p.name: p.read_bytes() for p in (many / ".nv-meta").rglob("*.sqlite")}
        )

    before = files()
    shares = [_json(capsys, "prepare-media", place, *OPTIONS, "--shard-range", f"{n}/3") for n in (0, 2)]
    assert [(share["media_found"], share["looked_at"]) for share in shares] == [(6, 2), (3, 1)]
    assert len(files()) == len(before) + 2
    again = _json(capsys, "prepare-media", place, *OPTIONS, "--shard-range", "0/3")
    assert again["looked_at"] == 0  # nothing of it is done twice
    merged = _json(capsys, "prepare-media", place, *OPTIONS)
    assert (merged["looked_at"], merged["unchanged"]) == (2, 3)  # what the lost share was to look at
    assert merged["media_indexed"] == 14
    name = ".nv-meta/index.sqlite" if in_store else "index.sqlite"
    assert set(files()) == set(before)
    assert _content(files()[name], tmp_path) == _content((one / ".nv-meta/index.sqlite").read_bytes(), tmp_path)
    assert not (many / ".nv-meta" / SHARES_FOLDER).exists()


def test_shares_of_a_folder_of_files_and_of_another_filter(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    for number in range(7):
        (root / f"{number}.png").write_bytes(_png(number + 1))
    found = [look_at_share(root, share=ShardRange(n, 2), media_filter=BY_EXTENSION, num_workers=1) for n in range(2)]
    assert [(one.rows, one.total) for one in found] == [(4, 4), (3, 3)]
    by_glob = MediaFilterConfig.parse("[0-2].png", False, False)
    assert add_media_metadata(root, media_filter=by_glob).rows_total == 3  # what other filters found is not taken
    left = sorted((root / ".nv-meta" / SHARES_FOLDER).iterdir())
    assert len(left) == 2
    left[0].write_bytes(b"cut short by a crash")
    merged = add_media_metadata(root, media_filter=BY_EXTENSION)
    assert (merged.rows_total, merged.looked_at) == (7, 4)
    assert not (root / ".nv-meta" / SHARES_FOLDER).exists()


def test_a_share_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = _shards(tmp_path / "set")
    assert run(["prepare-media", str(root), "--media-metadata-by-extension", "--shard-range", "3/3"]) == 2
    assert "expected i/n" in capsys.readouterr().err
