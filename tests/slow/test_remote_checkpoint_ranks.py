"""Checkpoints of sharded models in a store: saved by two ranks, whole tensors and all, read by one and by three."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omniloom.storage.open import open_store
from tests.contract.remote_sets import remote_files, use_server
from tests.contract.s3_server import environment, s3_server

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
PLACE = "s3://runs/sharded"

BODY = """
import os
import sys
from pathlib import Path
import torch
import torch.distributed as dist
torch.set_num_threads(1)
rank, world, port, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
what, place = sys.argv[5:]
if world > 1:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
from torch import nn
from omniloom.parallel.data import DataParallelConfig, data_mesh, shard
from omniloom.train.checkpoint import CheckpointConfig, Checkpoints

def made(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 30), nn.Linear(30, 6))
    if world > 1:
        from torch.distributed.fsdp import fully_shard
        fully_shard(model, mesh=data_mesh(world, DataParallelConfig(), device="cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2, 12)).sum().backward()
    optimizer.step()
    return model, optimizer

def sums(model):
    whole = [p.detach().full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]
    return [float(one.double().sum()) for one in whole]

config = CheckpointConfig(every_steps=1, place=place, asynchronous=what == "save")
checkpoints = Checkpoints(folder, config)
if what == "save":
    model, optimizer = made(1)
    checkpoints.save(4, model, optimizer, trainer={}, loader={"rank": rank})
    checkpoints.finish()
else:
    model, optimizer = made(2)
    resumed = checkpoints.restore(checkpoints.latest(), model, optimizer)
    if [one["rank"] for one in resumed.loader] != [0, 1]:
        raise SystemExit("loader states are missing")
found = sums(model)
if rank == 0:
    print(found, flush=True)
if world > 1:
    dist.destroy_process_group()
os._exit(0)  # threads of gloo outlive the group and abort an interpreter that ends
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server("runs") as (host, port):
        yield f"http://{host}:{port}"


def _run(ranks: int, what: str, folder: Path, endpoint: str) -> list[float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    variables = {**os.environ, **environment(endpoint), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BODY, str(rank), str(ranks), str(port), str(folder), what, PLACE],
            env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    told = [process.communicate(timeout=280) for process in processes]
    for process, (_, errors) in zip(processes, told, strict=True):
        assert process.returncode == 0, errors
    found: list[float] = json.loads(told[0][0].splitlines()[-1])
    return found


def test_other_numbers_of_ranks_read_it(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = _run(2, "save", tmp_path, endpoint)
    use_server(monkeypatch, endpoint)
    files = remote_files(PLACE)
    assert sum(name.endswith(".distcp") for name in files) == 2
    told = json.loads(open_store(PLACE).read(f"{PLACE}/step-00000004/complete.json"))
    assert {"loader/rank-00000.json", "loader/rank-00001.json", "tensors/.metadata", "trainer.json"} <= set(
        told["files"]
    )
    for ranks in (1, 3):
        assert _run(ranks, "load", tmp_path, endpoint) == pytest.approx(saved, abs=1e-5)
