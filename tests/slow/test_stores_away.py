"""A store that is away for 20 seconds in the midst of a run, and workers that die while they fill the cache."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

import omniloom as ol
from omniloom.storage.open import open_store
from tests.contract.fault_proxy import FaultProxy
from tests.contract.s3_server import environment, s3_server

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FaultProxy]:
    with s3_server("data") as place:
        proxy = FaultProxy(place)
        for name, value in environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr("omniloom.storage.open._OPENED", {})
        yield proxy
        proxy.stop()


def make(root: Path) -> Path:
    root.mkdir()
    for shard in range(3):
        with ol.TarWriter(root / f"s{shard}.tar") as tar:
            for row in range(shard * 400, shard * 400 + 400):
                tar.add(f"r{row:04d}.txt", f"text {row} ".encode() * 400)
    ol.prepare_dataset(root, split_ratio={"train": 1.0}, num_workers=1)
    (root / ".nv-meta" / "dataset.yaml").write_text(
        json.dumps({"__module__": "megatron.energon", "__class__": "CrudeWebdataset"})
    )
    for path in root.rglob("*"):
        if path.is_file():
            open_store("s3://data").write(f"s3://data/texts/{path.relative_to(root)}", path.read_bytes())
    return root


def loader(path: Any, workers: int = 2) -> Any:
    config = ol.WorkerConfig(rank=0, world_size=1, num_workers=workers, lanes=4, read_ahead_bytes=4 << 20)
    return ol.get_savable_loader(ol.get_train_dataset(str(path), worker_config=config, batch_size=4))


def keys(batches: Any) -> list[Any]:
    return [list(zip(batch["__key__"], batch["txt"], strict=True)) for batch in batches]


def test_twenty_seconds_without_the_server(proxy: FaultProxy, tmp_path: Path) -> None:
    local = make(tmp_path / "texts")
    far = iter(loader("s3://data/texts"))
    found = keys(islice(far, 40))
    proxy.stop()
    gone = time.monotonic()
    threading.Timer(20.0, proxy.start).start()
    found += keys(islice(far, 560))
    assert time.monotonic() - gone > 20.0
    assert found == keys(islice(loader(local), 600))


def test_workers_killed_while_they_fill_the_cache(
    proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNILOOM_STORAGE_CACHE_BYTES", str(1 << 30))
    monkeypatch.setenv("OMNILOOM_STORAGE_CACHE_FOLDER", str(tmp_path / "blocks"))
    local = make(tmp_path / "texts")
    proxy.delay_seconds = 0.02
    batches = iter(loader("s3://data/texts"))
    found = []
    for _ in range(3):
        found += keys(islice(batches, 50))
        for child in psutil.Process().children():
            child.kill()
    assert found == keys(islice(loader(local), 150))
    again = loader("s3://data/texts")
    assert keys(islice(again, 150)) == found
