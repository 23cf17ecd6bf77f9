"""The plan of mixes: ends within an epoch, laps without a border, weights that change, shares of tokens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.plan.lane import Lane
from omniloom.data.plan.moving import MovingStream, block_counts
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.data.plan.rebase import rebase_lane
from omniloom.data.plan.weights import Curve, Share
from omniloom.data.plan.weights_at import WeightsAt
from omniloom.data.sample import SampleKey
from omniloom.errors import ConfigError

SHUFFLED = Shuffle(runs=True, run_rows=8, block_rows=50)


def tokens_of(key: SampleKey) -> int:
    """Lengths as some work would report them: data set 0 has short samples, data set 1 long ones."""
    return (20, 200, 1_000)[key.dataset] + key.row % 7


def keys_of(stream: Iterator[SampleKey], count: int) -> list[SampleKey]:
    """Keys of a stream, whose work reports lengths where they are wanted."""
    drawn = []
    for key in islice(stream, count):
        if isinstance(stream, MovingStream):
            stream.tell(key.dataset, tokens_of(key))
        drawn.append(key)
    return drawn


# Ends within an epoch


@given(
    rows=st.integers(1, 200),
    lanes=st.sampled_from([1, 3, 12]),
    passes=st.fractions(Fraction(1, 50), 4, max_denominator=50),
    laps=st.integers(1, 4),
    together=st.sampled_from([1, 2]),
)
@settings(max_examples=80, deadline=None)
def test_laps_of_a_fraction_hold_as_many_rows_and_no_row_twice(
    rows: int, lanes: int, passes: Fraction, laps: int, together: int
) -> None:
    shuffle = Shuffle(runs=True, run_rows=4, block_rows=20, epochs_together=together)
    plan = Plan((Leaf("a", rows, passes=passes),), shuffle=shuffle)
    seen: Counter[tuple[int, int]] = Counter()
    for lap in range(laps):
        shares = [list(plan.open(Lane(i, lanes, lap))) for i in range(lanes)]
        assert [len(share) for share in shares] == [plan.lane_rows(Lane(i, lanes, lap)) for i in range(lanes)]
        assert max(map(len, shares)) - min(map(len, shares)) <= 2
        seen.update((key.epoch, key.row) for share in shares for key in share)
        whole = int(rows * passes * (lap + 1))
        assert sum(seen.values()) == whole
    assert max(seen.values(), default=1) == 1
    epochs, rest = divmod(whole, rows)
    if together == 1 or passes % 2:  # whole epochs are whole, and what is left lies in the one after them
        assert Counter(epoch for epoch, _ in seen) == Counter(
            dict.fromkeys(range(epochs), rows) | ({epochs: rest} if rest else {})
        )


def test_two_and_a_half_passes_by_hand() -> None:
    plan = Plan((Leaf("a", 100, 250.0, passes=Fraction(5, 2)), Leaf("b", 8, 8.0, passes=1)), shuffle=SHUFFLED)
    keys = [key for lane in range(4) for key in plan.open(Lane(lane, 4))]
    assert Counter(key.dataset for key in keys) == {0: 250, 1: 8}
    assert Counter(Counter(key.row for key in keys if key.dataset == 0).values()) == {2: 50, 3: 50}
    again = [key for lane in range(4) for key in plan.open(Lane(lane, 4, lap=1))]
    both = Counter(key.row for key in keys + again if key.dataset == 0)
    assert set(both.values()) == {5}  # two laps are five whole passes
    assert plan.epoch_rows == 258
    assert not plan.endless


@pytest.mark.parametrize("lane", [0, 2])
def test_a_mix_that_repeats_is_its_laps_one_after_the_other(lane: int) -> None:
    leaves = (Leaf("a", 61, 61.0, passes=1), Leaf("b", 7, 17.5, passes=Fraction(5, 2)), Leaf("c", 1, 1.0, passes=1))
    laps = Plan(leaves, shuffle=SHUFFLED)
    endless = Plan(leaves, shuffle=SHUFFLED, repeat=True)
    assert endless.endless
    assert endless.lane_rows(Lane(lane, 5)) is None
    by_lap = [key for lap in range(8) for key in laps.open(Lane(lane, 5, lap))]
    assert list(islice(endless.open(Lane(lane, 5)), len(by_lap))) == by_lap


def test_a_lane_without_rows_in_a_lap_waits_for_the_next() -> None:
    plan = Plan((Leaf("a", 2, 2.0, passes=1),), shuffle=SHUFFLED, repeat=True)
    streams = [plan.open(Lane(i, 12)) for i in range(12)]
    drawn = Counter((key.epoch, key.row) for stream in streams for key in islice(stream, 2))
    # 24 draws of two rows are twelve epochs.
    assert drawn == Counter((epoch, row) for epoch in range(12) for row in range(2))


# Weights that change


def test_curves_go_in_straight_lines_or_in_steps() -> None:
    line = Curve(((100, 1.0), (300, 3.0)))
    assert [line.at(p) for p in (0, 100, 150, 300, 1e9)] == [1, 1, 1.5, 3, 3]
    steps = Curve(((0, 1.0), (300, 3.0)), steps=True)
    assert [steps.at(p) for p in (0, 299, 300, 301)] == [1, 1, 3, 3]
    assert Share(line, (line, Curve.constant(3))).at(300) == 0.5
    assert not Curve.constant(2).moves
    with pytest.raises(ConfigError, match=r"positions \[5, 5\]"):
        Curve(((5, 1.0), (5, 2.0)))
    with pytest.raises(ConfigError, match="weight -1"):
        Curve(((0, -1.0),))


@given(
    shares=st.lists(st.floats(0, 1), min_size=2, max_size=20).filter(lambda s: sum(s) > 0.01),
    draws=st.integers(1, 300),
    data=st.data(),
)
@settings(max_examples=100, deadline=None)
def test_a_block_has_its_draws_whatever_is_owed(shares: list[float], draws: int, data: st.DataObject) -> None:
    shares = [share / sum(shares) for share in shares]
    lengths = st.lists(st.floats(1, 1e5), min_size=len(shares), max_size=len(shares))
    debts = st.lists(st.floats(-1e6, 1e6), min_size=len(shares), max_size=len(shares))
    counts = block_counts(draws, shares=shares, means=data.draw(lengths), owed=data.draw(debts))
    assert sum(counts) == draws
    assert min(counts) >= 0
    assert all(count == 0 for count, share in zip(counts, shares, strict=True) if share == 0)
    assert block_counts(5, shares=[1e-300, 1.0], means=[1, 1], owed=[5, 0]).tolist() == [0, 5]


curves_of_all_kinds = st.builds(
    Curve,
    st.lists(
        st.tuples(st.integers(0, 50), st.floats(0, 9)), min_size=1, max_size=4, unique_by=lambda point: point[0]
    ).map(lambda points: tuple(sorted(points))),
    steps=st.booleans(),
)


@given(groups=st.lists(st.lists(curves_of_all_kinds, min_size=1, max_size=4), min_size=1, max_size=3), data=st.data())
@settings(max_examples=100, deadline=None)
def test_weights_of_all_leaves_together_are_those_of_each_alone(groups: list[list[Curve]], data: st.DataObject) -> None:
    shares = [Share(curve, tuple(group)) for group in groups for curve in group]
    ways = st.lists(st.lists(st.sampled_from(shares), max_size=3).map(tuple), max_size=2).map(tuple)
    leaves = [Leaf(f"{n}", 5, weight=1.0 + n, shares=data.draw(ways)) for n in range(3)]
    together = WeightsAt(leaves)
    for position in data.draw(st.lists(st.integers(0, 60), max_size=5)):
        alone = [leaf.weight_at(position, {}) for leaf in leaves]
        assert together.at(position) == pytest.approx(alone, rel=1e-12)


def moving(*curves: Curve, rows: int = 10_000, **settings: object) -> Plan:
    leaves = tuple(
        Leaf(name, rows, shares=((Share(curve, curves),),)) for name, curve in zip("abc", curves, strict=False)
    )
    return Plan(leaves, shuffle=SHUFFLED, **settings)  # type: ignore[arg-type]


def test_counts_follow_a_schedule_over_the_whole_job() -> None:
    # The share of a falls from 1 to 0 over 24,000 samples of the job: of 4 lanes, 6,000 of each.
    plan = moving(Curve(((0, 1.0), (24_000, 0.0))), Curve(((0, 0.0), (24_000, 1.0))))
    for lane in (0, 3):
        drawn = keys_of(plan.open(Lane(lane, 4)), 8_192)
        for stop in (256, 2_560, 5_888):
            by_blocks = sum(256 * (1 - block * 256 / 6_000) for block in range(stop // 256))
            found = sum(key.dataset == 0 for key in drawn[:stop])
            assert abs(found - by_blocks) <= 2
        assert {key.dataset for key in drawn[6_144:]} == {1}


def test_a_leaf_comes_in_at_a_step() -> None:
    plan = moving(Curve.constant(1), Curve(((0, 0.0), (2_560, 1.0)), steps=True))
    drawn = keys_of(plan.open(Lane(0, 1)), 5_120)
    assert {key.dataset for key in drawn[:2_560]} == {0}
    assert abs(sum(key.dataset == 1 for key in drawn[2_560:]) - 1_280) <= 1


@pytest.mark.parametrize("lanes", [1, 12])
def test_shares_of_tokens_are_kept_though_lengths_differ_fifty_times(lanes: int) -> None:
    leaves = (Leaf("short", 5_000, 1.0), Leaf("middle", 5_000, 2.0), Leaf("long", 500, 1.0))
    plan = Plan(leaves, shuffle=SHUFFLED, weights_in="tokens")
    tokens: Counter[int] = Counter()
    samples: Counter[int] = Counter()
    for lane in range(lanes):
        for key in keys_of(plan.open(Lane(lane, lanes)), 12_000 // lanes):
            tokens[key.dataset] += tokens_of(key)
            samples[key.dataset] += 1
    shares = [tokens[i] / sum(tokens.values()) for i in range(3)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.02)  # the first block's guess is not paid back
    # By hand: 1/23 : 2/203 : 1/1003 of the samples.
    assert samples[0] / sum(samples.values()) == pytest.approx((1 / 23) / (1 / 23 + 2 / 203 + 1 / 1_003), abs=0.02)


def test_a_known_length_is_right_from_the_first_block() -> None:
    leaves = (Leaf("short", 5_000, 1.0, mean_tokens=23), Leaf("middle", 5_000, 1.0, mean_tokens=203))
    first = Counter(key.dataset for key in keys_of(Plan(leaves, weights_in="tokens").open(Lane(0, 1)), 256))
    assert first[1] in (25, 26)  # 256 * 23 / 226 = 26.1


def test_a_length_that_was_not_known_is_not_paid_back() -> None:
    leaves = (Leaf("short", 5_000, 1.0), Leaf("middle", 5_000, 0.0), Leaf("long", 5_000, 1.0))
    drawn = keys_of(Plan(leaves, weights_in="tokens").open(Lane(0, 1)), 2_000)
    assert Counter(key.dataset for key in drawn[:8]) == {0: 4, 2: 4}
    # Of what follows, 23 of 1,026 samples are long ones, from the beginning.
    for start in range(8, 2_000, 400):
        assert sum(key.dataset == 2 for key in drawn[start : start + 400]) == pytest.approx(400 * 23 / 1_026, abs=4)


def test_a_schedule_over_tokens_goes_by_what_was_told() -> None:
    plan = moving(
        Curve.constant(1), Curve(((0, 0.0), (100_000, 1.0)), steps=True), schedule_in="tokens"
    )  # fmt: skip
    drawn = keys_of(plan.open(Lane(0, 2)), 4_000)
    first = next(number for number, key in enumerate(drawn) if key.dataset == 1)
    told = sum(tokens_of(key) for key in drawn[:first])
    assert 50_000 <= told < 50_000 + 256 * 27  # half of the job's 100,000 on this lane, then the next block


# States

MIXES = {
    "repeats": Plan(
        (Leaf("a", 61, 61.0, passes=1), Leaf("b", 7, 17.5, passes=Fraction(5, 2))), shuffle=SHUFFLED, repeat=True
    ),
    "fraction": Plan((Leaf("a", 900, 450.0, passes=Fraction(1, 2)), Leaf("b", 33, 33.0, passes=1)), shuffle=SHUFFLED),
    "own shuffles": Plan((Leaf("a", 300, 2.0), Leaf("b", 90, 1.0, shuffle=Shuffle(block_rows=9))), shuffle=SHUFFLED),
    "schedule": moving(Curve(((0, 1.0), (3_000, 0.1))), Curve.constant(0.5), rows=700),
    "tokens": Plan((Leaf("a", 300, 1.0), Leaf("b", 90, 1.0)), shuffle=SHUFFLED, weights_in="tokens"),
    "tokens that end": Plan(
        (Leaf("a", 300, 1.0), Leaf("b", 40, 1.0, passes=1), Leaf("c", 40, 1.0)), shuffle=SHUFFLED, weights_in="tokens"
    ),
    "all at once": moving(
        Curve(((0, 1.0), (300_000, 0.1))), Curve.constant(1.0), weights_in="tokens", schedule_in="tokens", rows=99
    ),
}


@pytest.mark.parametrize("name", MIXES)
@pytest.mark.parametrize("lane", [Lane(0, 1), Lane(2, 5)])
def test_a_saved_place_goes_on_exactly_from_every_draw(name: str, lane: Lane) -> None:
    plan = MIXES[name]
    whole = keys_of(plan.open(lane), 900)
    stream = plan.open(lane)
    for place in range(len(whole) + 1):
        saved = json.loads(json.dumps(stream.state_dict()))
        if place % 17 == 0 or place > len(whole) - 3:
            restored = plan.open(lane)
            restored.load_state_dict(saved)
            assert json.loads(json.dumps(restored.state_dict())) == saved
            assert keys_of(restored, len(whole) - place) == whole[place:]
        keys_of(stream, 1)


@pytest.mark.parametrize("name", MIXES)
def test_peek_changes_nothing(name: str) -> None:
    plain, peeking = MIXES[name].open(Lane(1, 3)), MIXES[name].open(Lane(1, 3))
    for _ in range(300):
        ahead = peeking.peek(5)
        (key,) = keys_of(peeking, 1) or [None]
        assert not ahead or ahead[0] == key
        assert ([key] if key else []) == keys_of(plain, 1)


@pytest.mark.parametrize(
    ("then", "now"), [("fixed", "schedule"), ("schedule", "fixed"), ("tokens", "fixed"), ("tokens", "schedule")]
)
def test_under_other_rules_every_leaf_goes_on_from_its_row(then: str, now: str) -> None:
    plans = {
        "fixed": Plan((Leaf("a", 700, 0.7), Leaf("b", 700, 0.3)), shuffle=SHUFFLED),
        "schedule": MIXES["schedule"],
        "tokens": Plan((Leaf("a", 700, 1.0), Leaf("b", 700, 1.0)), shuffle=SHUFFLED, weights_in="tokens"),
    }
    lane = Lane(1, 3)
    stream = plans[then].open(lane)
    before = keys_of(stream, 333)
    saved_leaves = [(leaf.name, leaf.rows, leaf.weight) for leaf in plans[then].leaves]
    state = rebase_lane(plans[now], saved_leaves, lane, json.loads(json.dumps(stream.state_dict())))
    assert state is not None
    after = plans[now].open(lane)
    after.load_state_dict(state)
    later = keys_of(after, 1_500)
    for number, leaf in enumerate(plans[now].leaves):
        drawn = [key[1:3] for key in before + later if key.dataset == number]
        alone = Plan((Leaf(leaf.name, leaf.rows),), shuffle=SHUFFLED).open(lane)
        assert drawn == [key[1:3] for key in islice(alone, len(drawn))]


def test_a_leaf_that_is_added_to_epochs_begins_with_the_running_one() -> None:
    then = Plan((Leaf("a", 40, 40.0, passes=1),), shuffle=SHUFFLED, repeat=True)
    now = Plan((Leaf("a", 40, 40.0, passes=1), Leaf("new", 10, 10.0, passes=1)), shuffle=SHUFFLED, repeat=True)
    lane = Lane(0, 1)
    stream = then.open(lane)
    keys_of(stream, 100)  # two epochs and a half
    state = rebase_lane(now, [("a", 40, 40.0)], lane, stream.state_dict())
    assert state is not None
    after = now.open(lane)
    after.load_state_dict(state)
    rest = keys_of(after, 30)  # what is left of a's third epoch, and all of the new leaf once
    assert Counter(key.dataset for key in rest) == {0: 20, 1: 10}
    assert {key.epoch for key in rest} == {2}
