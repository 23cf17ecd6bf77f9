"""Fuzzing by time budget: random pipelines are killed, saved, dealt to other ranks and resumed, and must not notice."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from itertools import islice
from typing import Any

import pytest

from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.loader import Loader
from omniloom.data.plan.lane import divisors
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf, Plan
from tests.contract.numbers_leaf import SHAPES, augmented, numbers, picky, shaped, told

BUDGET_SECONDS = float(os.environ.get("OMNILOOM_FUZZ_SECONDS", "60"))


def random_dataset(draw: random.Random) -> dict[str, Any]:
    leaves = tuple(Leaf(f"l{i}", draw.randint(1, 80), draw.uniform(0.05, 1)) for i in range(draw.randint(1, 5)))
    shuffle = draw.choice([Shuffle(), Shuffle(runs=True, run_rows=draw.randint(1, 9), block_rows=draw.randint(1, 40))])
    plan = Plan(leaves, shuffle=shuffle, seed=draw.randint(0, 99))
    lanes = draw.choice([12, 24, 60])
    shape = draw.choice([None, None, *SHAPES])
    if shape is not None:  # samples wait in windows and groups
        return {"plan": plan, "shape": shape, "encode": draw.choice([augmented, picky]), "lanes": lanes}
    return {"plan": plan, "packed": draw.random() < 0.4, "batch_size": draw.randint(1, 5), "lanes": lanes}


def made(settings: dict[str, Any], **more: Any) -> Dataset:
    return shaped(**settings, **more) if "shape" in settings else numbers(**settings, **more)


@pytest.mark.slow
def test_nothing_that_happens_to_a_job_changes_its_order() -> None:
    draw = random.Random(int(os.environ.get("OMNILOOM_FUZZ_SEED", "0")))
    deadline = time.monotonic() + BUDGET_SECONDS
    counts = {"jobs": 0, "batches": 0, "resumes": 0, "kills": 0, "rank changes": 0}
    while time.monotonic() < deadline:
        settings = random_dataset(draw)
        length = draw.randint(30, 150)
        job = [told(batch) for batch in islice(Loader(made(settings)), length)]
        done, states, counts["jobs"] = 0, None, counts["jobs"] + 1
        while done < length:
            world_size = draw.choice([d for d in divisors(settings["lanes"]) if d <= 6])
            steps = min(draw.randint(1, 12), (length - done) // world_size)
            if not steps:
                break
            seen: dict[int, Any] = {}
            saved = []
            workers = draw.choice([0, 0, 1, 2])
            for rank in range(world_size):
                loader = Loader(made(settings, rank=rank, world_size=world_size, num_workers=workers))
                if states is not None:
                    loader.restore_state_rank(states)
                first = next(g for g in range(done, done + world_size) if g % world_size == rank)
                for step, batch in enumerate(islice(loader, steps)):
                    seen[first + step * world_size] = told(batch)
                    if workers and draw.random() < 0.05:
                        os.kill(draw.choice(loader._engine.pids), signal.SIGKILL)  # type: ignore[union-attr]
                        counts["kills"] += 1
                saved.append(json.loads(json.dumps(loader.save_state_rank())))
                loader.close()
            assert [seen[g] for g in sorted(seen)] == job[done : done + steps * world_size], settings
            counts["rank changes"] += states is not None and states[0]["world_size"] != world_size
            counts["resumes"] += states is not None
            done, states = done + steps * world_size, saved
            counts["batches"] += steps * world_size
    print("fuzzed:", ", ".join(f"{count} {name}" for name, count in counts.items()))
    assert counts["jobs"] >= 3
