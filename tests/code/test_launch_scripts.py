"""The scripts that start a run on many machines, tried with stand-ins for what a cluster has; and the Dockerfile."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted([*ROOT.glob("examples/**/*.sh"), *ROOT.glob("examples/**/*.sbatch")])


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_is_sound(path: Path) -> None:
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", str(path)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(path)], check=True)


def stand_in(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


def started(tmp_path: Path, script: str, *words: str, status: int = 0, **environment: str) -> tuple[int, str]:
    """Run a script with stand-ins first on the path; its exit code and what they were called with."""
    tools, log = tmp_path / "tools", tmp_path / "log"
    tools.mkdir(exist_ok=True)
    log.write_text("")
    stand_in(
        tools, "omniloom", f'echo "omniloom $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $* " >> {log}; exit {status}'
    )
    stand_in(tools, "torchrun", f'echo "torchrun $*" >> {log}')
    stand_in(tools, "nvidia-smi", "printf 'a\\nb\\nc\\nd\\n'")
    stand_in(tools, "scontrol", f'if [[ $1 == show ]]; then printf "n7\\nn8\\n"; else echo "scontrol $*" >> {log}; fi')
    in_order = (
        'for i in 0 1; do SLURM_PROCID=$i SLURM_LOCALID=0 SLURM_NTASKS=2 "$@" || worst=$?; done; exit ${worst:-0}'
    )
    stand_in(tools, "srun", f"while [[ $1 == --* ]]; do shift; done\n{in_order}")
    given = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "n[7-8]",
        "SLURM_JOB_ID": "41",
        **environment,
    }
    done = subprocess.run(["bash", str(ROOT / script), *words], env=given, capture_output=True, text=True, check=False)
    return done.returncode, log.read_text()


@pytest.mark.parametrize(("status", "left", "again"), [(0, 0, False), (3, 0, True), (4, 0, True), (1, 1, False)])
def test_slurm_gives_each_task_its_rank_and_queues_what_is_not_done(
    tmp_path: Path, status: int, left: int, again: bool
) -> None:
    code, log = started(tmp_path, "examples/slurm/train.sbatch", "a recipe.yaml", "--set", "seed=1", status=status)
    assert code == left
    lines = log.splitlines()
    expected = "omniloom {} 0 2 n7 train a recipe.yaml --set seed=1 "
    assert lines[:2] == [expected.format(0), expected.format(1)]
    assert lines[2:] == (["scontrol requeue 41"] if again else [])


def test_torchrun_is_told_where_the_ranks_meet(tmp_path: Path) -> None:
    code, log = started(tmp_path, "examples/torchrun/train.sh", "sft.yaml", HEAD="n1", NODES="2", NODE="1")
    assert code == 0
    met = "--rdzv-backend c10d --rdzv-endpoint n1:29500 --rdzv-id omniloom --rdzv-conf is_host=0"
    expected = f"torchrun --nnodes 2 --nproc-per-node 4 --max-restarts 0 {met}"
    assert log == f"{expected} -m omniloom train sft.yaml\n"


@pytest.mark.parametrize("script", ["examples/slurm/train.sbatch", "examples/torchrun/train.sh"])
def test_without_a_recipe_they_say_what_they_want(tmp_path: Path, script: str) -> None:
    assert started(tmp_path, script) == (2, "")


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_the_dockerfile_is_sound() -> None:
    done = subprocess.run(
        ["hadolint", "--no-color", str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_dockerfile_installs_extras_that_there_are() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert text.count("pip install") == 1
    named = re.search(r"/src\[([a-z,]+)\]", text)
    assert named is not None
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(named[1].split(",")) <= extras.keys()
    assert {line.split()[0] for line in text.splitlines() if line and line[0].isupper()} == {
        "FROM", "RUN", "ENV", "COPY", "WORKDIR", "ENTRYPOINT", "CMD"
    }  # fmt: skip
