"""A rank of a real run over gloo stops; the watch of the others names it, and shows where it stands."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from omniloom.train.hang_watch import EXIT_HUNG

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]

BODY = """
import logging, os, signal, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
torch.set_num_threads(1)
logging.basicConfig(level=logging.INFO, format="%(message)s")
rank, world, port, folder, fault = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), sys.argv[5]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
from tests.contract.tiny_llava import TinyLoader, tiny_llava
from omniloom.parallel.data import DataParallelConfig, data_mesh, shard
from omniloom.train.checkpoint import CheckpointConfig, Checkpoints
from omniloom.train.hang_watch import HangConfig, HangWatch
from omniloom.train.hooks import HookedLoader, after_each_step
from omniloom.train.loop import LoopConfig, Run, train
from omniloom.train.metrics import LogConfig
from omniloom.train.optimizer import OptimizerConfig, make_optimizer
from omniloom.train.parts import freeze
from omniloom.train.schedule import ScheduleConfig
model = tiny_llava()
freeze(model, {})
settings = DataParallelConfig()
model = shard(model, data_mesh(world, settings, device="cpu"), settings)
def waits_for_a_disk_that_is_gone():
    time.sleep(3600)
class Faulty(TinyLoader):
    def __next__(self):
        if rank == 1 and self.taken == 3:
            (folder / "stopped").touch()
            if fault == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            waits_for_a_disk_that_is_gone()
        return super().__next__()
hooks = [HangWatch(HangConfig(after_seconds=4, end=True), folder, rank=rank, ranks=world)]
train(Run(
    model=model, optimizer=make_optimizer(model, {}, OptimizerConfig()),
    loader=HookedLoader(Faulty(rank=rank, ranks=world), hooks), after_step=after_each_step(hooks),
    checkpoints=Checkpoints(folder, CheckpointConfig(every_steps=0)), loop=LoopConfig(steps=50),
    schedule=ScheduleConfig(peak=1e-3), log=LogConfig(every_steps=1), folder=folder, group=dist.group.WORLD,
))
"""


def start(folder: Path, fault: str, *, ranks: int) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        subprocess.Popen(
            [sys.executable, "-c", BODY, str(rank), str(ranks), str(port), str(folder), fault],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]


@pytest.mark.parametrize("fault", ["sleep", "stop"])
def test_the_rank_that_stopped_is_named(tmp_path: Path, fault: str) -> None:
    processes = start(tmp_path, fault, ranks=3)
    try:
        told = [processes[rank].communicate(timeout=240)[1] for rank in (0, 2)]
        assert [processes[rank].returncode for rank in (0, 2)] == [EXIT_HUNG, EXIT_HUNG]
    finally:
        for process in processes:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
    assert "no progress for" in told[0]
    assert "no progress for" not in told[1], "one rank tells for all"
    if fault == "sleep":
        assert "Rank 1 of 3 (" in told[0]
        assert "at step 4 it waits for a batch" in told[0]
        assert "waits_for_a_disk_that_is_gone" in told[0]
        assert "Ranks 0, 2 wait for it" in told[0]
        record = json.loads((tmp_path / "hang/rank-00000.json").read_text())
        assert record["in_collective"]
    else:
        assert "at step 4. Rank 1 of 3 told nothing" in told[0]
    assert time.time() - (tmp_path / "stopped").stat().st_mtime < 120
