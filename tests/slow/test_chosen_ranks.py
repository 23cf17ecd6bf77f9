"""Loaders on chosen ranks only, as Megatron's provider builds them: the first of each tensor-parallel pair.

Four ranks: 0 and 1 work on one share of the data, 2 and 3 on the other; 0 and 2 have loaders.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slow.test_process_group import interleaved, job_names, run_ranks

pytestmark = pytest.mark.slow

CHOSEN = """
group = [dist.new_group([first, first + 2]) for first in range(2)][rank % 2]
said = None
if rank % 2 == 0:
    one = Loader(numbers(rank=rank // 2, world_size=2, {group}))
    {body}
print(json.dumps(said))
"""


def test_their_states_go_round_within_their_group(tmp_path: Path) -> None:
    body = """
    first = take(one, 4)
    states = one.save_state_global(dst_rank=2)
    assert (states is not None) == (rank == 2)
    two = Loader(numbers(rank=rank // 2, world_size=2, data_parallel_group=group))
    two.restore_state_global(states, src_rank=1)
    third = Loader(numbers(rank=rank // 2, world_size=2, data_parallel_group=group))
    third.restore_state_rank(one.save_state_rank())
    said = [names(first), names(take(two, 4)), names(take(third, 4))]
"""
    results = run_ranks(4, CHOSEN.format(group="data_parallel_group=group", body=body.strip()), tmp_path)
    assert results[1] is results[3] is None
    job = job_names(16)
    shares = [interleaved([results[0][number], results[2][number]]) for number in range(3)]
    assert shares == [job[:8], job[8:], job[8:]]


def test_without_a_group_nobody_waits_for_ranks_that_have_no_loader(tmp_path: Path) -> None:
    body = """
    first = take(one, 4)
    two = Loader(numbers(rank=rank // 2, world_size=2))
    two.restore_state_rank(one.save_state_rank())
    try:
        one.save_state_global(dst_rank=0)
    except StateError as error:
        said = [names(first), names(take(two, 4)), str(error)]
"""
    results = run_ranks(4, CHOSEN.format(group="", body=body.strip()), tmp_path)
    job = job_names(16)
    assert interleaved([results[0][1], results[2][1]]) == job[8:]
    message = "save_state_global: the loaders are those of 2 ranks, and the process group has 4.\n"
    assert results[0][2].startswith(message)
    assert "data_parallel_group=" in results[0][2]
