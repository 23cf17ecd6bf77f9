"""Checking shards in a store, and their media: in few long ranges, however many samples, with the same findings."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

import omniloom as ol
from omniloom.data.index.lint import lint_dataset
from omniloom.data.index.lint_shard import KEPT_BYTES
from omniloom.data.index.media_filter import MediaFilterConfig
from omniloom.data.index.media_prepare import add_media_metadata
from omniloom.data.index.media_store import MediaMetadataTable
from omniloom.data.index.source_kind import find_source
from omniloom.data.source_tools import lint_source
from omniloom.errors import StoreAwayError
from omniloom.tools.main import run
from tests.contract.fault_proxy import Fault, FaultProxy
from tests.contract.remote_sets import BUCKET, upload, use_server, write_tar
from tests.contract.s3_server import s3_server


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with s3_server("sets") as place:
        yield place


@pytest.fixture
def proxy(server: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    proxy = FaultProxy(server)
    use_server(monkeypatch, proxy.url)
    monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
    yield proxy
    proxy.stop()


def _png(seed: int, side: int) -> bytes:
    buffer = io.BytesIO()
    Image.frombytes("RGB", (side, side), random.Random(seed).randbytes(3 * side * side)).save(buffer, "PNG")
    return buffer.getvalue()


def _made(root: Path, *, shards: int, rows: int, side: int, spoiled: int = -1) -> Path:
    for shard in range(shards):
        members: list[tuple[str, bytes]] = []
        for number in range(shard * rows, (shard + 1) * rows):
            image = _png(number, side)
            members += [(f"{number:05d}.png", image[:-40] if number == spoiled else image), (f"{number:05d}.txt", b"w")]
        write_tar(root / f"s{shard}.tar", members)
    ol.prepare_dataset(root, split_ratio={"train": 1.0}, num_workers=1)
    return root


def _asked(proxy: FaultProxy, suffix: str = ".tar") -> tuple[int, int]:
    """Requests for shards, and the bytes that they asked for."""
    ranges = [one.range for one in proxy.seen if one.path.partition("?")[0].endswith(suffix) and one.range]
    return len(ranges), sum(_length(text) for text in ranges)


def _length(text: str) -> int:
    first, last = text.removeprefix("bytes=").split("-")
    return int(last) - int(first) + 1


def test_a_tiny_shard_is_read_once_in_a_handful_of_requests(proxy: FaultProxy, tmp_path: Path) -> None:
    root = _made(tmp_path / "tiny", shards=1, rows=24, side=20)
    upload(root, f"{BUCKET}/tiny")
    proxy.seen.clear()
    report = lint_dataset(f"{BUCKET}/tiny")
    assert (report.samples, report.bad_samples) == (24, 0)
    requests, size_bytes = _asked(proxy)
    assert requests <= 6
    assert size_bytes <= 1.5 * (root / "s0.tar").stat().st_size
    assert len(proxy.seen) <= 20  # with the listings and the small files of the index


def test_requests_grow_with_bytes_and_not_with_samples(
    proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _made(tmp_path / "many", shards=2, rows=300, side=64, spoiled=450)
    upload(root, f"{BUCKET}/many")
    shard_bytes = (root / "s0.tar").stat().st_size
    assert shard_bytes < KEPT_BYTES
    monkeypatch.setattr("omniloom.data.index.lint_shard.BATCH_BYTES", 1 << 20)
    for kept_bytes, times in ((KEPT_BYTES, 1.2), (1 << 20, 2.1)):  # read once, or once for headers and once for parts
        monkeypatch.setattr("omniloom.data.index.lint_shard.KEPT_BYTES", kept_bytes)
        proxy.seen.clear()
        report = lint_dataset(f"{BUCKET}/many", num_workers=1)
        assert [finding.key for finding in report.findings if finding.level == "error"] == ["00450"]
        assert report.samples == 600
        requests, size_bytes = _asked(proxy)
        assert requests <= 2 * 30  # windows that double up to 8 MiB, and batches of 1 MiB
        assert size_bytes <= times * 2 * shard_bytes


def test_records_are_checked_in_long_ranges(proxy: FaultProxy, tmp_path: Path) -> None:
    root = tmp_path / "records"
    root.mkdir()
    lines = [json.dumps({"n": number, "text": "word " * 40}) + "\n" for number in range(500)]
    lines[333] = "{no json}\n"
    (root / "a.jsonl").write_text("".join(lines))
    assert run(["prepare", str(root), "--non-interactive"]) == 0
    upload(root, f"{BUCKET}/records")
    place = f"{BUCKET}/records"
    here = lint_source(find_source(str(root)))
    for workers in (1, 2):
        proxy.seen.clear()
        there = lint_source(find_source(place), num_workers=workers)
        assert (there.samples, there.bad_samples, there.quarantine) == (500, 1, ["a.jsonl/333"])
        assert (there.counts, there.quarantine) == (here.counts, here.quarantine)
        requests, size_bytes = _asked(proxy, ".jsonl")
        assert requests <= 8
        assert size_bytes <= 1.3 * (root / "a.jsonl").stat().st_size
        assert len(proxy.seen) <= 40


def test_files_are_asked_for_many_at_a_time(proxy: FaultProxy, tmp_path: Path) -> None:
    root = tmp_path / "loose"
    root.mkdir()
    for number in range(40):
        (root / f"{number:02d}.png").write_bytes(_png(number, 12))
    upload(root, f"{BUCKET}/loose")
    proxy.delay_seconds = 0.05
    report = lint_source(find_source(f"{BUCKET}/loose"))
    assert (report.samples, report.bad_samples) == (40, 0)
    asked = [one.at_seconds for one in proxy.seen if one.path.endswith(".png") and one.method == "GET"]
    assert len(asked) <= 2 * 40
    assert max(asked) - min(asked) < 40 * 0.05 / 2  # one after the other they would take so long twice


def test_faults_that_pass_are_not_those_of_samples(proxy: FaultProxy, tmp_path: Path) -> None:
    root = _made(tmp_path / "rough", shards=1, rows=24, side=20)
    upload(root, f"{BUCKET}/rough")
    proxy.plan("s0.tar", Fault(status=503), Fault(reset_at=0.5), Fault(short=0.6), None)
    report = lint_dataset(f"{BUCKET}/rough")
    assert (report.samples, report.bad_samples) == (24, 0)
    assert not proxy.faults["s0.tar"]


def test_a_store_that_is_away_ends_it_and_blames_no_sample(
    proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _made(tmp_path / "away", shards=1, rows=24, side=20)
    upload(root, f"{BUCKET}/away")
    monkeypatch.setenv("OMNILOOM_STORAGE_RETRY_SECONDS", "0.5")
    monkeypatch.setattr("omniloom.storage.open._OPENED", {})
    proxy.plan("s0.tar", None, *[Fault(status=503)] * 50)
    with pytest.raises(StoreAwayError, match=r"s0\.tar"):
        lint_dataset(f"{BUCKET}/away")


def test_headers_of_images_are_read_in_long_ranges(proxy: FaultProxy, tmp_path: Path) -> None:
    root = _made(tmp_path / "heads", shards=1, rows=200, side=40)
    upload(root, f"{BUCKET}/heads")
    media_filter = MediaFilterConfig.parse(None, False, True)
    proxy.seen.clear()
    there = add_media_metadata(f"{BUCKET}/heads", media_filter=media_filter)
    assert (there.rows, there.faults) == (200, ())
    requests, size_bytes = _asked(proxy)
    assert requests <= 12
    assert size_bytes <= 1.5 * (root / "s0.tar").stat().st_size
    here = add_media_metadata(root, media_filter=media_filter)
    assert (here.rows, here.rows_total) == (there.rows, there.rows_total)
    keys = [f"{number:05d}.png" for number in range(200)]
    assert MediaMetadataTable(f"{BUCKET}/heads").get_many(keys) == MediaMetadataTable(root).get_many(keys)
