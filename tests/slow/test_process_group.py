"""Real process groups on gloo: ranks asked for, states gathered, scattered, checkpointed and agreed upon."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omniloom.data.loader.loader import Loader
from tests.contract.numbers_leaf import numbers, shaped, take

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]

PREAMBLE = """
import json, os, sys
from itertools import islice
import torch, torch.distributed as dist
from omniloom.data.loader.loader import Loader
from omniloom.data.loader.config import WorkerConfig
from omniloom.errors import StateError
from tests.contract.numbers_leaf import numbers, take, told
rank, world, port, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
def loader(**settings):
    return Loader(numbers(rank=None, world_size=None, **settings))
def names(batches):
    return [list(batch[0]) for batch in batches]
"""


def run_ranks(world: int, body: str, folder: Path) -> list[Any]:
    """What each rank prints last, as JSON."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Gloo's threads can outlive the group and abort the interpreter while it ends; what a rank had to say is said.
    code = PREAMBLE + body + "\ndist.barrier(); sys.stdout.flush(); dist.destroy_process_group(); os._exit(0)\n"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank), str(world), str(port), str(folder)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    results = []
    for rank in ranks:
        out, err = rank.communicate(timeout=120)
        assert rank.returncode == 0, err
        results.append(json.loads(out.strip().splitlines()[-1]))
    return results


def job_names(steps: int) -> list[list[str]]:
    return [list(batch[0]) for batch in take(Loader(numbers()), steps)]


def interleaved(by_rank: list[list[list[str]]]) -> list[list[str]]:
    return [batch for step in zip(*by_rank, strict=True) for batch in step]


def test_ranks_come_from_the_process_group_and_global_states_go_round(tmp_path: Path) -> None:
    body = """
one = loader()
first = take(one, 4)
states = one.save_state_global(dst_rank=1)
assert (states is not None) == (rank == 1)
two = loader(num_workers=1)
two.restore_state_global(states, src_rank=1)
print(json.dumps([names(first), names(take(two, 4))]))
two.close()
"""
    results = run_ranks(2, body, tmp_path)
    job = job_names(16)
    assert interleaved([result[0] for result in results]) == job[:8]
    assert interleaved([result[1] for result in results]) == job[8:]


def test_a_distributed_checkpoint_deals_the_lanes_to_another_rank_count(tmp_path: Path) -> None:
    save = """
import torch.distributed.checkpoint as dcp
one = loader()
take(one, 3)
dcp.save({"loader": one}, checkpoint_id=folder)
print(json.dumps(None))
"""
    load = """
import torch.distributed.checkpoint as dcp
one = loader()
dcp.load({"loader": one}, checkpoint_id=folder)
print(json.dumps(names(take(one, 3))))
"""
    run_ranks(4, save, tmp_path)
    assert interleaved(run_ranks(2, load, tmp_path)) == job_names(18)[12:]
    (message, _) = run_ranks(
        2,
        """
import torch.distributed.checkpoint as dcp
try:
    dcp.load({"loader": loader(lanes=4)}, checkpoint_id=folder)
except StateError as error:
    print(json.dumps(str(error)))
""",
        tmp_path,
    )
    assert message.startswith("load_state_dict: saved with 12 lanes, and this run asked for those of 4.")


@pytest.mark.parametrize("shape", ["fitted", "grouped", "grouped packs"])
def test_a_distributed_checkpoint_keeps_what_waits_in_windows_and_groups(shape: str, tmp_path: Path) -> None:
    body = """
import torch.distributed.checkpoint as dcp
from tests.contract.numbers_leaf import shaped
one = Loader(shaped({shape!r}, rank=rank, world_size=world, num_workers=1))
if {saved}:
    dcp.load({{"loader": one}}, checkpoint_id=f"{{folder}}/{saved}")
told = names(take(one, {steps} // world))
dcp.save({{"loader": one}}, checkpoint_id=f"{{folder}}/{{world}}")
one.close()
print(json.dumps(told))
"""
    whole = [list(batch[0]) for batch in take(Loader(shaped(shape)), 36)]
    first = run_ranks(4, body.format(shape=shape, saved=0, steps=12), tmp_path)
    assert interleaved(first) == whole[:12]
    assert interleaved(run_ranks(2, body.format(shape=shape, saved=4, steps=12), tmp_path)) == whole[12:24]
    assert interleaved(run_ranks(3, body.format(shape=shape, saved=2, steps=12), tmp_path)) == whole[24:]


def test_a_state_that_only_some_ranks_have_is_an_error_on_all(tmp_path: Path) -> None:
    body = """
one = loader()
path = f"{folder}/{rank}.json"
if rank == 0:
    with open(path, "w") as file:
        json.dump(one.save_state_rank(), file)
try:
    one.restore_state_rank(path)
except StateError as error:
    print(json.dumps(str(error)))
"""
    for message in run_ranks(2, body, tmp_path):
        assert message.startswith("ranks 1 of 2 have no state to restore, the others have")


def test_a_rank_that_never_restores_is_named_in_bounded_time(tmp_path: Path) -> None:
    body = """
import time
begin = time.monotonic()
one = loader(restore_timeout_seconds=1.0)
state, message = one.save_state_rank(), ""
if rank != 1:
    try:
        one.restore_state_rank(state)
    except StateError as error:  # as Megatron-LM's provider does, which then goes on
        message = str(error)
seconds = time.monotonic() - begin
try:
    given = len(take(one, 1))
except StateError as error:
    given = str(error) == message
    one.rewind()
    given = [given, len(take(one, 1))]
print(json.dumps([message, seconds, given]))
"""
    found = run_ranks(3, body, tmp_path)
    assert found[1][0] == ""
    assert [told[2] for told in found] == [[True, 1], 1, [True, 1]]
    for rank in (0, 2):
        assert found[rank][0].startswith("ranks 1 of 3 did not ask for a state within 1 s; the others did.")
        assert found[rank][1] < 5
