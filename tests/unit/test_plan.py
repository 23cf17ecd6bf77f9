"""The plan: every epoch whole, shares within one, blends within one of their share, exact states."""

from __future__ import annotations

import copy
import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.plan.blend import BLOCK_DRAWS, Blend
from omniloom.data.plan.lane import Deal, Lane, default_lanes, divisors, rank_lanes
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.data.plan.rebase import rebase_lane
from omniloom.data.sample import SampleKey
from omniloom.errors import ConfigError

SHUFFLED = Shuffle(runs=True, run_rows=8, block_rows=50)


def draws(plan: Plan, lane: Lane, count: int) -> list[SampleKey]:
    return list(islice(plan.open(lane), count))


@given(
    rows=st.integers(1, 300),
    lanes=st.sampled_from([1, 2, 7, 12, 60]),
    epochs=st.integers(1, 4),
    shuffle=st.sampled_from([Shuffle(), SHUFFLED, Shuffle(runs=True), Shuffle(block_rows=10)]),
)
@settings(max_examples=80, deadline=None)
def test_every_epoch_holds_every_row_once_over_all_lanes(rows: int, lanes: int, epochs: int, shuffle: Shuffle) -> None:
    plan = Plan((Leaf("a", rows, passes=epochs),), shuffle=shuffle)
    shares = [list(plan.open(Lane(i, lanes))) for i in range(lanes)]
    seen = Counter((key.epoch, key.row) for share in shares for key in share)
    assert seen == Counter({(epoch, row): 1 for epoch in range(epochs) for row in range(rows)})
    for epoch in range(epochs):
        sizes = [sum(key.epoch == epoch for key in share) for share in shares]
        assert max(sizes) - min(sizes) <= 1
    totals = [len(share) for share in shares]
    assert max(totals) - min(totals) <= 1  # what is left over goes round
    assert totals == [plan.lane_rows(Lane(i, lanes)) for i in range(lanes)]


@given(
    rows=st.integers(1, 10**12), lanes=st.integers(1, 5_000), start=st.integers(0, 4_999), drawn=st.integers(0, 10**9)
)
@settings(max_examples=200, deadline=None)
def test_where_a_count_of_rows_lies_is_found_without_counting(rows: int, lanes: int, start: int, drawn: int) -> None:
    deal = Deal(rows, lanes, start % lanes)
    lane = drawn % lanes
    epoch, offset = deal.locate(lane, drawn)
    first, stop = deal.section(lane, epoch)
    assert 0 <= offset < stop - first
    assert deal.dealt(lane, epoch) + offset == drawn
    assert deal.dealt(lane, epoch + 1) - deal.dealt(lane, epoch) == stop - first


def test_a_hundred_draws_of_a_hundred_rows_miss_at_most_one_row_fewer_than_lanes() -> None:
    lanes = 8
    plan = Plan((Leaf("a", 100),), shuffle=SHUFFLED)
    streams = [plan.open(Lane(i, lanes)) for i in range(lanes)]
    job = [next(streams[g % lanes]) for g in range(100)]
    assert len({key.row for key in job}) >= 100 - (lanes - 1)


def test_laps_of_a_data_set_that_ends_go_on_with_the_next_epoch() -> None:
    plan = Plan((Leaf("a", 30, passes=1), Leaf("b", 7, passes=1)), shuffle=SHUFFLED)
    for lap in range(3):
        keys = [key for i in range(4) for key in plan.open(Lane(i, 4, lap))]
        assert Counter(keys) == Counter(
            [SampleKey(0, lap, row) for row in range(30)] + [SampleKey(1, lap, row) for row in range(7)]
        )


def test_order_hangs_on_seed_epoch_lane_and_name_but_not_on_position() -> None:
    plan = Plan((Leaf("a", 5_000),), shuffle=SHUFFLED)
    first = [key.row for key in draws(plan, Lane(0, 4), 500)]
    assert first != [key.row for key in draws(Plan(plan.leaves, plan.shuffle, seed=1), Lane(0, 4), 500)]
    moved = Plan((Leaf("z", 0), Leaf("a", 5_000)), shuffle=SHUFFLED)
    assert first == [key.row for key in draws(moved, Lane(0, 4), 500)]
    renamed = Plan((Leaf("b", 5_000),), shuffle=SHUFFLED)
    assert first != [key.row for key in draws(renamed, Lane(0, 4), 500)]
    epochs: dict[int, list[int]] = {}
    for key in draws(plan, Lane(0, 4), 3_750):
        epochs.setdefault(key.epoch, []).append(key.row)
    assert set(epochs[0]) != set(epochs[1])  # a lane sees other rows in the next epoch


