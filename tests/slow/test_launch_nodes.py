"""The scripts for several nodes, run with two ranks of their own machines' names: the losses of one process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.story.test_train_to_score import work  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def settings(folder: Path, *more: str) -> list[str]:
    flags = (f"folder={folder}", "loop.steps=4", "data.global_batch_size=2", "data.lanes=12", *more)
    return [part for flag in flags for part in ("--set", flag)]


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "steps.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def alone(work: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:  # noqa: F811
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run(
        [sys.executable, "-m", "omniloom", "train", str(work / "sft.yaml"), *settings(folder)], check=True, timeout=120
    )
    return losses(folder)


def at_once(commands: Sequence[tuple[list[str], dict[str, str]]]) -> list[int]:
    """Exit codes of commands that run side by side; what is left of them when one takes too long is ended."""
    jobs = [
        subprocess.Popen(command, env=os.environ | given, start_new_session=True, cwd=ROOT)
        for command, given in commands
    ]
    try:
        return [job.wait(timeout=150) for job in jobs]
    finally:
        for job in jobs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)


def on_the_path(folder: Path, **bodies: str) -> str:
    """A path whose first folder has commands of such bodies, and this interpreter's own."""
    folder.mkdir()
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_two_nodes_by_torchrun(work: Path, tmp_path: Path, alone: list[float]) -> None:  # noqa: F811
    torchrun = f'exec {sys.executable} -m torch.distributed.run --local-addr 127.0.0.1 "$@"'
    path = on_the_path(tmp_path / "tools", torchrun=torchrun)
    given = {"PATH": path, "HEAD": "127.0.0.1", "NODES": "2", "DEVICES": "1", "PORT": str(free_port())}
    command = ["bash", "examples/torchrun/train.sh", str(work / "sft.yaml"), *settings(tmp_path / "run")]
    assert at_once([(command, {**given, "NODE": node}) for node in ("0", "1")]) == [0, 0]
    assert losses(tmp_path / "run") == pytest.approx(alone, rel=1e-4)


def test_two_nodes_by_slurm_which_queues_the_job_again(work: Path, tmp_path: Path, alone: list[float]) -> None:  # noqa: F811
    """A stand-in for ``srun`` starts a rank for each node; the first job is at its end after a step."""
    srun = (
        "while [[ $1 == --* ]]; do shift; done\n"
        'for i in 0 1; do SLURM_PROCID=$i SLURM_LOCALID=0 SLURM_NTASKS=2 SLURM_NODEID=$i "$@" & jobs[$i]=$!; done\n'
        "wait ${jobs[0]}; worst=$?; wait ${jobs[1]} || worst=$?; exit $worst"
    )
    scontrol = f'if [[ $1 == show ]]; then echo 127.0.0.1; else echo "$*" >> {tmp_path}/again; fi'
    omniloom = f'exec {sys.executable} -m omniloom "$@"'
    path = on_the_path(tmp_path / "tools", srun=srun, scontrol=scontrol, omniloom=omniloom)
    given = {"PATH": path, "SLURM_JOB_NODELIST": "n[7-8]", "SLURM_JOB_ID": str(os.getpid())}
    command = ["bash", "examples/slurm/train.sbatch", str(work / "sft.yaml"), *settings(tmp_path / "run")]
    assert at_once([([*command, "--set", "loop.limit_seconds=0.001"], given)]) == [0]
    assert (tmp_path / "again").read_text() == f"requeue {given['SLURM_JOB_ID']}\n"
    assert len(losses(tmp_path / "run")) == 1
    assert at_once([(command, given)]) == [0]
    assert losses(tmp_path / "run") == pytest.approx(alone, rel=1e-4)
