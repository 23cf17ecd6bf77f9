"""``omniloom generate`` on several ranks of one job: the answers, and the file, of one process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from omniloom.tools.main import run
from tests.story.test_generate_command import DRAWN, ITEMS, make_benchmark


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def command(work: Path) -> list[str]:
    return make_benchmark(work)


# Imports are made once, and each rank is a fork.
RANKS = """
import json, os, sys
import torch.distributed.tensor
from omniloom.evaluate import answering
from omniloom.tools.main import run
from omniloom.train import trained

words, folder = json.loads(sys.argv[1]), sys.argv[2]
if "--tensor-parallel" in words and words[words.index("--tensor-parallel") + 1] != "1":
    trained.load_model = None  # ranks that share a model read their slices: none calls for a whole one
children = []
for rank in range(int(os.environ["WORLD_SIZE"])):
    child = os.fork()
    if not child:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        told = os.open(f"{folder}/rank-{rank}.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(told, 1)
        os.dup2(told, 2)
        code = run(words)
        sys.stdout.flush()
        os._exit(code)
    children.append(child)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]))
"""


def run_ranks(words: list[str], *, ranks: int, folder: Path) -> list[int]:
    """Exit codes of the ranks of a job, whose surroundings are as torchrun makes them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RANKS, json.dumps(words), str(folder)],
        env={**os.environ, **job}, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    codes: list[int] = json.loads(done.stdout)
    return codes


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "tensor", "choice"), [(3, 1, DRAWN), (4, 2, []), (2, 2, DRAWN)])
def test_ranks_share_the_work(work: Path, command: list[str], ranks: int, tensor: int, choice: list[str]) -> None:
    name = f"{ranks}-{tensor}-{len(choice)}"
    alone, shared = work / f"alone-{len(choice)}.jsonl", work / f"{name}.jsonl"
    assert run([*command, *choice, "--output-path", str(alone)]) == 0
    # Some answers are there, of another number of ranks, one of them in a piece that a kill has left.
    lines = alone.read_text().splitlines(keepends=True)
    shared.write_text(lines[3])
    shared.with_name(f"{name}-dprank=7.jsonl").write_text(lines[5] + lines[3] + lines[4][:9])
    side = f"{alone.name}.model.json"
    shared.with_name(f"{shared.name}.model.json").write_text((work / side).read_text())
    words = [*command, *choice, "--tensor-parallel", str(tensor), "--batch-size", "2", "--output-path", str(shared)]
    assert run_ranks([*words, "--json"], ranks=ranks, folder=work) == [0] * ranks
    assert shared.read_text() == alone.read_text()
    assert not list(work.glob(f"{name}-dprank=*"))
    told = [json.loads(line) for line in (work / "rank-0.txt").read_text().splitlines() if line.startswith("{")]
    assert [(one["expected"], one["made"], one["kept"]) for one in told] == [(ITEMS, ITEMS - 2, 2)]
    assert all("answers made" not in (work / f"rank-{rank}.txt").read_text() for rank in range(1, ranks))


@pytest.mark.slow
def test_what_fails_fails_on_all_ranks(work: Path, command: list[str]) -> None:
    rows = json.loads((work / "test.json").read_text())
    rows[4]["image"] = "none.png"
    (work / "lacking.json").write_text(json.dumps(rows))
    words = [*command, "--gt-path", str(work / "lacking.json"), "--output-path", str(work / "lacking.jsonl")]
    assert run_ranks(words, ranks=2, folder=work) == [1, 1]
    assert "1 failed" in (work / "rank-0.txt").read_text()
    # Answers of another model in the file: no rank answers, and none waits.
    (work / "lacking.jsonl.model.json").write_text(json.dumps({"model": "another"}))
    assert run_ranks(words, ranks=2, folder=work) == [1, 1]
    assert all("answers of another run" in (work / f"rank-{rank}.txt").read_text() for rank in range(2))
