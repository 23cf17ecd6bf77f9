"""The pipeline's contract: exact states at every step, seeds by key, faults counted, nothing lost."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omniloom.data.pipeline.batch import Batch, Map
from omniloom.data.pipeline.desk import Desk
from omniloom.data.pipeline.faults import FaultPolicy, Origin
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.pack import Pack
from omniloom.data.pipeline.stream import Stage
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.lane import Lane
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.data.sample import UNIT_END, RawSample, SampleKey
from omniloom.errors import FatalSampleError, SampleError, SkipSample


@dataclass
class Numbers:
    """A leaf whose row i is the text of i; remembers what was read of it."""

    name: str
    reads: list[int]

    def read(self, row: int) -> RawSample:
        self.reads.append(row)
        return RawSample(str(row), "numbers.tar", {"txt": str(row).encode()})

    def cook(self, raw: RawSample, key: SampleKey) -> int:
        return int(raw.parts["txt"])

    def origin(self, row: int) -> Origin:
        return Origin(self.name, str(row), "numbers.tar", (row, row + 1))


PLAN = Plan((Leaf("a", 57, 0.6), Leaf("b", 20, 0.4)), shuffle=Shuffle(runs=True, run_rows=4, block_rows=16))


def make(encode: Any = None, plan: Any = PLAN) -> Make:
    return Make(plan, (Numbers("a", []), Numbers("b", [])), encode=encode)


def augmented(number: int) -> tuple[int, float, float]:
    return number, random.random(), float(np.random.rand())


def several(number: int) -> Iterator[tuple[int, int, float]]:
    for part in range(number % 4):
        yield number, part, random.random()


def picky(number: int) -> int:
    if number % 3 == 0:
        raise SkipSample
    if number % 7 == 0:
        raise ValueError(f"{number} will not do")
    return number


def pairs(numbers: list[Any]) -> list[list[Any]]:
    return [numbers[i : i + 2] for i in range(0, len(numbers) - 1, 2)]


def in_two(numbers: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    yield "first", numbers
    yield "second", numbers


def collate(values: list[Any]) -> list[Any]:
    return [*values, random.random()]


PIPELINES: dict[str, Stage] = {
    "plain": Batch(make(), 4, (("batch", 5, collate),)),
    "augmented": Batch(make(augmented), 4, (("batch", 5, collate),)),
    "generator": Batch(make(several), 4, (("batch", 5, collate),)),
    "skips": Batch(make(picky), 4, (("batch", 5, collate),)),
    "packed": Batch(Pack(make(augmented), 11, pairs, tuple), 2, (("batch", 5, collate),)),
    "packed generators": Batch(Pack(make(several), 11, pairs, in_two, postencode=list), 2, (("batch", 5, collate),)),
    "mapped, single": Map(make(augmented), ("postencode_sample", 2, str)),
}


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("lane", [Lane(0, 1), Lane(3, 4)])
def test_a_saved_state_goes_on_bit_for_bit_from_every_step(name: str, lane: Lane) -> None:
    pipeline = PIPELINES[name]
    stream = pipeline.open(lane, Desk())
    states = [json.dumps(stream.state_dict())]
    whole = []
    for _ in range(40):
        whole.append(next(stream))
        states.append(json.dumps(stream.state_dict()))
    for place, state in enumerate(states):
        restored = pipeline.open(lane, Desk())
        restored.load_state_dict(json.loads(state))
        assert json.dumps(restored.state_dict()) == state
        assert list(islice(restored, 40 - place)) == whole[place:]


def test_restoring_reads_nothing_that_was_consumed_and_packed_reads_its_window_again() -> None:
    plain = make()
    stream = Batch(plain, 4, ()).open(Lane(0, 1), Desk())
    for _ in range(1_000):
        next(stream)
    state = stream.state_dict()
    reads = plain.leaves[0].reads, plain.leaves[1].reads  # type: ignore[attr-defined]
    before = sum(map(len, reads))
    restored = Batch(plain, 4, ()).open(Lane(0, 1), Desk())
    restored.load_state_dict(state)
    assert sum(map(len, reads)) == before
    next(restored)
    assert sum(map(len, reads)) == before + 4

    again = make()
    packed = Pack(again, 11, pairs, tuple)
    stream = packed.open(Lane(0, 1), Desk())
    for _ in range(3):
        next(stream)
    reads = again.leaves[0].reads, again.leaves[1].reads  # type: ignore[attr-defined]
    assert sum(map(len, reads)) == 11 + 3 * 2  # the window, and for the next one as many as the packs used up
    restored = packed.open(Lane(0, 1), Desk())
    restored.load_state_dict(stream.state_dict())
    assert sum(map(len, reads)) == 2 * (11 + 3 * 2)


def test_a_key_gives_the_same_sample_whenever_it_is_made() -> None:
    for encode in (augmented, several):
        pipeline = make(encode)
        for key, sample in islice(pipeline.open(Lane(1, 3), Desk()), 50):
            random.seed(0)
            assert pipeline.make(key) == sample
    keys = list(islice(make(augmented).open(Lane(0, 1), Desk()), 100))
    assert len({sample[1] for _, sample in keys}) == 100  # and no two keys draw alike


def test_every_sample_is_accounted_for() -> None:
    desk = Desk(FaultPolicy(in_a_row=0))
    finite = Plan((Leaf("a", 57, passes=1), Leaf("b", 20, passes=1)))
    pipeline = Batch(make(picky, finite), 4, (("batch", 0, list),), drop_last=True)
    given = [value for _, batch in pipeline.open(Lane(0, 1), desk) for value in batch]
    tally = desk.tally.take()
    skipped = {reason for leaf in tally.values() for reason in leaf.skipped}
    assert skipped == {"SkipSample", "ValueError", "drop-last"}
    lost = sum(sum(leaf.skipped.values()) for leaf in tally.values())
    assert sum(leaf.read for leaf in tally.values()) == 77 == len(given) + lost
    # By hand: of 0..56 and 0..19, 19 + 7 are multiples of 3; 5 + 2 others are multiples of 7.
    assert sum(leaf.skipped.get("SkipSample", 0) for leaf in tally.values()) == 26
    assert sum(leaf.skipped.get("ValueError", 0) for leaf in tally.values()) == 8
    assert tally[0].read_bytes == 10 + 47 * 2


def test_samples_that_the_selector_leaves_out_are_counted() -> None:
    desk = Desk()
    stream = Pack(make(), 11, pairs, tuple).open(Lane(0, 1), desk)
    for _ in range(5):
        next(stream)
    assert sum(leaf.skipped.get("not-selected", 0) for leaf in desk.tally.take().values()) == 1


def test_policies(tmp_path: Path) -> None:
    with pytest.raises(
        SampleError, match=r"encode_sample failed: ValueError: 7 will not do\n  at data set 'a', numbers.tar"
    ):
        list(make(picky, Plan((Leaf("a", 10, passes=1),))).open(Lane(0, 1), Desk(FaultPolicy("raise"))))

    path = tmp_path / "bad.jsonl"
    policy = FaultPolicy("quarantine", quarantine_path=str(path))
    list(make(picky, Plan((Leaf("a", 30, passes=1),))).open(Lane(0, 1), Desk(policy)))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(r["key"], r["shard"], r["bytes"], r["call"], r["reason"]) for r in records] == [
        (str(n), "numbers.tar", [n, n + 1], "encode_sample", "ValueError") for n in (7, 14, 28)
    ]

    def hopeless(number: int) -> int:
        raise ValueError(number)

    with pytest.raises(FatalSampleError, match="5 samples failed in a row"):
        next(make(hopeless).open(Lane(0, 1), Desk(FaultPolicy(in_a_row=5))))
    with pytest.raises(FatalSampleError, match=r"\d+ of 1\d\d samples of a lane failed, more than the share of 0\.02"):
        list(islice(make(picky).open(Lane(0, 1), Desk(FaultPolicy(share=0.02))), 1_000))

    def broken(number: int) -> int:
        return undefined_name  # type: ignore[name-defined,no-any-return] # noqa: F821

    with pytest.raises(FatalSampleError, match="The program is at fault"):
        next(make(broken).open(Lane(0, 1), Desk()))


def test_a_poisoned_key_is_a_sample_error() -> None:
    key = next(PLAN.open(Lane(0, 1)))
    desk = Desk(poisoned=frozenset([key]))
    assert key not in [k for k, _ in islice(make().open(Lane(0, 1), desk), 50)]
    assert desk.tally.take()[key.dataset].skipped == {"killed-worker": 1}


@pytest.mark.parametrize("lanes", [1, 2, 3, 12])
def test_evaluation_gives_every_row_once_in_order_whatever_the_lanes(lanes: int) -> None:
    plan = InOrder((Leaf("a", 10), Leaf("b", 7)), unit_rows=4)
    pipeline = Batch(make(plan=plan), 4, (("batch", 0, list),))
    by_lane = [
        [item for item in pipeline.open(Lane(i, lanes), Desk()) if item[0] is not UNIT_END] for i in range(lanes)
    ]
    batches = [by_lane[b % lanes][b // lanes][1] for b in range(5)]
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1], [2, 3, 4, 5], [6]]
    assert [plan.lane_rows(Lane(i, lanes)) for i in range(lanes)] == [sum(len(b) for _, b in lane) for lane in by_lane]


def test_a_pipeline_prints_one_stage_a_line() -> None:
    text = str(Batch(Pack(make(augmented), 11, pairs, tuple), 2, (("batch", 5, collate),)))
    assert [line.split("(")[0] for line in text.splitlines()] == ["Plan", "Make", "Pack", "Batch"]
