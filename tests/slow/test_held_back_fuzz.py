"""Fuzzing by time budget: random windows, selectors, groups and generators, saved and restored at every step."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from omniloom.data.pipeline.batch import Batch, Map
from omniloom.data.pipeline.best_fit import BestFitPacker
from omniloom.data.pipeline.desk import Desk
from omniloom.data.pipeline.faults import FaultPolicy
from omniloom.data.pipeline.group import Group
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.pack import Pack
from omniloom.data.pipeline.selection import Selection
from omniloom.data.plan.lane import Lane
from omniloom.data.sample import UNIT_END
from omniloom.errors import FatalSampleError
from tests.contract import test_held_back as cases
from tests.contract.test_pipeline import Numbers

BUDGET_SECONDS = float(os.environ.get("OMNILOOM_FUZZ_SECONDS", "60"))


def random_selector(draw: random.Random) -> Callable[..., Any]:
    tokens, samples_most = draw.randint(15, 90), draw.randint(1, 8)
    packer = BestFitPacker(
        {"tokens": tokens, "samples": samples_most}, reach=draw.randint(1, 70), spare=draw.randint(0, 5)
    )

    def fitted(samples: list[Any], *, last: bool) -> Selection:
        return packer.select(samples, [{"tokens": one.length, "samples": 1} for one in samples], last=last)

    def at_random(samples: list[Any]) -> Selection:
        mixed = random.sample(samples, len(samples))  # seeded by the pipeline
        first, second = sorted((random.randint(0, len(mixed)), random.randint(0, len(mixed))))
        packed, again, rest = mixed[:first], mixed[first:second], mixed[second:]
        left_out = {"drawn": rest} if random.random() < 0.5 else {}
        return Selection([packed[i : i + 3] for i in range(0, len(packed), 3)], again, left_out)

    return draw.choice([fitted, at_random, cases.pairs, lambda samples: [samples]])


def random_pipeline(draw: random.Random, plan: Any) -> Any:
    tokens = cases.length_of if plan is cases.BY_TOKENS else None
    encode = draw.choice([cases.encoded, cases.picky, cases.several])
    stage: Any = Make(plan, (Numbers("a", []), Numbers("b", [])), encode=encode, tokens=tokens)
    if draw.random() < 0.75:
        pack, late = draw.choice([cases.packed, cases.packed_in_two]), draw.choice([None, cases.drawn_late])
        stage = Pack(stage, draw.randint(1, 25), random_selector(draw), pack, late)
    elif draw.random() < 0.5:
        stage = Map(stage, ("postencode_sample", 2, cases.drawn_late))
    drop_last = draw.random() < 0.3
    if draw.random() < 0.45:
        most = draw.choice([None, 1, 3, 8])
        return Group(stage, cases.by_length, draw.randint(1, 5), cases.CALLS, drop_last=drop_last, most_waiting=most)
    calls = draw.choice([cases.CALLS, cases.MANY, (("batch", 5, cases.fails_at_times),)])
    return Batch(stage, draw.randint(1, 5), calls, drop_last=drop_last)


def desk() -> Desk:
    return Desk(FaultPolicy(in_a_row=60))


def check_every_step(pipeline: Any, lane: Lane, steps: int) -> None:
    stream = pipeline.open(lane, desk())
    whole, states = [], [json.dumps(stream.state_dict())]
    for item in islice(stream, steps):
        whole.append(cases.told(item))
        states.append(json.dumps(stream.state_dict()))
    whole += [cases.told(item) for item in islice(stream, 8)]
    for place, state in enumerate(states):
        restored = pipeline.open(lane, desk())
        restored.load_state_dict(json.loads(state))
        assert json.dumps(restored.state_dict()) == state, str(pipeline)
        assert [cases.told(item) for item in islice(restored, len(whole) - place)] == whole[place:], str(pipeline)


def check_account(pipeline: Any) -> None:
    """Each sample that was read is given or counted, unless encoders make several of one."""
    own = desk()
    yielded = sum(1 for item in pipeline.open(Lane(0, 1), own) if item[0] is not UNIT_END)
    tally = own.tally.take().values()
    lost = sum(sum(leaf.skipped.values()) for leaf in tally)
    assert sum(leaf.read for leaf in tally) == sum(leaf.yielded for leaf in tally) + lost, str(pipeline)
    assert yielded or lost


@pytest.mark.slow
def test_nothing_that_waits_is_lost_or_changed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", logger="omniloom")
    draw = random.Random(int(os.environ.get("OMNILOOM_FUZZ_SEED", "0")))
    deadline = time.monotonic() + BUDGET_SECONDS
    checked = 0
    while time.monotonic() < deadline:
        plan = draw.choice(list(cases.PLANS.values()))
        pipeline = random_pipeline(draw, plan)
        lane, steps = draw.choice([Lane(0, 1), Lane(1, 3), Lane(2, 5)]), draw.randint(3, 30)
        try:
            check_every_step(pipeline, lane, steps)
            if plan in (cases.FINITE, cases.IN_ORDER) and "encode=several" not in str(pipeline):
                check_account(pipeline)
        except FatalSampleError:
            continue  # a selector that chose nothing in window after window
        checked += 1
    print("fuzzed:", checked, "pipelines")
    assert checked >= 3
