"""Checking shards of a store, and looking at their media, by dask: the same findings, also when a worker is killed."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import omniloom as ol
from omniloom.data.index.executors import open_executor
from omniloom.data.index.lint import lint_dataset
from omniloom.data.index.media_filter import MediaFilterConfig
from omniloom.data.index.media_prepare import add_media_metadata
from omniloom.storage.open import open_store
from tests.contract.fault_proxy import FaultProxy
from tests.contract.remote_sets import BUCKET, upload, use_server, write_tar
from tests.contract.s3_server import s3_server

pytestmark = pytest.mark.slow
SHARDS, ROWS = 12, 30
BY_EXTENSION = MediaFilterConfig.parse(None, False, True)


def _png(side: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (side, 8)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A set whose eighth shard holds a bad image, in a store that takes 20 ms to answer."""
    root = tmp_path / "set"
    for shard in range(SHARDS):
        keys = [f"{shard:02d}{row:02d}" for row in range(ROWS)]
        write_tar(
            root / f"s{shard:02d}.tar", [(f"{k}.png", b"none" if k == "0711" else _png(int(k) % 90 + 1)) for k in keys]
        )
    ol.prepare_dataset(root, split_ratio={"train": 1.0}, num_workers=1)
    with s3_server("sets") as server:
        proxy = FaultProxy(server)
        use_server(monkeypatch, proxy.url)
        monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
        upload(root, f"{BUCKET}/set")
        proxy.delay_seconds = 0.02
        yield f"{BUCKET}/set"
        proxy.stop()


@pytest.fixture
def cluster(place: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    root = str(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([f"{root}/src", root, os.environ.get("PYTHONPATH", "")]))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        yield cluster


def test_a_killed_worker_changes_nothing(place: str, cluster: Any) -> None:
    address = cluster.scheduler_address.removeprefix("tcp://")
    alone = lint_dataset(place, num_workers=1)
    assert alone.quarantine == ["s07.tar/0711"]
    killed: list[int] = []

    def kill(*_: Any) -> None:
        if not killed:
            killed.append(cluster.workers[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    with open_executor(f"dask://{address}") as executor:
        checked = lint_dataset(place, executor=executor, on_shard=kill)
        assert killed
        assert (checked.samples, checked.quarantine, checked.counts) == (SHARDS * ROWS, alone.quarantine, alone.counts)
        assert checked.findings == alone.findings
        killed.clear()
        found = add_media_metadata(place, media_filter=BY_EXTENSION, executor=executor, progress=kill)
    assert killed
    assert (found.rows, len(found.faults), found.looked_at) == (SHARDS * ROWS - 1, 1, SHARDS)
    assert open_store(place).exists(f"{place}/.nv-meta/index.sqlite")
