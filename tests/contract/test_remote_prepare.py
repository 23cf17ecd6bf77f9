"""Data sets in a store are prepared there: the same sidecar as on a disk, few bytes read, interruptions survived."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omniloom as ol
from omniloom.data.index import stage as stage_module
from omniloom.data.index.dataset import open_dataset
from omniloom.data.index.prepare import prepare_dataset
from omniloom.data.index.shard_range import scan_shard_range
from omniloom.data.index.shard_share import ShardRange, parse_shard_range
from omniloom.data.shards.parts_table import read_parts_table
from omniloom.data.shards.remote_archive import LinkSpeed, RemoteArchive
from omniloom.data.shards.scan import scan_shard
from omniloom.errors import BadShardsError, ConfigError, DatasetError, StorageError
from omniloom.storage.open import open_store
from tests.contract.remote_sets import BUCKET, remote_files, upload, use_server, write_tar
from tests.contract.s3_server import s3_server

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


def _shards(root: Path, count: int = 4, *, rows: int = 5, start: int = 0) -> Path:
    for shard in range(start, start + count):
        members = [(f"{shard}-{row}.{part}", b"%d" % row * 9) for row in range(rows) for part in ("jpg", "json")]
        write_tar(root / f"d{shard % 2}" / f"s{shard}.tar", members)
    return root


def _plain(name: str, data: bytes, folder: Path) -> Any:
    """What a file of a sidecar says, without the time of the last change of its shard."""
    path = folder / "one"
    path.write_bytes(data)
    if name.endswith(".parts"):
        return read_parts_table(path)
    if name.endswith("omniloom.json"):
        facts = json.loads(data)
        return facts | {"index_uuid": "", "shards": {shard: mark[:3] for shard, mark in facts["shards"].items()}}
    if name.endswith(".sqlite"):
        with sqlite3.connect(path) as database:
            return list(database.iterdump())
    return data


def _sidecar(files: dict[str, bytes], folder: Path) -> dict[str, Any]:
    return {
        name: _plain(name, data, folder) for name, data in files.items() if not name.endswith((".tar", "index.uuid"))
    }


def _local_files(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_the_sidecar_made_in_a_store_is_that_of_the_disk(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set")
    upload(root, f"{BUCKET}/plain")
    there = prepare_dataset(f"{BUCKET}/plain", split_ratio="3,1,0")
    here = prepare_dataset(root, split_ratio="3,1,0", num_workers=1)
    assert (there.shard_counts, there.split_parts, there.samples) == (here.shard_counts, here.split_parts, 20)
    assert there.root == f"{BUCKET}/plain"
    assert _sidecar(remote_files(f"{BUCKET}/plain"), tmp_path) == _sidecar(_local_files(root), tmp_path)
    config = ol.WorkerConfig(rank=0, world_size=1, num_workers=0)
    for path in (root, f"{BUCKET}/plain"):
        described = json.dumps({"__module__": "megatron.energon", "__class__": "CrudeWebdataset"})
        if isinstance(path, Path):
            (path / ".nv-meta/dataset.yaml").write_text(described)
        else:
            open_store(path).write(f"{path}/.nv-meta/dataset.yaml", described.encode())
    encoder = ol.DefaultTaskEncoder()
    encoder.decoder = None
    read = []
    for path in (root, f"{BUCKET}/plain"):
        dataset = ol.get_val_dataset(str(path), worker_config=config, batch_size=None, task_encoder=encoder)
        read.append([sample["__key__"] for sample in ol.get_loader(dataset)])
    assert read[0] == read[1] == [f"3-{row}" for row in range(5)]


def test_a_second_run_scans_nothing_and_new_shards_alone(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set", 2)
    upload(root, f"{BUCKET}/grown")
    assert prepare_dataset(f"{BUCKET}/grown").reused == 0
    before = remote_files(f"{BUCKET}/grown")
    again = prepare_dataset(f"{BUCKET}/grown")
    assert (again.reused, again.transfer) == (2, None)
    assert remote_files(f"{BUCKET}/grown") == before
    upload(_shards(tmp_path / "more", 1, start=2), f"{BUCKET}/grown")
    grown = prepare_dataset(f"{BUCKET}/grown", keep_split=True)
    assert (grown.reused, grown.samples) == (2, 15)
    # One rewritten shard, of the same size, is seen by its ETag.
    members = [(f"x-{row}.{part}", b"%d" % row * 9) for row in range(5) for part in ("jpg", "json")]
    write_tar(tmp_path / "new" / "d0" / "s0.tar", members)
    upload(tmp_path / "new", f"{BUCKET}/grown")
    assert prepare_dataset(f"{BUCKET}/grown", keep_split=True).reused == 2


def test_an_upload_that_breaks_off_leaves_the_old_index_or_a_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(_shards(tmp_path / "set"), f"{BUCKET}/broken")
    sent: list[str] = []

    def break_off(path: Path, url: str) -> None:
        if len(sent) == 3:
            raise StorageError("the line is down")
        sent.append(url)
        copy(path, url)

    copy = stage_module.copy_there
    monkeypatch.setattr(stage_module, "copy_there", break_off)
    monkeypatch.setattr(stage_module, "_THREADS", 1)
    with pytest.raises(StorageError, match="the line is down"):
        prepare_dataset(f"{BUCKET}/broken")
    assert not [name for name in remote_files(f"{BUCKET}/broken") if name.endswith(".info.json")]
    with pytest.raises(DatasetError, match="was interrupted while it put its files in place"):
        open_dataset(f"{BUCKET}/broken")
    monkeypatch.setattr(stage_module, "copy_there", copy)
    resumed = prepare_dataset(f"{BUCKET}/broken")
    assert (resumed.reused, resumed.transfer) == (4, None)  # nothing is read again
    assert open_dataset(f"{BUCKET}/broken").samples == 20
    assert not [name for name in remote_files(f"{BUCKET}/broken") if ".partial" in name]


def test_bad_shards_are_told_and_left_out(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set", 2)
    whole = (root / "d1" / "s1.tar").read_bytes()
    (root / "d1" / "s1.tar").write_bytes(whole[:3_000])
    upload(root, f"{BUCKET}/bad")
    with pytest.raises(BadShardsError, match=r"1 of 2 shards cannot be used(.|\n)*\[truncated\] d1/s1.tar"):
        prepare_dataset(f"{BUCKET}/bad")
    assert prepare_dataset(f"{BUCKET}/bad", skip_bad_shards=True).samples == 5


# --- what it costs to read


class _Link(LinkSpeed):
    """A link that stays as it is."""

    def count(self, size_bytes: int, seconds: float) -> None:
        """Nothing changes."""


def test_long_members_are_hopped_over(tmp_path: Path) -> None:
    members = [
        part for row in range(12) for part in ((f"{row:02d}.mp4", bytes(10 << 20)), (f"{row:02d}.json", b"{}" * 40))
    ]
    write_tar(tmp_path / "v.tar", members)
    upload(tmp_path, f"{BUCKET}/video")
    archive = RemoteArchive(f"{BUCKET}/video/v.tar")
    archive._speed = _Link(latency_seconds=0.02, bytes_per_second=100e6)  # 2 MB a hop, whatever this machine does
    scan = scan_shard(f"{BUCKET}/video/v.tar", shard="v.tar", archive=archive)
    assert scan == scan_shard(tmp_path / "v.tar", shard="v.tar")
    size_bytes = (tmp_path / "v.tar").stat().st_size
    assert archive.transfer.size_bytes < 0.02 * size_bytes
    assert archive.transfer.requests <= 12 + 4  # a hop for each sample; its small parts come along
    assert archive.transfer.way == "hops"


def test_short_members_are_streamed(tmp_path: Path) -> None:
    generator = random.Random(7)
    members = [(f"{row:04d}.jpg", generator.randbytes(20_000)) for row in range(200)]
    write_tar(tmp_path / "i.tar", members)
    upload(tmp_path, f"{BUCKET}/images")
    archive = RemoteArchive(f"{BUCKET}/images/i.tar")
    archive._speed = _Link(latency_seconds=0.02, bytes_per_second=100e6)
    assert scan_shard(f"{BUCKET}/images/i.tar", shard="i.tar", archive=archive) == scan_shard(
        tmp_path / "i.tar", shard="i.tar"
    )
    assert archive.transfer.way == "stream"
    assert archive.transfer.requests <= 12  # windows double: 4 MB in a few requests
    assert archive.transfer.size_bytes < 1.5 * (tmp_path / "i.tar").stat().st_size


def test_what_was_streamed_is_not_asked_for_again(tmp_path: Path) -> None:
    write_tar(tmp_path / "m.tar", [(f"{row:02d}.jpg", bytes(700_000)) for row in range(40)])
    upload(tmp_path, f"{BUCKET}/middle")
    archive = RemoteArchive(f"{BUCKET}/middle/m.tar")
    archive._speed = _Link(latency_seconds=0.02, bytes_per_second=100e6)
    scan = scan_shard(f"{BUCKET}/middle/m.tar", shard="m.tar", archive=archive)
    assert scan == scan_shard(tmp_path / "m.tar", shard="m.tar")  # its fingerprint is made of all 40 headers
    assert archive.transfer.requests <= 10  # 28 MB in windows of up to 8 MiB, and one look


def test_the_link_is_measured() -> None:
    speed = LinkSpeed()
    for _ in range(50):
        speed.count(4_096, 0.050)
        speed.count(8 << 20, 0.050 + (8 << 20) / 200e6)
    assert speed.latency_seconds == pytest.approx(0.050)
    assert speed.bytes_per_second == pytest.approx(200e6)
    assert speed.worth_a_hop_bytes == 4 << 20  # 10 MB, but for what other shards may do with the link
    assert LinkSpeed(0.01, 200e6).worth_a_hop_bytes == pytest.approx(2e6)


# --- a sidecar elsewhere


@pytest.mark.parametrize("in_store", [False, True])
def test_a_data_set_that_must_not_be_written_to_has_its_sidecar_elsewhere(in_store: bool, tmp_path: Path) -> None:
    root = _shards(tmp_path / "set")
    upload(root, f"{BUCKET}/readonly")
    before = remote_files(f"{BUCKET}/readonly")
    meta = f"{BUCKET}/sidecars/one" if in_store else str(tmp_path / "meta")
    prepare_dataset(f"{BUCKET}/readonly", meta_path=meta)
    assert remote_files(f"{BUCKET}/readonly") == before
    index = open_dataset(meta)
    assert index.shards[0].path == f"{BUCKET}/readonly/d0/s0.tar"
    assert index.shards[3].open(index.rule).read(4) == ("3-4", {"jpg": b"4" * 9, "json": b"4" * 9})


def test_so_has_a_folder_of_this_machine(tmp_path: Path) -> None:
    root = _shards(tmp_path / "set")
    before = _local_files(root)
    prepare_dataset(root, meta_path=tmp_path / "meta", num_workers=1)
    assert _local_files(root) == before
    index = open_dataset(tmp_path / "meta")
    assert index.shards[1].open(index.rule).read(0) == ("2-0", {"jpg": b"0" * 9, "json": b"0" * 9})
    assert prepare_dataset(root, meta_path=tmp_path / "meta", num_workers=1).reused == 4


# --- shares of the work


@pytest.mark.parametrize("in_store", [False, True])
def test_shares_are_put_together_and_lost_ones_done_again(in_store: bool, tmp_path: Path) -> None:
    root = _shards(tmp_path / "set", 7)
    whole = _shards(tmp_path / "whole", 7)
    prepare_dataset(whole, num_workers=1)
    place = f"{BUCKET}/shares" if in_store else str(root)
    if in_store:
        upload(root, place)
    for number in (0, 2):  # the second of three was lost
        scanned = scan_shard_range(place, share=ShardRange(number, 3), num_workers=1)
        assert (scanned.shards, scanned.shards_total) == ({0: 3, 2: 2}[number], 7)
    merged = prepare_dataset(place, num_workers=1)
    assert merged.reused == 5
    files = remote_files(place) if in_store else _local_files(root)
    assert _sidecar(files, tmp_path) == _sidecar(_local_files(whole), tmp_path)


def test_shares_are_written_as_fractions() -> None:
    assert parse_shard_range("15/16") == (15, 16)
    for text in ("16/16", "1", "a/b", "-1/4", "1/0"):
        with pytest.raises(ConfigError, match="expected i/n"):
            parse_shard_range(text)