def test_rows_in_order_without_shuffle() -> None:
    plan = Plan((Leaf("a", 10, passes=1),))
    assert [[key.row for key in plan.open(Lane(i, 2))] for i in range(2)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_epochs_shuffled_together_hold_each_row_as_often_as_epochs() -> None:
    plan = Plan((Leaf("a", 1_000),), shuffle=Shuffle(runs=True, block_rows=100, epochs_together=3))
    keys = [key for i in range(4) for key in draws(plan, Lane(i, 4), 750)]
    assert Counter((key.epoch, key.row) for key in keys) == Counter((e, r) for e in range(3) for r in range(1_000))
    assert {key.epoch for key in draws(plan, Lane(0, 4), 250)} == {0, 1, 2}


def test_with_replacement_rows_repeat_and_all_come_up() -> None:
    plan = Plan((Leaf("a", 100),), shuffle=Shuffle(runs=True, block_rows=100, with_replacement=True))
    counts = Counter(key.row for i in range(4) for key in draws(plan, Lane(i, 4), 2_500))
    assert len(counts) == 100
    assert max(counts.values()) > 110 > 90 > min(counts.values())  # dealt whole, each would be 100


@given(
    weights=st.lists(st.floats(1e-9, 1e6), min_size=2, max_size=60), lane=st.integers(0, 100), blocks=st.integers(1, 60)
)
@settings(max_examples=60, deadline=None)
def test_counts_stay_within_one_of_the_share_at_every_block_end(weights: list[float], lane: int, blocks: int) -> None:
    blend = Blend(weights, lane=lane, seed=0)
    share = np.array(weights) / sum(weights)
    drawn = [0] * len(weights)
    for _ in range(blocks):
        counts = blend.block_counts(drawn)
        assert sum(counts) == BLOCK_DRAWS
        assert min(counts) >= 0
        drawn = [a + b for a, b in zip(drawn, counts, strict=True)]
        # The lane's clock starts within a period, itself within one of the share: two in all.
        bound = 1 if lane == 0 else 2
        assert np.max(np.abs(np.array(drawn) - sum(drawn) * share)) < bound + 1e-3


def test_seven_tenths_are_seven_thousand_of_ten_thousand() -> None:
    plan = Plan((Leaf("a", 997, weight=0.7), Leaf("b", 991, weight=0.3)), shuffle=SHUFFLED)
    for lane in range(6):
        counts = Counter(key.dataset for key in draws(plan, Lane(lane, 6), 40 * BLOCK_DRAWS))
        assert abs(counts[0] - 0.7 * 40 * BLOCK_DRAWS) < 2


def test_a_rare_leaf_does_not_come_on_all_lanes_at_once() -> None:
    plan = Plan((Leaf("common", 10**6, weight=9_999), Leaf("rare", 10, weight=1)))
    first = [next(n for n, key in enumerate(plan.open(Lane(i, 12))) if key.dataset == 1) for i in range(12)]
    assert max(first) - min(first) > 5_000
    assert len({n // BLOCK_DRAWS for n in first}) >= 10


def test_a_leaf_that_ends_leaves_the_draw_and_the_rest_share_it() -> None:
    plan = Plan((Leaf("a", 10_000, 0.6), Leaf("b", 10_000, 0.3), Leaf("short", 40, 0.1, passes=1)))
    keys = draws(plan, Lane(0, 1), 40_000)
    assert sum(key.dataset == 2 for key in keys) == 40
    tail = Counter(key.dataset for key in keys[1_000:])
    assert tail[0] / tail[1] == pytest.approx(2, rel=0.001)


def test_leaves_without_rows_or_weight_are_never_drawn() -> None:
    plan = Plan((Leaf("none", 0), Leaf("zero", 10, weight=0), Leaf("a", 10)))
    assert {key.dataset for key in draws(plan, Lane(0, 2), 100)} == {2}
    assert list(Plan((Leaf("none", 0),)).open(Lane(0, 1))) == []


def test_wrong_leaves_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="used twice: a"):
        Plan((Leaf("a", 1), Leaf("a", 2)))
    with pytest.raises(ConfigError, match=r"leaf 'a': weight -1"):
        Plan((Leaf("a", 1, weight=-1),))


MIXES = {
    "one": Plan((Leaf("a", 100),), shuffle=SHUFFLED),
    "blend": Plan((Leaf("a", 101, 0.5), Leaf("b", 33, 0.4), Leaf("c", 1, 0.1)), shuffle=SHUFFLED, seed=3),
    "ends": Plan((Leaf("a", 900, passes=1), Leaf("b", 333, passes=2), Leaf("c", 1, passes=1)), shuffle=SHUFFLED),
    "partly ends": Plan((Leaf("a", 300, 5), Leaf("b", 33, 3, passes=2)), shuffle=SHUFFLED),
}


@pytest.mark.parametrize("name", MIXES)
@pytest.mark.parametrize("lane", [Lane(0, 1), Lane(2, 5), Lane(4, 5, lap=2)])
def test_a_saved_place_goes_on_exactly_from_every_draw(name: str, lane: Lane) -> None:
    plan = MIXES[name]
    whole = draws(plan, lane, 700)
    stream = plan.open(lane)
    for place in range(len(whole) + 1):
        saved = json.loads(json.dumps(stream.state_dict()))
        if place % 13 == 0 or place > len(whole) - 3:
            restored = plan.open(lane)
            restored.load_state_dict(copy.deepcopy(saved))
            assert restored.state_dict() == saved
            assert list(islice(restored, len(whole) - place)) == whole[place:]
        next(stream, None)


def test_peek_shows_what_comes_and_draws_nothing() -> None:
    stream = MIXES["blend"].open(Lane(0, 1))
    ahead = stream.peek(20)
    assert [next(stream) for _ in range(20)] == ahead


def test_cursors_count_what_each_leaf_gave() -> None:
    stream = MIXES["blend"].open(Lane(0, 1))
    given_keys = [next(stream) for _ in range(300)]
    names = {0: "a", 1: "b", 2: "c"}
    assert stream.cursors() == Counter(names[key.dataset] for key in given_keys)


def test_lanes_have_useful_divisors_and_are_dealt_to_ranks() -> None:
    assert default_lanes(1, 0) == 12
    assert default_lanes(8, 4) == 96
    assert default_lanes(1_024, 8) % (1_024 * 8) == 0
    assert divisors(96) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96]
    assert list(rank_lanes(12, 1, 4)) == [1, 5, 9]
    with pytest.raises(ConfigError, match=r"12 lanes cannot be dealt to 5 .* Use 1, 2, 3, 4, 6 or 12 ranks"):
        rank_lanes(12, 1, 5)


def test_under_changed_weights_every_leaf_goes_on_from_its_row() -> None:
    then = Plan((Leaf("a", 61, 0.7), Leaf("b", 40, 0.3)), shuffle=SHUFFLED)
    now = Plan((Leaf("new", 9, 1), Leaf("b", 40, 8), Leaf("a", 61, 0.1)), shuffle=SHUFFLED)
    saved_leaves = [(leaf.name, leaf.rows, leaf.weight) for leaf in then.leaves]
    for lane in (Lane(0, 3), Lane(2, 3)):
        stream = then.open(lane)
        before = [next(stream) for _ in range(333)]
        state = rebase_lane(now, saved_leaves, lane, stream.state_dict())
        assert state is not None
        after = now.open(lane)
        after.load_state_dict(state)
        later = [next(after) for _ in range(2_000)]
        for name, old, new in (("a", 0, 2), ("b", 1, 1)):
            drawn = [key[1:3] for key in before if key.dataset == old]
            drawn += [key[1:3] for key in later if key.dataset == new]
            alone = Plan((next(leaf for leaf in now.leaves if leaf.name == name),), shuffle=SHUFFLED)
            assert drawn == [key[1:3] for key in draws(alone, lane, len(drawn))]
    assert rebase_lane(now, saved_leaves, Lane(0, 3), None) is None
