"""A data set in a bucket is read as one on disk: the same bytes, order and states, in few requests, through faults."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import omniloom as ol
from omniloom.errors import FatalSampleError
from omniloom.storage.files import replace_file
from omniloom.storage.open import open_store
from omniloom.storage.spool import GAP_BYTES, SPOOL
from tests.contract.fault_proxy import Fault, FaultProxy
from tests.contract.s3_server import environment, s3_server

ROWS = 900
CRUDE = {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with s3_server("data") as place:
        yield place


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sets") / "texts"
    root.mkdir()
    for shard in range(3):
        with ol.TarWriter(root / f"s{shard}.tar") as tar:
            for row in range(shard * 300, shard * 300 + 300):
                tar.add(f"r{row:04d}.txt", f"text {row} ".encode() * (20 + row % 7))
                tar.add(f"r{row:04d}.json", json.dumps({"row": row}).encode())
    ol.prepare_dataset(root, split_ratio={"train": 1.0}, num_workers=1)
    (root / ".nv-meta" / "dataset.yaml").write_text(json.dumps(CRUDE))
    return root


@pytest.fixture
def proxy(server: tuple[str, int], local: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    proxy = FaultProxy(server)
    for name, value in environment(proxy.url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMNILOOM_STORAGE_STALL_SECONDS", "2")
    monkeypatch.setattr("omniloom.storage.open._OPENED", {})
    store = open_store("s3://data")
    if not store.is_folder(root_of(proxy)):
        for path in local.rglob("*"):
            if path.is_file():
                open_store("s3://data").write(f"{root_of(proxy)}/{path.relative_to(local)}", path.read_bytes())
    proxy.seen.clear()
    yield proxy
    proxy.stop()


def root_of(proxy: FaultProxy) -> str:
    return f"s3://data/{proxy.port}/texts"  # the order follows the name of the folder


def config(**settings: Any) -> ol.WorkerConfig:
    return ol.WorkerConfig(**({"rank": 0, "world_size": 1, "num_workers": 0, "lanes": 2} | settings))


def loader(path: Any, **settings: Any) -> Any:
    data = ol.get_train_dataset(str(path), worker_config=config(**settings), batch_size=4)
    return ol.get_savable_loader(data)


def seen(batches: Any) -> list[Any]:
    return [[(key, bytes(text, "utf-8")) for key, text in zip(b["__key__"], b["txt"], strict=True)] for b in batches]


class Measured(ol.DefaultTaskEncoder):
    def token_count(self, sample: Any) -> int:
        return len(sample["txt"])


@pytest.mark.parametrize("workers", [0, 2])
def test_order_bytes_and_states_are_those_of_the_local_disk(proxy: FaultProxy, local: Path, workers: int) -> None:
    near, far = loader(local, num_workers=workers), loader(root_of(proxy), num_workers=workers)
    assert seen(islice(far, 150)) == seen(islice(near, 150))
    assert near.state() == far.state()
    resumed = loader(root_of(proxy), num_workers=workers)
    resumed.restore_state_rank(far.save_state_rank())
    assert seen(islice(resumed, 60)) == seen(islice(near, 60))
    counts = next(iter(far.stats()["datasets"].values()))["store"]
    assert counts["rows_ahead"] >= 600
    assert counts.get("rows_singly", 0) == 0


def test_a_run_of_neighbours_is_one_request(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SPOOL, "peak_bytes", 0)
    far = loader(root_of(proxy), lanes=1)
    seen(islice(far, ROWS // 4))
    tars = [one for one in proxy.seen if ".tar" in one.path and ".idx" not in one.path and one.method == "GET"]
    # 900 rows in runs of at most 64, over 3 shards, and what opening a shard asks for
    assert len(tars) < 90
    peak = next(iter(far.stats()["datasets"].values()))["store"]["spool_peak_bytes"]
    assert 0 < peak <= 4096 * 2048  # rows that are looked ahead at most, of 2 KiB with their headers


def test_without_a_budget_each_row_is_a_request_of_its_own(proxy: FaultProxy, local: Path) -> None:
    far = loader(root_of(proxy), lanes=1, read_ahead_bytes=0)
    assert seen(islice(far, 20)) == seen(islice(loader(local, lanes=1), 20))
    assert sum(".tar" in one.path and one.method == "GET" for one in proxy.seen) >= 80


def test_a_budget_too_small_for_rows_is_kept_and_told(proxy: FaultProxy, local: Path) -> None:
    far = loader(root_of(proxy), lanes=1, read_ahead_bytes=600)
    assert seen(islice(far, 20)) == seen(islice(loader(local, lanes=1), 20))
    assert next(iter(far.stats()["datasets"].values()))["store"]["rows_singly"] > 60


def test_no_more_is_held_than_the_budget(proxy: FaultProxy, local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SPOOL, "peak_bytes", 0)
    held = SPOOL.held_bytes
    far = loader(root_of(proxy), lanes=3, read_ahead_bytes=90_000)
    assert seen(islice(far, 300)) == seen(islice(loader(local, lanes=3), 300))
    assert 45_000 < SPOOL.peak_bytes - held <= 90_000 * 1.25  # and a row of each lane
    (leaf,) = far.stats()["datasets"].values()
    assert leaf["store"]["rows_ahead"] == 1200
    del far
    gc.collect()
    assert SPOOL.held_bytes == held


def test_workers_together_fetch_a_set_about_once(proxy: FaultProxy, local: Path) -> None:
    far = loader(root_of(proxy), num_workers=2, lanes=12)
    assert sum(1 for _ in islice(far, 2 * ROWS // 4))
    store = next(iter(far.stats()["datasets"].values()))["store"]
    size_bytes = sum(path.stat().st_size for path in local.glob("*.tar"))
    # Each worker may come to want every row in the end, and neither fetches one twice.
    assert store["wanted_bytes"] <= 2 * size_bytes


def test_faults_in_the_midst_of_a_run(proxy: FaultProxy, local: Path) -> None:
    far, near = loader(root_of(proxy), num_workers=2), loader(local, num_workers=2)
    spoiled = [Fault(status=503), None, Fault(reset_at=0.5), None, Fault(short=0.7), Fault(whole=True), None]
    proxy.plan(".tar", *spoiled * 4)
    assert seen(islice(far, 80)) == seen(islice(near, 80))
    assert not proxy.faults[".tar"]


def test_a_blend_by_weights_of_tokens_is_read_ahead_within_its_block(proxy: FaultProxy, local: Path) -> None:
    def mixed(root: Any) -> Any:
        mix = ol.blend([(str(root), 1)], weights_in="tokens")
        data = ol.get_train_dataset(mix, worker_config=config(lanes=1), batch_size=4, task_encoder=Measured())
        return ol.get_savable_loader(data)

    far = mixed(root_of(proxy))
    assert seen(islice(far, 100)) == seen(islice(mixed(local), 100))
    store = next(iter(far.stats()["datasets"].values()))["store"]
    assert store["rows_ahead"] >= 400
    assert store["long_ranges"] < 300  # of few rows a block, those with gaps of 16 KiB at most


def test_a_shard_that_is_replaced_while_it_is_read_is_told(proxy: FaultProxy) -> None:
    far = loader(root_of(proxy), lanes=1, read_ahead_bytes=0)
    batches = iter(far)
    list(islice(batches, 10))
    for shard in range(3):  # all of them: a hundred faults in a row end a run
        url = f"{root_of(proxy)}/s{shard}.tar"
        data = open_store(url).read(url)
        replace_file(url, data[:-1] + b"\1")
    with pytest.raises(FatalSampleError, match="changed while it was in use"):
        list(islice(batches, 100))


def test_a_store_that_stays_away_ends_the_run(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNILOOM_STORAGE_RETRY_SECONDS", "1")
    monkeypatch.setattr("omniloom.storage.open._OPENED", {})
    far = loader(root_of(proxy), lanes=1, read_ahead_bytes=200_000)  # not all rows at once
    batches = iter(far)
    next(batches)
    proxy.stop()
    with pytest.raises(FatalSampleError, match=r"StoreAwayError.*broken after \d attempts"):
        list(islice(batches, 2000))


def test_secrets_of_a_url_are_in_no_state_statistics_or_log(
    proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="omniloom")
    secret = "planted-in-the-url"
    path = f"{root_of(proxy)}?secret_access_key={secret}&session_token={secret}"
    settings = config(num_workers=1, read_ahead_bytes=200_000)  # not all rows at once
    data = ol.get_train_dataset(path, worker_config=settings, batch_size=4)
    far = ol.get_savable_loader(data)
    batches = list(islice(far, 3))
    proxy.plan(".tar", *[Fault(status=403)] * 500)
    with pytest.raises(FatalSampleError) as caught:
        list(islice(far, 500))
    said = [str(data), str(far.stats()), str(far.state()), str(far.save_state_rank()), str(caught.value), caplog.text]
    said += [str(batch["__sources__"]) for batch in batches if "__sources__" in batch]
    assert "texts" in said[2]
    assert not [text for text in said if secret in text]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_tiny_set_dealt_to_many_lanes_comes_in_a_few_requests(
    proxy: FaultProxy, tmp_path: Path, workers: int
) -> None:
    root = tmp_path / f"tiny{workers}"
    root.mkdir()
    with ol.TarWriter(root / "s0.tar") as tar:
        for row in range(24):
            tar.add(f"{row:02d}.txt", f"text {row} ".encode() * 300)
    ol.prepare_dataset(root, split_ratio={"train": 1.0}, num_workers=1)
    (root / ".nv-meta" / "dataset.yaml").write_text(json.dumps(CRUDE))
    place = f"s3://data/{proxy.port}/{root.name}"
    for path in root.rglob("*"):
        if path.is_file():
            open_store(place).write(f"{place}/{path.relative_to(root)}", path.read_bytes())
    proxy.seen.clear()
    far, near = (loader(path, lanes=12, num_workers=workers) for path in (place, root))
    assert seen(islice(far, 60)) == seen(islice(near, 60))  # ten epochs
    counts = next(iter(far.stats()["datasets"].values()))["store"]
    assert counts["long_ranges"] <= 3 * max(1, workers)
    assert counts["long_range_bytes"] <= 1.25 * counts["wanted_bytes"] + counts["long_ranges"] * GAP_BYTES
    ranges = [one for one in proxy.seen if one.path.endswith(".tar") and one.range]
    assert len(ranges) <= 10  # and the headers by which a shard is known
    resumed = loader(place, lanes=12, num_workers=workers)
    resumed.restore_state_rank(far.save_state_rank())
    assert seen(islice(resumed, 20)) == seen(islice(near, 20))
