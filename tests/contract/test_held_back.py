"""Packs, groups and generators: exact from every step, whatever waits, fails, or comes in several."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pytest

from omniloom.data.pipeline.batch import Batch, Map
from omniloom.data.pipeline.best_fit import BestFitPacker
from omniloom.data.pipeline.desk import Desk
from omniloom.data.pipeline.faults import FaultPolicy
from omniloom.data.pipeline.group import Group
from omniloom.data.pipeline.iter_map import IterMap
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.pack import Pack, _tell_of_growth
from omniloom.data.pipeline.restore import restore
from omniloom.data.pipeline.selection import Selection
from omniloom.data.pipeline.stream import Stage
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.lane import Lane
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.data.sample import UNIT_END
from omniloom.errors import ConfigError, FatalSampleError, SkipSample
from tests.contract.test_pipeline import Numbers

ENDLESS = Plan((Leaf("a", 57, 0.6), Leaf("b", 20, 0.4)), shuffle=Shuffle(runs=True, run_rows=4, block_rows=16))
FINITE = Plan((Leaf("a", 57, passes=1), Leaf("b", 20, passes=1)))
IN_ORDER = InOrder((Leaf("a", 57), Leaf("b", 20)), unit_rows=20)
BY_TOKENS = Plan(ENDLESS.leaves, shuffle=ENDLESS.shuffle, weights_in="tokens")
PLANS = {"endless": ENDLESS, "finite": FINITE, "in order": IN_ORDER, "by tokens": BY_TOKENS}


@dataclass
class Sample:
    """A number, a length, something drawn, and room for a restore key."""

    number: int
    length: int
    drawn: float
    __restore_key__: Any = None


def encoded(number: int) -> Sample:
    return Sample(number, 1 + number * 7 % 40, random.random())


def picky(number: int) -> Sample:
    if number % 5 == 0:
        raise SkipSample
    if number % 7 == 0:
        raise ValueError(f"{number} will not do")
    return encoded(number)


def several(number: int) -> Iterator[Sample]:
    for part in range(number % 4):
        yield Sample(number * 10 + part, 1 + number % 30, random.random())


def drawn_late(sample: Sample) -> Sample:
    if sample.number % 11 == 0:
        raise SkipSample("late")
    return Sample(sample.number, sample.length, float(np.random.rand()), sample.__restore_key__)


PACKER = BestFitPacker({"tokens": 60, "samples": 6})


def fitted(samples: list[Sample], *, last: bool) -> Selection:
    return PACKER.select(samples, [{"tokens": s.length, "samples": 1} for s in samples], last=last)


def greedy(samples: list[Sample]) -> Selection:
    """One pack of those that fit, the rest waits; those of an unlucky length are left out for it."""
    unlucky = [s for s in samples if s.length == 13]
    pack: list[Sample] = []
    again = []
    for sample in (s for s in samples if s.length != 13):
        (pack if sum(s.length for s in pack) + sample.length <= 50 else again).append(sample)
    return Selection([pack] if pack else [], again, {"unlucky": unlucky})


def hesitant(samples: list[Sample]) -> Selection:
    """Lets all wait until there are twenty."""
    return Selection([samples] if len(samples) >= 20 else [], [] if len(samples) >= 20 else samples)


def nothing_ever(samples: list[Sample]) -> Selection:
    return Selection([], samples)


def pairs(samples: list[Sample]) -> list[list[Sample]]:
    return [samples[i : i + 2] for i in range(0, len(samples) - 1, 2)]


def packed(samples: list[Sample]) -> dict[str, Any]:
    return {
        "numbers": [f"number={s.number} drew {s.drawn}" for s in samples],
        "drawn": random.random(),
        "__restore_key__": None,
    }


def packed_in_two(samples: list[Sample]) -> Iterator[dict[str, Any]]:
    for half in (samples[::2], samples[1::2]):
        if half:
            yield packed(half)


def by_length(value: Any) -> tuple[Any, int | None]:
    if isinstance(value, dict):
        return len(value["numbers"]) // 2, None
    if value.number % 13 == 1:
        raise ValueError("no group")
    return value.length // 10, None


def own_size(sample: Sample) -> tuple[Any, int | None]:
    return sample.number % 3, 2 + sample.number % 3


def collate(values: list[Any]) -> dict[str, Any]:
    return {"values": [str(v) for v in values], "drawn": random.random(), "__restore_key__": None}


def collate_twice(values: list[Any]) -> Iterator[dict[str, Any]]:
    if len(values) > 2:
        yield collate(values[:2])
    yield collate(values[2:] or values)


def twice(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield batch
    yield {**batch, "again": random.random()}


def some_of_each(samples: Iterator[Sample]) -> Iterator[dict[str, Any]]:
    for sample in samples:
        for _ in range(sample.number % 3):
            yield packed([sample])


CALLS = (("batch", 5, collate),)
MANY = (("batch", 5, collate_twice), ("encode_batch", 6, twice))


def length_of(sample: Sample) -> int:
    return sample.length


def fails_at_times(values: list[Any]) -> dict[str, Any]:
    if "number=3" in str(values):
        raise ValueError("number 3 and its like")
    return collate(values)


def pipelines(plan: Any) -> dict[str, Stage]:
    def make(encode: Any) -> Make:
        tokens = length_of if plan is BY_TOKENS else None
        return Make(plan, (Numbers("a", []), Numbers("b", [])), encode=encode, tokens=tokens)

    return {
        "fitted": Batch(Pack(make(encoded), 12, fitted, packed), 2, CALLS),
        "fitted, picky, late": Batch(Pack(make(picky), 12, fitted, packed, drawn_late), 2, CALLS),
        "batches that fail": Batch(Pack(make(encoded), 12, fitted, packed), 3, (("batch", 5, fails_at_times),)),
        "fitted generators": Batch(Pack(make(several), 9, fitted, packed_in_two, drawn_late), 3, CALLS),
        "greedy": Pack(make(encoded), 7, greedy, packed),
        "hesitant": Pack(make(encoded), 3, hesitant, packed),
        "pairs": Batch(Pack(make(picky), 7, pairs, packed, drawn_late), 2, CALLS),
        "grouped": Group(make(encoded), by_length, 3, CALLS),
        "grouped, picky, late": Group(Map(make(picky), ("postencode_sample", 2, drawn_late)), by_length, 3, CALLS),
        "grouped generators": Group(make(several), by_length, 3, CALLS, most_waiting=4),
        "groups of own size": Group(make(encoded), own_size, None, CALLS),
        "grouped packs": Group(Pack(make(picky), 12, fitted, packed_in_two, drawn_late), by_length, 2, CALLS),
        "batch generators": Batch(make(several), 4, MANY),
        "batch generators, of a stream's results": Batch(IterMap(make(picky), some_of_each), 2, CALLS),
        "batch generators, a stream's results": IterMap(make(several), some_of_each),
        "batch generators of packs": Batch(Pack(make(encoded), 12, fitted, packed_in_two), 3, MANY),
    }


NAMES = list(pipelines(ENDLESS))


def told(item: Any) -> Any:
    return "end of unit" if item[0] is UNIT_END else json.loads(json.dumps(item[1]))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", NAMES)
def test_a_saved_state_goes_on_bit_for_bit_from_every_step(name: str, plan: str) -> None:
    pipeline = pipelines(PLANS[plan])[name]
    for lane in (Lane(0, 1), Lane(1, 3)) if plan == "endless" else (Lane(1, 3),):
        stream = pipeline.open(lane, Desk(FaultPolicy(in_a_row=0)))
        states = [json.dumps(stream.state_dict())]
        whole = []
        for item in islice(stream, 18):
            whole.append(told(item))
            states.append(json.dumps(stream.state_dict()))
        rest = [told(item) for item in islice(stream, 6)]
        for place, state in enumerate(states):
            restored = pipeline.open(lane, Desk(FaultPolicy(in_a_row=0)))
            restored.load_state_dict(json.loads(state))
            assert json.dumps(restored.state_dict()) == state
            assert [told(i) for i in islice(restored, len(whole) - place + len(rest))] == whole[place:] + rest


@pytest.mark.parametrize("name", NAMES)
def test_every_value_is_made_again_by_its_restore_key(name: str) -> None:
    pipeline = pipelines(ENDLESS)[name]
    seen = 0
    for _, value in islice(pipeline.open(Lane(0, 1), Desk(FaultPolicy(in_a_row=0))), 20):
        key = value["__restore_key__"]
        if key is not None:
            assert restore(pipeline, json.loads(json.dumps(key)), leaves=2) == value
            seen += 1
    assert seen or name in {n for n in NAMES if isinstance(pipelines(ENDLESS)[n], Group | Batch)} - {"batch generators"}


@pytest.mark.parametrize("plan", ["finite", "in order"])
@pytest.mark.parametrize("name", NAMES)
def test_every_sample_is_given_once_or_counted(name: str, plan: str) -> None:
    desk = Desk(FaultPolicy(in_a_row=0))
    pipeline = pipelines(PLANS[plan])[name]
    given = [told(item) for item in pipeline.open(Lane(0, 1), desk) if item[0] is not UNIT_END]
    tally = desk.tally.take()
    yielded = sum(leaf.yielded for leaf in tally.values())
    assert sum(leaf.read for leaf in tally.values()) == 77
    if "generators" not in name:
        lost = sum(sum(leaf.skipped.values()) for leaf in tally.values())
        assert yielded + lost == 77
    if "batch generators" not in name:
        assert "".join(map(json.dumps, given)).count("number=") == yielded


def test_what_waits_is_kept_by_its_keys_and_read_again_within_bounds() -> None:
    leaves = (Numbers("a", []), Numbers("b", []))
    pipeline = Pack(Make(ENDLESS, leaves, encode=encoded), 12, fitted, packed)
    stream = pipeline.open(Lane(0, 1), Desk())
    for _ in range(200):
        next(stream)
        state = stream.state_dict()
        assert all(len(key) == 4 and all(isinstance(n, int) for n in key) for key in state.get("again", []))
        before = len(leaves[0].reads) + len(leaves[1].reads)
        pipeline.open(Lane(0, 1), Desk()).load_state_dict(state)
        # five packs' worth of 60 tokens, of samples of 1 to 40, to choose from; and as many as the packs used up
        assert len(leaves[0].reads) + len(leaves[1].reads) - before <= 2 * 40


def test_nothing_stalls_and_what_never_fits_is_counted() -> None:
    desk = Desk()
    pipeline = Pack(Make(FINITE, (Numbers("a", []), Numbers("b", [])), encode=encoded), 5, nothing_ever, packed)
    assert list(pipeline.open(Lane(0, 1), desk)) == []
    assert sum(leaf.skipped["not-selected"] for leaf in desk.tally.take().values()) == 77

    endless = Pack(Make(ENDLESS, (Numbers("a", []), Numbers("b", [])), encode=encoded), 5, greedy, packed)
    desk = Desk()
    for _ in islice(endless.open(Lane(0, 1), desk), 50):
        pass
    assert {reason for leaf in desk.tally.take().values() for reason in leaf.skipped} == {"unlucky"}


def test_a_window_that_is_too_small_grows_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    _tell_of_growth.cache_clear()
    make = Make(ENDLESS, (Numbers("a", []), Numbers("b", [])), encode=encoded)
    for _ in islice(Pack(make, 3, hesitant, packed).open(Lane(0, 1), Desk()), 9):
        pass
    assert caplog.text.count("packing windows of 3 samples a lane are too small to choose a pack from") == 1


def test_choosing_nothing_for_ever_is_an_error_and_not_a_standstill() -> None:
    make = Make(ENDLESS, (Numbers("a", []), Numbers("b", [])), encode=encoded)
    alone = Pack(make, 1, pairs, packed).open(Lane(0, 1), Desk(FaultPolicy(in_a_row=7)))
    with pytest.raises(FatalSampleError, match="chose nothing in 7 windows in a row; the last one had 1 samples"):
        next(alone)


def test_like_samples_are_told_apart() -> None:
    def number(value: int) -> int:
        return value % 3  # the very same objects, again and again

    def two_alike(samples: list[int]) -> Selection:
        ones = [sample for sample in samples if sample == 1]
        return Selection([ones[i : i + 2] for i in range(0, len(ones) - 1, 2)], again=ones[len(ones) // 2 * 2 :])

    desk = Desk()
    pipeline = Pack(Make(FINITE, (Numbers("a", []), Numbers("b", [])), encode=number), 9, two_alike, list)
    items = list(pipeline.open(Lane(0, 1), desk))
    keys = [key for pack_key, _ in items for key in pack_key.samples]  # type: ignore[union-attr]
    assert len(keys) == len(set(keys)) == 26  # by hand: of 0 to 56 and of 0 to 19, 19 and 7 leave 1 when divided by 3
    assert all(pack == [1, 1] for _, pack in items)
    assert all(number(key.row) == 1 for key in keys)
    assert sum(leaf.skipped["not-selected"] for leaf in desk.tally.take().values()) == 77 - 26


def test_evaluation_packs_and_groups_within_units_whatever_the_lanes() -> None:
    for name in ("fitted", "grouped", "groups of own size"):
        pipeline = pipelines(IN_ORDER)[name]
        jobs = []
        for lanes in (1, 2, 4):
            streams = [pipeline.open(Lane(index, lanes), Desk()) for index in range(lanes)]
            given = [told(item) for stream in streams for item in stream if item[0] is not UNIT_END]
            jobs.append(sorted(map(json.dumps, given)))
        assert jobs[0] == jobs[1] == jobs[2]


def test_groups_have_one_kind_and_the_size_that_was_said() -> None:
    def numbers(values: list[Sample]) -> list[int]:
        return [value.number for value in values]

    make = Make(ENDLESS, (Numbers("a", []), Numbers("b", [])), encode=encoded)
    for batch in islice(Group(make, own_size, None, (("batch", 0, numbers),)).open(Lane(0, 1), Desk()), 60):
        rests = {number % 3 for number in batch[1]}
        assert len(rests) == 1
        assert len(batch[1]) == 2 + rests.pop()


def test_a_full_buffer_of_groups_hands_on_the_oldest() -> None:
    def rare(sample: Sample) -> tuple[Any, None]:
        return sample.number, None

    make = Make(FINITE, (Numbers("a", []), Numbers("b", [])), encode=encoded)
    first = list(make.open(Lane(0, 1), Desk()))
    stream = Group(make, rare, 5, (("batch", 0, list),), most_waiting=6).open(Lane(0, 1), Desk())
    assert next(stream)[1][0] == first[0][1]
    assert len(stream.state_dict()["waiting"]) <= 6


def test_sizes_are_said_by_exactly_one() -> None:
    make = Make(ENDLESS, (Numbers("a", []), Numbers("b", [])), encode=encoded)
    with pytest.raises(ConfigError, match="gave the batch size None, and batch_size=None; exactly one of the two"):
        next(Group(make, by_length, None, CALLS).open(Lane(0, 1), Desk()))
    with pytest.raises(ConfigError, match=r"gave the batch size [234], and batch_size=4; exactly one"):
        next(Group(make, own_size, 4, CALLS).open(Lane(0, 1), Desk()))
    with pytest.raises(ConfigError, match=r"gave 'x'; \(group, batch size or None\) expected"):
        next(Group(make, lambda sample: "x", 4, CALLS).open(Lane(0, 1), Desk()))  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigError, match="does not go with a `batch`"):
        Group(make, by_length, 4, MANY)


def test_a_key_that_killed_its_worker_while_packing_is_left_alone_there() -> None:
    make = Make(FINITE, (Numbers("a", []), Numbers("b", [])), encode=encoded)
    pipeline = Pack(make, 12, fitted, packed, postencode=drawn_late)
    whole = [value for _, value in pipeline.open(Lane(0, 1), Desk())]
    key, sample = list(make.open(Lane(0, 1), Desk()))[3]
    desk = Desk(poisoned=frozenset([key._replace(part=-1)]))  # type: ignore[union-attr]
    rest = [value for _, value in pipeline.open(Lane(0, 1), desk)]
    assert sum(leaf.skipped.get("killed-worker", 0) for leaf in desk.tally.take().values()) == 1
    changed = [i for i, (one, other) in enumerate(zip(whole, rest, strict=True)) if one != other]
    assert len(changed) == 1
    assert f"number={sample.number} " in str(whole[changed[0]]["numbers"])
    assert len(rest[changed[0]]["numbers"]) == len(whole[changed[0]]["numbers"]) - 1
