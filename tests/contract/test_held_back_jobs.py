"""Jobs whose samples wait in windows and groups: one order on any ranks and workers, through every save and change."""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.loader import Loader
from omniloom.data.plan.plan import Leaf, Plan
from tests.contract.numbers_leaf import FINITE, PLAN, SHAPES, SHUFFLE, Deadly, DeadlyLate, picky, shaped, take

every_shape = pytest.mark.parametrize("shape", SHAPES)
STEPS = 60


def whole_job(shape: str, **settings: Any) -> list[tuple[Any, ...]]:
    return take(Loader(shaped(shape, **settings)), STEPS)


@every_shape
@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_same_batches(shape: str, workers: int) -> None:
    with Loader(shaped(shape, num_workers=workers, encode=picky)) as loader:
        assert take(loader, STEPS) == whole_job(shape, encode=picky)


@every_shape
def test_any_number_of_ranks_gives_the_same_job(shape: str) -> None:
    job = whole_job(shape, encode=picky)
    for world_size in (2, 3, 4, 6, 12):
        for rank in range(world_size):
            loader = Loader(shaped(shape, rank=rank, world_size=world_size, encode=picky))
            assert take(loader, STEPS // world_size) == job[rank::world_size]


@every_shape
def test_saved_at_any_step_it_goes_on_bit_for_bit_on_other_ranks(shape: str) -> None:
    job = whole_job(shape, encode=picky)
    for world_size in (1, 3):
        loaders = [Loader(shaped(shape, rank=r, world_size=world_size, encode=picky)) for r in range(world_size)]
        for step in range(1, 36 // world_size + 1):
            for loader in loaders:
                take(loader, 1)
            states = [json.loads(json.dumps(loader.save_state_rank())) for loader in loaders]
            done = step * world_size
            others = (1, 2, 4)[step % 3]
            seen = {}
            for rank in range(others):
                loader = Loader(shaped(shape, rank=rank, world_size=others, encode=picky))
                loader.restore_state_rank(states)
                first = next(g for g in range(done, done + others) if g % others == rank)
                mine = range(first, STEPS, others)
                seen |= dict(zip(mine, take(loader, len(mine)), strict=True))
            assert [seen[g] for g in range(done, STEPS)] == job[done:]


@every_shape
def test_a_worker_that_dies_while_samples_wait_is_not_noticed(shape: str, tmp_path: Path) -> None:
    encode = Deadly("a23", "kill", once=str(tmp_path / "died"))
    with Loader(shaped(shape, num_workers=2, encode=encode)) as loader:
        assert take(loader, STEPS) == whole_job(shape)
        assert len(loader.stats()["worker_deaths"]) == 1


def test_a_sample_that_kills_twice_while_packed_is_left_out_of_its_pack_alone() -> None:
    def deadly(name: str, **settings: Any) -> Dataset:
        dataset = shaped("fitted", plan=FINITE, lanes=3, **settings)
        pipeline: Any = dataset.pipeline
        return replace(
            dataset, pipeline=replace(pipeline, source=replace(pipeline.source, postencode=DeadlyLate(name)))
        )

    whole = [name for batch in Loader(deadly("nobody")) for name in batch["names"]]
    with Loader(deadly("a23", num_workers=2)) as loader:
        given = [name for batch in loader for name in batch["names"]]
        stats = loader.stats()
    assert stats["datasets"]["a"]["skipped"] == {"killed-worker": 1}
    assert len(stats["worker_deaths"]) == 2
    expected = ["+".join(n for n in pack.split("+") if n != "a23") for pack in whole]
    assert given == [pack for pack in expected if pack]


@every_shape
def test_a_changed_mix_loses_nothing_that_waited(shape: str, caplog: pytest.LogCaptureFixture) -> None:
    lanes = {"lanes": 2}
    before = Plan((Leaf("a", 61, 0.7, passes=1), Leaf("b", 40, 0.3, passes=1)), shuffle=SHUFFLE)
    after = Plan((Leaf("c", 12, 0.5, passes=1), *before.leaves), shuffle=SHUFFLE)
    loader = Loader(shaped(shape, plan=before, **lanes))
    first = take(loader, 5)
    state = json.loads(json.dumps(loader.save_state_rank()))
    again = Loader(shaped(shape, plan=after, **lanes))
    with caplog.at_level(logging.WARNING, logger="omniloom"):
        again.restore_state_rank(state)
    rest = [names for batch in again for names in batch["names"]]
    names = Counter(name for many in (*[n for b in first for n in b[0]], *rest) for name in many.split("+"))
    assert set(names) >= {f"a{row}" for row in range(61)} | {f"b{row}" for row in range(40)}
    # a window that was open is packed anew, so that samples of its used packs come twice; nothing else does
    assert sum(names.values()) - len(names) <= (0 if shape == "grouped" else 2 * 40)


def test_a_changed_packer_packs_the_open_window_anew(caplog: pytest.LogCaptureFixture) -> None:
    def with_settings(settings: str) -> Dataset:
        dataset = shaped("fitted", plan=FINITE, lanes=1)
        pipeline: Any = dataset.pipeline
        return replace(dataset, pipeline=replace(pipeline, source=replace(pipeline.source, settings=settings)))

    loader = Loader(with_settings("40 tokens"))
    first = take(loader, 3)
    again = Loader(with_settings("50 tokens"))
    with caplog.at_level(logging.WARNING, logger="omniloom"):
        again.restore_state_rank(loader.save_state_rank())
    assert "the packer: '40 tokens' -> '50 tokens'" in caplog.text
    names = Counter(n for batch in (*first, *take(again, 99)) for many in batch[0] for n in many.split("+"))
    assert len(names) == 101


def test_a_bounded_group_buffer_goes_on_with_the_bound_of_its_state() -> None:
    def bounded(most_waiting: int, **settings: Any) -> Dataset:
        dataset = shaped("grouped", **settings)
        return replace(dataset, pipeline=replace(dataset.pipeline, most_waiting=most_waiting))

    job = take(Loader(bounded(2)), STEPS)
    assert job != take(Loader(bounded(9)), STEPS)
    loader = Loader(bounded(2))
    take(loader, 20)
    state = json.loads(json.dumps(loader.save_state_rank()))
    seen = {}
    for rank in range(2):  # twice the ranks have half the lanes each, and twice the room for each lane
        again = Loader(bounded(4, rank=rank, world_size=2))
        again.restore_state_rank(state)
        seen |= dict(zip(range(20 + rank, STEPS, 2), take(again, 20), strict=True))
    assert [seen[g] for g in range(20, STEPS)] == job[20:]


@every_shape
def test_stats_account_for_every_sample(shape: str) -> None:
    for workers in (0, 2):
        with Loader(shaped(shape, num_workers=workers, encode=picky)) as loader:
            batches = take(loader, STEPS)
            stats = loader.stats()["datasets"]
        delivered = Counter(name[0] for batch in batches for many in batch[0] for name in many.split("+"))
        waiting = {leaf: stats[leaf]["yielded"] - delivered[leaf] for leaf in "ab"}
        assert all(0 <= count <= 12 * 50 for count in waiting.values())
        for leaf in "ab":
            assert stats[leaf]["read"] == stats[leaf]["yielded"] + sum(stats[leaf]["skipped"].values())
    assert PLAN.endless
