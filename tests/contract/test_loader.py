"""The loader's contract: one order everywhere, exact from every step, deaths survived, nothing left behind."""

from __future__ import annotations

import gc
import json
import logging
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from omniloom.data.loader.loader import Loader
from omniloom.data.loader.state import write_state
from omniloom.data.loader.transport import MOST_SLABS_LENT
from omniloom.data.pipeline.faults import FaultPolicy
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.errors import ConfigError, FatalSampleError, SampleError, StateError, WorkerError
from tests.contract.numbers_leaf import FINITE, PLAN, SHUFFLE, Deadly, numbers, take, told


def whole_job(steps: int, *, packed: bool = False) -> list[tuple[Any, ...]]:
    return take(Loader(numbers(packed=packed)), steps)


# One order


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("packed", [False, True])
def test_any_number_of_workers_gives_the_same_batches(workers: int, packed: bool) -> None:
    with Loader(numbers(packed=packed, num_workers=workers)) as loader:
        assert take(loader, 60) == whole_job(60, packed=packed)


@pytest.mark.parametrize("world_size", [2, 3, 4, 6, 12])
def test_any_number_of_ranks_gives_the_same_job(world_size: int) -> None:
    job = whole_job(48)
    for rank in range(world_size):
        loader = Loader(numbers(rank=rank, world_size=world_size))
        assert take(loader, 48 // world_size) == job[rank::world_size]


def test_forked_workers_and_closures_and_local_classes() -> None:
    offset = 17

    class Local:
        def __call__(self, name: str) -> Any:
            return name, float(offset), np.zeros((2, 2))

    with Loader(numbers(encode=Local(), num_workers=1)) as spawned:
        assert next(iter(spawned))["draws"] == [17.0] * 4
    with Loader(numbers(num_workers=2, start_method="fork")) as forked:
        assert take(forked, 30) == whole_job(30)


# Exact from every step


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_saved_at_any_step_it_goes_on_bit_for_bit(packed: bool, workers: int, tmp_path: Path) -> None:
    job = whole_job(40, packed=packed)
    loader = Loader(numbers(packed=packed, num_workers=workers))
    steps = range(41) if workers == 0 else (0, 1, 7, 24, 40)
    taken = 0
    for step in steps:
        take(loader, step - taken)
        taken = step
        write_state(tmp_path / "state.json", loader.save_state_rank())
        restored = Loader(numbers(packed=packed, num_workers=0 if workers else 1 if step == 20 else 0))
        restored.restore_state_rank(tmp_path / "state.json")
        assert restored.save_state_rank() == loader.save_state_rank()  # saving right after restoring changes nothing
        assert take(restored, 40 - step) == job[step:]
        restored.close()
    loader.close()


@pytest.mark.parametrize("packed", [False, True])
def test_ranks_may_change_at_every_step(packed: bool) -> None:
    job = whole_job(72, packed=packed)
    for world_size in (2, 3, 4):
        for steps in (1, 5, 6):
            loaders = [Loader(numbers(packed=packed, rank=r, world_size=world_size)) for r in range(world_size)]
            for loader in loaders:
                take(loader, steps)
            states = [json.loads(json.dumps(loader.save_state_rank())) for loader in loaders]
            done = steps * world_size
            for others in (1, 2, 4, 6):
                seen = {}
                for rank in range(others):
                    loader = Loader(numbers(packed=packed, rank=rank, world_size=others))
                    loader.restore_state_rank(states)
                    first = next(g for g in range(done, done + others) if g % others == rank)
                    seen |= dict(
                        zip(range(first, 72, others), take(loader, len(range(first, 72, others))), strict=True)
                    )
                assert [seen[g] for g in range(done, 72)] == job[done:]


def test_a_running_loader_can_be_taken_back_and_forth() -> None:
    job = whole_job(30)
    with Loader(numbers(num_workers=2)) as loader:
        take(loader, 5)
        state = loader.save_state_rank()
        pids = set(loader._engine.pids)  # type: ignore[union-attr]
        take(loader, 20)
        loader.restore_state_rank(state)
        assert take(loader, 25) == job[5:]
        assert set(loader._engine.pids) == pids  # type: ignore[union-attr]


def test_break_and_a_new_loop_go_on_exactly() -> None:
    for workers in (0, 2):
        with Loader(numbers(num_workers=workers)) as loader:
            parts = [told(batch) for _ in range(6) for batch in islice(loader, 5)]
        assert parts == whole_job(30)


def test_the_callers_own_random_numbers_are_left_alone() -> None:
    loader = iter(Loader(numbers()))
    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    next(loader)
    assert (random.random(), np.random.rand()) == expected


def test_tensors_for_a_distributed_checkpoint_come_back_on_other_ranks() -> None:
    torch = pytest.importorskip("torch")
    job = whole_job(24)
    loaders = [Loader(numbers(rank=r, world_size=2)) for r in range(2)]
    template = [loader.state_dict() for loader in loaders]
    for loader in loaders:
        take(loader, 3)
    tensors = [loader.state_dict() for loader in loaders]
    for before, after in zip(template, tensors, strict=True):  # shapes must not change, or nothing can be loaded into
        assert {n: t.shape for n, t in before.items()} == {n: t.shape for n, t in after.items()}
        assert all(t.dtype is torch.uint8 for t in after.values())
    merged = tensors[0] | tensors[1]
    alone = Loader(numbers())
    alone.load_state_dict(merged)
    assert take(alone, 18) == job[6:]


# States that do not fit


def test_states_that_do_not_fit_are_refused_with_what_does() -> None:
    loader = Loader(numbers())
    take(loader, 3)
    state = loader.save_state_rank()
    five = Loader(numbers(rank=0, world_size=5, lanes=60))
    with pytest.raises(
        StateError, match=r"saved with 12 lanes, which cannot be dealt to 5 ranks.\n  Use 1, 2, 3, 4, 6 or 12"
    ):
        five.restore_state_rank(state)
    two = [Loader(numbers(rank=r, world_size=2)) for r in range(2)]
    with pytest.raises(StateError, match=r"saved by rank 0 of 2, but this is rank 0 of 1; 6 of its 12 lanes"):
        loader.restore_state_rank(two[0].save_state_rank())
    with pytest.raises(StateError, match="absent: 1"):
        loader.restore_state_global([two[0].save_state_rank()])
    with pytest.raises(StateError, match="given twice"):
        loader.restore_state_rank([two[0].save_state_rank()] * 2)
    take(two[1], 1)
    with pytest.raises(StateError, match="rank 0 of 2 after 0 steps with 12 lanes, rank 1 of 2 after 1 steps"):
        loader.restore_state_rank([one.save_state_rank() for one in two])
    grown = Loader(numbers(plan=Plan((Leaf("a", 62, 0.7), Leaf("b", 40, 0.3)), shuffle=SHUFFLE)))
    with pytest.raises(StateError, match="data set 'a' had 61 rows when the state was saved and has 62 now"):
        grown.restore_state_rank(state)
    reseeded = Loader(numbers(plan=Plan(PLAN.leaves, shuffle=SHUFFLE, seed=1)))
    with pytest.raises(StateError, match=r"saved with seed=0, but this run has seed=1"):
        reseeded.restore_state_rank(state)
    with pytest.raises(StateError, match="an empty list of states"):
        loader.restore_state_rank([])
    with pytest.raises(StateError, match="no such file"):
        loader.restore_state_rank("nowhere.json")
    assert take(loader, 5) == whole_job(8)[3:]  # and nothing was changed by all that


def test_weights_may_change_and_leaves_may_join_with_cursors_going_on(caplog: pytest.LogCaptureFixture) -> None:
    loader = Loader(numbers())
    take(loader, 24)
    changed = Plan((Leaf("c", 30, 1), Leaf("a", 61, 1), Leaf("b", 40, 8)), shuffle=SHUFFLE)
    again = Loader(numbers(plan=changed))
    with caplog.at_level(logging.WARNING, logger="omniloom"):
        again.restore_state_rank(loader.save_state_rank())
    assert "weight of 'a' 0.7 -> 1, weight of 'b' 0.3 -> 8, 'c' added" in caplog.text
    after = [name for batch in islice(again, 240) for name in batch["names"]]
    kinds = Counter(name[0] for name in after)
    assert kinds["b"] / len(after) == pytest.approx(0.8, abs=0.03)
    state = again.save_state_rank()
    once_more = Loader(numbers(plan=changed))
    once_more.restore_state_rank(state)
    assert take(once_more, 10) == take(again, 10)


# Data that ends


@pytest.mark.parametrize("workers", [0, 2])
def test_data_that_ends_comes_once_a_pass_and_the_next_pass_is_another_order(workers: int) -> None:
    with Loader(numbers(plan=FINITE, num_workers=workers)) as loader:
        # By hand: 61 and 40 rows on 12 lanes are 5 + 3 each, and 1 + 4 lanes get one more: 24 batches of 4, and one
        # more for each lane with more than 8, which are 4 or 5.
        assert len(loader) in (28, 29)
        passes = []
        for _ in range(3):
            expected = len(loader)
            batches = list(loader)
            assert len(batches) == expected
            passes.append([name for batch in batches for name in batch["names"]])
    everything = Counter([f"a{i}" for i in range(61)] + [f"b{i}" for i in range(40)])
    assert [Counter(names) for names in passes] == [everything] * 3
    assert passes[0] != passes[1] != passes[2]


def test_data_that_ends_is_exact_from_every_step_and_across_the_end() -> None:
    whole = Loader(numbers(plan=FINITE))
    first, second = [told(batch) for batch in whole], [told(batch) for batch in whole]
    for step in (0, 1, 13, len(first) - 1, len(first)):
        loader = Loader(numbers(plan=FINITE))
        take(loader, step)
        restored = Loader(numbers(plan=FINITE))
        restored.restore_state_rank(loader.save_state_rank())
        assert [told(batch) for batch in restored] == first[step:]  # nothing, where the pass was at its end
        assert [told(batch) for batch in restored] == second
    for step in (0, 1, len(second) - 1):  # after the end was seen, and beyond it
        loader = Loader(numbers(plan=FINITE))
        assert len(list(loader)) == len(first)
        take(loader, step)
        restored = Loader(numbers(plan=FINITE))
        restored.restore_state_rank(loader.save_state_rank())
        assert [told(batch) for batch in restored] == second[step:]


def test_virtual_epochs_end_the_loop_and_go_on() -> None:
    job = whole_job(30)
    loader = Loader(numbers(virtual_epoch_length=10))
    assert len(loader) == 10
    assert [[told(b) for b in loader] for _ in range(3)] == [job[:10], job[10:20], job[20:30]]
    restored = Loader(numbers(virtual_epoch_length=10))
    first = Loader(numbers(virtual_epoch_length=10))
    take(first, 7)
    restored.restore_state_rank(first.save_state_rank())
    assert [told(b) for b in restored] == job[7:10]
    at_end = Loader(numbers(virtual_epoch_length=10))
    take(at_end, 10)
    restored.restore_state_rank(at_end.save_state_rank())
    assert [told(b) for b in restored] == []
    assert [told(b) for b in restored] == job[10:20]


@pytest.mark.parametrize("finite", [False, True])
def test_who_counts_the_batches_of_a_pass_gets_the_next_pass(finite: bool) -> None:
    """As training programs do that know the length: they never ask for a batch too many."""
    dataset = numbers(plan=FINITE) if finite else numbers(virtual_epoch_length=10)
    whole, counted = Loader(dataset), Loader(dataset)
    for _ in range(3):
        expected = [told(batch) for batch in whole]
        running = iter(counted)
        assert len(counted) == len(expected)
        assert [told(batch) for batch in islice(running, len(expected))] == expected


@pytest.mark.parametrize("rows", [1, 3, 7, 8, 9])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_evaluation_covers_every_sample_once_and_pads_even_out_the_steps(rows: int, world_size: int) -> None:
    plan: Any = InOrder((Leaf("a", rows),), 2)
    names: list[str] = []
    steps = []
    for rank in range(world_size):
        loader = Loader(numbers(plan=plan, rank=rank, world_size=world_size, batch_size=2, equal_steps=True))
        steps.append(0)
        for batch in loader:
            steps[-1] += 1
            assert loader.is_pad == bool(batch.get("__pad__"))
            names += [] if loader.is_pad else batch["names"]
        assert len(loader) == steps[-1]
    assert sorted(names) == sorted(f"a{i}" for i in range(rows))
    assert len(set(steps)) == 1
    with pytest.raises(ConfigError, match="equal_steps needs data that ends"):
        Loader(numbers(equal_steps=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_goes_on_exactly_too(workers: int) -> None:
    plan: Any = InOrder((Leaf("a", 31), Leaf("b", 14)), 4)
    whole = [told(batch) for batch in Loader(numbers(plan=plan))]
    assert len(whole) == 12
    for step in range(13) if workers == 0 else (5,):
        with Loader(numbers(plan=plan, num_workers=workers)) as loader, Loader(numbers(plan=plan)) as restored:
            take(loader, step)
            restored.restore_state_rank(json.loads(json.dumps(loader.save_state_rank())))
            assert [told(batch) for batch in restored] == whole[step:]
            assert [told(batch) for batch in restored] == whole  # the next pass begins at the begin


def test_fewer_samples_than_lanes_times_batch() -> None:
    for rows in (1, 2, 5):
        plan = Plan((Leaf("a", rows),), shuffle=SHUFFLE)
        names = [name for batch in islice(Loader(numbers(plan=plan)), 30) for name in batch["names"]]
        assert set(names) == {f"a{i}" for i in range(rows)}


# Workers that die


def deaths(act: str, tmp_path: Path, *, once: bool, **config: Any) -> Loader:
    victim = whole_job(10)[6][0][2]
    encode = Deadly(victim, act, str(tmp_path / "done") if once else None)
    return Loader(numbers(encode=encode, num_workers=2, **config), watchdog_timeout_seconds=config.pop("patience", 60))


@pytest.mark.parametrize(("act", "cause"), [("kill", "SIGKILL"), ("segfault", "SIGSEGV"), ("exit", "exit code 3")])
def test_a_worker_that_dies_is_named_and_replaced_without_a_lost_or_doubled_sample(
    act: str, cause: str, tmp_path: Path
) -> None:
    with deaths(act, tmp_path, once=True) as loader:
        started = time.monotonic()
        assert take(loader, 40) == whole_job(40)
        assert time.monotonic() - started < 10
        (story,) = loader.stats()["worker_deaths"]
    assert cause in story
    assert "pid" in story
    assert f"row {whole_job(10)[6][0][2][1:]}" in story


def test_a_second_death_on_the_same_key_makes_it_a_sample_error(tmp_path: Path) -> None:
    victim = whole_job(10)[6][0][2]
    with deaths("kill", tmp_path, once=False) as loader:
        names = [name for batch in islice(loader, 40) for name in batch["names"]]
        stats = loader.stats()
    assert victim not in names
    rest = [name for batch in whole_job(60) for name in batch[0] if name != victim]
    assert set(names) <= set(rest)
    assert max(Counter(names).values()) <= max(Counter(rest).values())
    assert stats["datasets"][victim[0]]["skipped"]["killed-worker"] >= 1
    assert "the second death on this sample" in "".join(stats["worker_deaths"])
    with (
        deaths("kill", tmp_path, once=False, faults=FaultPolicy("raise")) as strict,
        pytest.raises(SampleError, match="killed its worker twice"),
    ):
        take(strict, 40)


def test_plain_deaths_for_those_who_want_them(tmp_path: Path) -> None:
    with (
        deaths("kill", tmp_path, once=True, on_worker_death="raise") as loader,
        pytest.raises(WorkerError, match=r"worker \d \(pid \d+\) was killed by SIGKILL with data set \d, row"),
    ):
        take(loader, 40)


def test_a_hanging_worker_is_reported_with_its_stack_and_ended_on_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    victim = whole_job(10)[6][0][2]
    dataset = numbers(encode=Deadly(victim, "hang", str(tmp_path / "done")), num_workers=1)
    with Loader(dataset, watchdog_timeout_seconds=1.0, fail_on_timeout=True) as loader:
        assert take(loader, 20) == whole_job(20)
    assert "has been at data set" in caplog.text
    assert "numbers_leaf.py" in caplog.text  # the stack shows where it hangs
    assert "SIGKILL" in caplog.text


def test_without_workers_a_hang_is_reported_with_its_stack_and_interrupted_on_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = threading.active_count()
    victim = whole_job(10)[6][0][2]
    dataset = numbers(encode=Deadly(victim, "hang", str(tmp_path / "done")), num_workers=0)
    with Loader(dataset, watchdog_timeout_seconds=0.4, fail_on_timeout=True) as loader:
        assert take(loader, 6) == whole_job(6)
        with pytest.raises(WorkerError, match=rf"row {victim[1:]}, epoch 0 took more than 0.4 seconds"):
            take(loader, 1)
        assert take(loader, 10) == whole_job(16)[6:]  # the sample did not hang again, and nothing was lost
    assert f"row {victim[1:]}, epoch 0 for more than 0.4 seconds" in caplog.text
    assert "numbers_leaf.py" in caplog.text  # the stack shows where it hangs
    assert caplog.text.count("has been at") == 1
    time.sleep(0.3)
    assert threading.active_count() == before  # its thread has gone with the loader


def test_a_hang_is_interrupted_in_a_job_that_ignores_interrupts(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as for what a script puts into the background
    try:
        victim = whole_job(10)[6][0][2]
        dataset = numbers(encode=Deadly(victim, "hang", str(tmp_path / "done")), num_workers=0)
        with Loader(dataset, watchdog_timeout_seconds=0.4, fail_on_timeout=True) as loader:
            assert take(loader, 6) == whole_job(6)
            with pytest.raises(WorkerError, match=r"took more than 0\.4 seconds"):
                take(loader, 1)
            signal.raise_signal(signal.SIGINT)  # others' are ignored as before
            assert take(loader, 10) == whole_job(16)[6:]
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_user_code_raises_comes_to_the_caller_with_the_workers_trace(tmp_path: Path) -> None:
    with (
        deaths("boom", tmp_path, once=False, faults=FaultPolicy("raise")) as loader,
        pytest.raises(SampleError, match="encode_sample failed: ValueError: boom") as caught,
    ):
        take(loader, 40)
    assert "In worker" in "".join(caught.value.__notes__)
    assert "numbers_leaf.py" in "".join(caught.value.__notes__)
    with (
        deaths("boom", tmp_path, once=False, faults=FaultPolicy(in_a_row=1)) as fatal,
        pytest.raises(FatalSampleError),
    ):
        take(fatal, 40)


def test_nothing_that_can_be_pickled_is_said_clearly() -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match="cannot be sent to a worker process"):
        next(iter(Loader(numbers(encode=lambda name: (name, lock), num_workers=1))))


# Nothing left behind


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_garbage_collection_and_close_leave_no_process() -> None:
    before = children()
    loader = Loader(numbers(num_workers=2))
    kept = take(loader, 3)
    assert len(children() - before) == 2
    del loader
    gc.collect()
    assert children() == before
    assert kept == whole_job(3)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_caller_that_is_killed_or_interrupted_leaves_no_worker(number: signal.Signals) -> None:
    code = (
        "import time\nfrom tests.contract.numbers_leaf import numbers, Deadly\n"
        "from omniloom.data.loader.loader import Loader\n"
        "loader = Loader(numbers(num_workers=2, encode=Deadly('a60', 'hang')))\n"
        "it = iter(loader)\nnext(it)\nprint(*loader._engine.pids, flush=True)\n"
        "while True: next(it)\n"
    )
    caller = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert caller.stdout is not None
    workers = [int(pid) for pid in caller.stdout.readline().split()]
    assert len(workers) == 2
    time.sleep(0.5)  # by now a worker hangs in user code
    caller.send_signal(number)
    caller.wait(10)
    deadline = time.monotonic() + 5
    while any(psutil.pid_exists(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(psutil.pid_exists(pid) for pid in workers)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_slabs_are_used_again_and_never_under_a_living_batch() -> None:
    with Loader(numbers(num_workers=2)) as loader:
        kept = list(islice(loader, 150))
        assert [told(batch) for batch in kept] == whole_job(150)
        before = open_descriptors()
        for batch in islice(loader, 200):
            del batch
        assert open_descriptors() <= before + 8
        assert [told(batch) for batch in kept] == whole_job(150)
        slabs = [len(worker.slabs._slabs) for worker in loader._engine._workers]  # type: ignore[union-attr]
        del kept
    assert max(slabs) <= MOST_SLABS_LENT


def test_stats_account_for_every_sample() -> None:
    for workers in (0, 2):
        with Loader(numbers(num_workers=workers)) as loader:
            names = [name for batch in islice(loader, 50) for name in batch["names"]]
            stats = loader.stats()
        assert stats["batches"] == 50
        for leaf in "ab":
            counts = stats["datasets"][leaf]
            assert counts["yielded"] == counts["read"] == sum(name[0] == leaf for name in names)
        assert stats["seconds_waited"] > 0
