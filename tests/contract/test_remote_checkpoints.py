"""Checkpoints in a store are those of a disk: the same tensors back, whole or not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from omniloom.errors import StateError, StorageError
from omniloom.storage.open import open_store
from omniloom.train.checkpoint import CheckpointConfig, Checkpoints
from tests.contract.remote_sets import remote_files, use_server
from tests.contract.s3_server import s3_server

BUCKET = "s3://runs"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server("runs") as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture(autouse=True)
def _environment(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_server(monkeypatch, endpoint)


class Net(nn.Module):
    """Two layers, one of them of many bytes."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.one = nn.Linear(300, 400)
        self.two = nn.Linear(400, 3)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.rand(parameter.shape, generator=generator))


def _trained(seed: int) -> tuple[Net, torch.optim.Optimizer]:
    net = Net(seed)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    net.two(net.one(torch.ones(2, 300))).sum().backward()
    optimizer.step()
    return net, optimizer


def _save(checkpoints: Checkpoints, step: int, seed: int) -> tuple[Net, torch.optim.Optimizer]:
    net, optimizer = _trained(seed)
    checkpoints.save(step, net, optimizer, trainer={"skips": 2}, loader={"lane": step})
    checkpoints.finish()
    return net, optimizer


def _config(place: str, **settings: Any) -> CheckpointConfig:
    return CheckpointConfig(**{"every_steps": 1, "asynchronous": False, "place": place} | settings)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_was_saved_comes_back(asynchronous: bool, tmp_path: Path) -> None:
    place = f"{BUCKET}/back-{asynchronous}"
    net, optimizer = _save(Checkpoints(tmp_path, _config(place, asynchronous=asynchronous)), 7, seed=1)
    checkpoints = Checkpoints(tmp_path, _config(place))
    latest = checkpoints.latest()
    assert latest == f"{place}/step-00000007"
    other, its_optimizer = _trained(seed=2)
    resumed = checkpoints.restore(latest, other, its_optimizer)
    assert (resumed.step, resumed.trainer["skips"], resumed.loader) == (7, 2, [{"lane": 7}])
    for name, value in net.state_dict().items():
        assert torch.equal(other.state_dict()[name], value)
    for one, another in zip(optimizer.state.values(), its_optimizer.state.values(), strict=True):
        assert torch.equal(one["exp_avg"], another["exp_avg"])
    assert not list(tmp_path.iterdir())


def test_the_objects_are_the_files_of_a_disk(tmp_path: Path) -> None:
    _save(Checkpoints(tmp_path, _config(f"{BUCKET}/same")), 3, seed=1)
    _save(Checkpoints(tmp_path / "disk", _config("")), 3, seed=1)
    here = {
        path.relative_to(tmp_path / "disk").as_posix(): path.stat().st_size
        for path in (tmp_path / "disk").rglob("*")
        if path.is_file()
    }
    there = {name: len(data) for name, data in remote_files(f"{BUCKET}/same").items()}
    told = json.loads(open_store(BUCKET).read(f"{BUCKET}/same/step-00000003/complete.json"))
    assert set(there) == {*here, "step-00000003/complete.json"}
    assert {name: there[f"step-00000003/{name}"] for name in told["files"]} == told["files"]
    for name, size_bytes in here.items():
        if name.endswith(".distcp"):
            assert there[name] == size_bytes


def test_old_ones_go(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, _config(f"{BUCKET}/kept", keep_last=2, keep_every_steps=10))
    for step in (10, 11, 12, 13):
        _save(checkpoints, step, seed=step)
    steps = {name.split("/")[0] for name in remote_files(f"{BUCKET}/kept") if "/" in name}
    assert steps == {"step-00000010", "step-00000012", "step-00000013"}


def test_one_that_broke_off_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"{BUCKET}/broken"
    checkpoints = Checkpoints(tmp_path, _config(place))
    _save(checkpoints, 1, seed=1)
    store = open_store(place)

    def write(url: str, data: bytes) -> None:
        if url.endswith("complete.json"):
            raise StorageError("the line is down")
        kept(url, data)

    kept = store.write
    with monkeypatch.context() as patch:
        patch.setattr(store, "write", write)
        with pytest.raises(StorageError, match="the line is down"):
            _save(checkpoints, 2, seed=2)
    assert any(name.startswith("step-00000002/tensors") for name in remote_files(place))
    assert Checkpoints(tmp_path, _config(place)).latest() == f"{place}/step-00000001"


def test_what_is_no_checkpoint_is_told(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, _config(f"{BUCKET}/empty"))
    assert checkpoints.latest() is None
    net, optimizer = _trained(1)
    with pytest.raises(StateError, match=r"no complete checkpoint, trainer\.json is missing"):
        checkpoints.restore(f"{BUCKET}/empty/step-00000001", net, optimizer)
