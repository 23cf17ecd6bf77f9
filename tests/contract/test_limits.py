"""A limit counts what the caller gets: batches of each rank, whatever was packed, grouped or made into several."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import Any

import pytest

from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.loader import Loader
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.energon import LimitDataset, RepeatDataset
from omniloom.errors import ConfigError
from tests.contract.numbers_leaf import SHUFFLE, augmented, numbers, shaped, told

EVALUATION = InOrder((Leaf("a", 61), Leaf("b", 40)), unit_rows=16)
LANES = 6


def several(name: str) -> Iterator[Any]:
    """None to two samples of one."""
    for _ in range(int(name[1:]) % 3):
        yield augmented(name)


def made(kind: str, *, plan: Any = EVALUATION, **config: Any) -> Dataset:
    settings = {"plan": plan, "lanes": LANES} | config
    if kind in ("fitted", "grouped", "grouped packs"):
        return shaped(kind, **settings)
    if kind == "several of one":
        return numbers(encode=several, batch_size=3, **settings)
    return numbers(packed=kind == "packed", batch_size=3, **settings)


def one_pass(dataset: Dataset | Loader) -> list[Any]:
    loader = dataset if isinstance(dataset, Loader) else Loader(dataset)
    return [told(batch) for batch in loader]


KINDS = ["plain", "packed", "fitted", "grouped", "grouped packs", "several of one"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_limit_is_of_batches_of_each_rank_and_each_pass_begins_anew(kind: str, ranks: int) -> None:
    plan = replace(EVALUATION, unit_rows=3) if kind == "plain" else EVALUATION  # a unit is a batch
    for rank in range(ranks):
        where = {"rank": rank, "world_size": ranks, "plan": plan}
        whole = one_pass(made(kind, **where))
        limit = len(whole) // 2
        limited = LimitDataset(made(kind, **where), limit)
        loader = Loader(limited)
        assert [one_pass(loader) for _ in range(3)] == [whole[:limit]] * 3
        assert one_pass(LimitDataset(LimitDataset(limited, 100), 2)) == whole[:2]
        assert one_pass(LimitDataset(made(kind, **where), 1_000)) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_in_a_limited_pass_it_goes_on(kind: str) -> None:
    def dataset(**config: Any) -> Dataset:
        return LimitDataset(made(kind, **config), 5)

    job = one_pass(dataset()) * 2
    for step in range(1, 6):
        loader = Loader(dataset())
        drawn = [told(batch) for batch in islice(loader, step)]
        state = json.loads(json.dumps(loader.save_state_rank()))
        for workers in (0, 1) if step == 3 else (0,):
            with Loader(dataset(num_workers=workers)) as again:
                again.restore_state_rank(state)
                assert drawn + one_pass(again) + one_pass(again) == job


@pytest.mark.parametrize("kind", ["plain", "packed", "grouped"])
def test_what_is_repeated_for_ever_has_an_end_where_it_is_limited(kind: str) -> None:
    """As Megatron-LM evaluates: so many batches, however few there are in the data."""
    once = one_pass(made(kind))
    limited = LimitDataset(RepeatDataset(made(kind)), len(once) + 9)
    loader = Loader(limited)
    assert len(loader) == len(once) + 9
    first, second = one_pass(loader), one_pass(loader)
    assert first == second
    assert len(first) == len(once) + 9


def test_training_data_may_be_limited_as_well() -> None:
    endless = [told(batch) for batch in islice(Loader(numbers()), 7)]
    loader = Loader(LimitDataset(numbers(), 7))
    assert len(loader) == 7
    assert [one_pass(loader), one_pass(loader)] == [endless] * 2
    with pytest.raises(ConfigError, match="a limit of 0 batches found"):
        LimitDataset(numbers(), 0)


def test_shuffled_data_two_and_a_half_times() -> None:
    plan = Plan((Leaf("a", 40, passes=1),), shuffle=SHUFFLE)
    rows = Counter(name for names, *_ in one_pass(RepeatDataset(numbers(plan=plan), repeats=2.5)) for name in names)
    assert Counter(rows.values()) == {2: 20, 3: 20}
    twice = RepeatDataset(RepeatDataset(numbers(plan=plan), repeats=2.5), repeats=2)
    assert [leaf.passes for leaf in twice.plan.leaves] == [5]
    half = RepeatDataset(numbers(plan=plan), repeats=0.1)
    assert half.plan.leaves[0].passes == Fraction(1, 10)
    assert sum(len(names) for names, *_ in one_pass(half)) == 4
