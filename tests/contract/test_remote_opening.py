"""What opening a set in a store asks for: few requests, once a machine, and no shard that a listing has told of."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import omniloom as ol
from omniloom.data.index import mirror
from omniloom.data.index.dataset import open_dataset
from omniloom.errors import ObjectChangedError
from omniloom.storage.files import replace_file
from omniloom.storage.open import open_store
from tests.contract.fault_proxy import FaultProxy
from tests.contract.remote_sets import BUCKET, make_set, samples, upload, use_server
from tests.contract.s3_server import s3_server


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    with s3_server("sets") as server:
        proxy = FaultProxy(server)
        use_server(monkeypatch, proxy.url)
        monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("OMNILOOM_SIDECAR_SECONDS", "600")
        make_set(tmp_path / "set", "a", 100)
        upload(tmp_path / "set", f"{BUCKET}/set")
        yield proxy
        proxy.stop()


def train() -> ol.Dataset:
    config = ol.WorkerConfig(rank=0, world_size=1, num_workers=0)
    return ol.get_train_dataset(f"{BUCKET}/set", worker_config=config, batch_size=None)


def asked(proxy: FaultProxy) -> Counter[str]:
    """Requests since the last call by what they are for."""
    kinds: Counter[str] = Counter()
    for one in proxy.seen:
        path = one.path.partition("?")[0]
        kind = "index" if path.endswith(".idx") else "shard" if path.endswith(".tar") else "small"
        kinds["list" if "list-type" in one.path else f"{one.method} {kind}"] += 1
    proxy.seen.clear()
    return kinds


def forget_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if another process of the machine began."""
    monkeypatch.setattr("omniloom.storage.open._OPENED", {})
    monkeypatch.setattr(mirror, "_folders", {})


def test_a_set_that_was_prepared_in_the_store(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    ol.prepare_dataset(f"{BUCKET}/set", split_ratio={"train": 1.0})
    forget_process(monkeypatch)
    asked(proxy)
    data = train()
    first = asked(proxy)
    assert first["list"] == 2  # .nv-meta, and the shards
    assert first["GET small"] <= 5
    assert set(first) == {"list", "GET small"}
    read = samples(data, 100)
    counts = asked(proxy)
    assert counts["GET index"] == 5  # one a shard
    assert "HEAD shard" not in counts
    forget_process(monkeypatch)
    again = pickle.loads(pickle.dumps(train()))  # another process, so soon that it takes what the first one saw
    assert samples(again, 100) == read
    counts = asked(proxy)
    assert set(counts) == {"GET shard"}
    monkeypatch.setenv("OMNILOOM_SIDECAR_SECONDS", "0")
    forget_process(monkeypatch)
    train()
    assert asked(proxy) == {"list": 3}  # where nothing counts as fresh, .nv-meta is listed for each of two steps


def test_a_set_that_was_uploaded_is_checked_once_a_machine(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNILOOM_SIDECAR_SECONDS", "0")
    read = samples(train(), 60)
    assert asked(proxy)["HEAD shard"] >= 3
    forget_process(monkeypatch)
    assert samples(train(), 60) == read
    counts = asked(proxy)
    assert counts["list"] == 3
    assert "HEAD shard" not in counts
    assert "GET index" not in counts


def test_an_object_that_changed_since_the_listing_is_told(proxy: FaultProxy) -> None:
    ol.prepare_dataset(f"{BUCKET}/set", split_ratio={"train": 1.0})
    entry = open_dataset(f"{BUCKET}/set").shards[2]
    url = f"{BUCKET}/set/{entry.name}"
    data = open_store(url).read(url)
    open_store(url)._tags.clear()  # another process wrote it
    replace_file(url, data[:-1] + b"\1")
    with pytest.raises(ObjectChangedError, match=r"s2\.tar"):
        entry.open("first-dot").read(3)


def test_processes_that_begin_at_once_list_once(proxy: FaultProxy, tmp_path: Path) -> None:
    program = (
        "import sys; from omniloom.data.index.dataset import open_dataset; "
        f"print(open_dataset('{BUCKET}/set', split_part='train').samples)"
    )
    asked(proxy)
    proxy.delay_seconds = 0.3
    jobs = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    samples_here = open_dataset(tmp_path / "set", split_part="train").samples
    assert {job.communicate()[0].strip() for job in jobs} == {str(samples_here)}
    counts = asked(proxy)
    assert counts["list"] == 2
    assert counts["GET small"] <= 5
