"""A worker that the kernel kills for memory, in a control group of its own with a real limit."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GROUPS = Path("/sys/fs/cgroup")
LIMIT_BYTES = 600_000_000

PROGRAM = """
import json, os, sys
from itertools import islice
from pathlib import Path
import numpy as np
from omniloom.data.loader.loader import Loader
from tests.contract.numbers_leaf import augmented, numbers, take, told

done = Path(sys.argv[1])

def encode(name):
    if name == "a7" and not done.exists():
        done.touch()
        hoard = [np.ones(50_000_000) for _ in range(10)]  # 4 GB
    return augmented(name)

calm = take(Loader(numbers()), 40)
with Loader(numbers(encode=encode, num_workers=2)) as loader:
    same = take(loader, 40) == calm
    print(json.dumps({"same": same, "deaths": loader.stats()["worker_deaths"]}))
"""


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group with a memory limit, of either version."""
    versions = ((GROUPS / "memory", "memory.limit_in_bytes"), (GROUPS, "memory.max"))
    for parent, limit in versions:
        group = parent / f"omniloom-{uuid.uuid4().hex[:8]}"
        try:
            group.mkdir()
            (group / limit).write_text(str(LIMIT_BYTES))
            break
        except OSError:
            with suppress(OSError):
                group.rmdir()
    else:
        pytest.skip("control groups cannot be made here")
    yield group
    group.rmdir()


@pytest.mark.slow
def test_a_worker_that_the_kernel_kills_for_memory_is_named_and_nothing_is_lost(
    memory_group: Path, tmp_path: Path
) -> None:
    enter = f'echo $$ > {memory_group}/cgroup.procs && exec {sys.executable} -c "$1" {tmp_path / "done"}'
    run = subprocess.run(
        ["sh", "-c", enter, "sh", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["same"]  # as a run in which nobody died
    (story,) = result["deaths"]
    assert "was killed by SIGKILL (the kernel ran out of memory) with data set 0, row 7, epoch 0 in hand" in story
