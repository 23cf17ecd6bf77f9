"""Memory that is told of a rank among several, against what lives at once in a step of sharded ranks over gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed import FileStore  # type: ignore[attr-defined]

from omniloom.parallel.plan import ParallelConfig
from tests.contract.live_memory import FROZEN, told_and_measured

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
RANKS, MICRO_BATCHES = 2, 3
CASES: list[dict[str, Any]] = [
    {"gradients": "sharded"},
    {"gradients": "whole"},
    {"gradients": "sharded", "recompute": {"language_model": 1}},
]


def test_ranks_need_no_more_than_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.slow.test_parallel_memory_ranks", str(tmp_path)]
    jobs = [subprocess.Popen([*command, str(rank)], cwd=ROOT, stderr=subprocess.PIPE, text=True) for rank in (0, 1)]
    for job in jobs:
        _, errors = job.communicate(timeout=300)
        assert job.returncode == 0, errors[-4000:]
    found = json.loads((tmp_path / "told.json").read_text())
    for case, (told, measured) in zip(CASES, found, strict=True):
        assert measured <= told <= 1.5 * measured, case
    (_, sharded), (_, whole), _ = found
    assert sharded < whole


def _rank(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    store = FileStore(str(folder / "store"), RANKS)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    found = []
    for case in CASES:
        told, measured = told_and_measured(
            {"vision_tower": FROZEN}, ParallelConfig(**case), micro_batches=MICRO_BATCHES, ranks=RANKS
        )
        found.append((told.total, measured))
    if rank == 0:
        (folder / "told.json").write_text(json.dumps(found))
    distributed.barrier()


if __name__ == "__main__":
    _rank(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stderr.flush()
    os._exit(0)  # gloo's threads can outlive the group and abort an interpreter that ends
