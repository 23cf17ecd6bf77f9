"""A data set of numbers without any file, for tests of the loader; importable by worker processes."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from omniloom.data.loader.config import WorkerConfig
from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.loader import Loader
from omniloom.data.pipeline.batch import Batch
from omniloom.data.pipeline.best_fit import BestFitPacker
from omniloom.data.pipeline.faults import Origin
from omniloom.data.pipeline.group import Group
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.pack import Pack
from omniloom.data.pipeline.selection import Selection
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.data.sample import RawSample, SampleKey
from omniloom.errors import SkipSample

SHUFFLE = Shuffle(runs=True, run_rows=4, block_rows=16)
PLAN = Plan((Leaf("a", 61, 0.7), Leaf("b", 40, 0.3)), shuffle=SHUFFLE)
FINITE = Plan((Leaf("a", 61, passes=1), Leaf("b", 40, passes=1)), shuffle=SHUFFLE)


@dataclass
class Numbers:
    name: str

    def read(self, row: int) -> RawSample:
        return RawSample(f"{self.name}{row}", "numbers.tar", {"txt": str(row).encode()})

    def cook(self, raw: RawSample, key: SampleKey) -> str:
        return raw.name

    def origin(self, row: int) -> Origin:
        return Origin(self.name, f"{self.name}{row}", "numbers.tar")


def augmented(name: str) -> tuple[str, float, Any]:
    return name, random.random(), np.full((40, 10), float(np.random.rand()))


def collate(samples: list[Any]) -> dict[str, Any]:
    return {
        "names": [s[0] for s in samples],
        "draws": [s[1] for s in samples],
        "pixels": np.stack([s[2] for s in samples]),
    }


def pairs(samples: list[Any]) -> list[list[Any]]:
    return [samples[i : i + 2] for i in range(0, len(samples), 2)]


def join(samples: list[Any]) -> tuple[str, float, Any]:
    return "+".join(s[0] for s in samples), samples[0][1], samples[0][2]


PACKER = BestFitPacker({"tokens": 40, "samples": 4})


def length(sample: tuple[str, float, Any]) -> int:
    """1 to 16 tokens, by the name."""
    return 1 + int("".join(filter(str.isdigit, sample[0]))) % 16


def fit(samples: list[Any], *, last: bool) -> Selection:
    return PACKER.select(samples, [{"tokens": length(one), "samples": 1} for one in samples], last=last)


def by_length(sample: tuple[str, float, Any]) -> tuple[int, int]:
    """Groups of 2 to 4 packs or samples."""
    group = length(sample) % 3
    return group, 2 + group


def picky(name: str) -> tuple[str, float, Any]:
    if name.endswith("3"):
        raise SkipSample
    if name.endswith("7"):
        raise ValueError(f"{name} will not do")
    return augmented(name)


@dataclass(frozen=True)
class DeadlyLate:
    """Kills its process whenever a sample of a name goes into its pack."""

    name: str

    def __call__(self, sample: tuple[str, float, Any]) -> tuple[str, float, Any]:
        if sample[0] == self.name:
            os.kill(os.getpid(), signal.SIGKILL)
        return sample


SHAPES: dict[str, Callable[[Make], Any]] = {
    "fitted": lambda make: Pack(make, 8, fit, join),
    "grouped": lambda make: make,
    "grouped packs": lambda make: Pack(make, 8, fit, join),
}


def shaped(shape: str, *, plan: Plan = PLAN, encode: Callable[[Any], Any] = augmented, **config: Any) -> Dataset:
    """A data set whose samples wait: in windows, in groups, or in both."""
    make = Make(plan, tuple(Numbers(leaf.name) for leaf in plan.leaves), encode=encode)
    calls = (("batch", 5, collate),)
    stage = SHAPES[shape](make)
    batch = Group(stage, by_length, None, calls) if "grouped" in shape else Batch(stage, 3, calls)
    settings = {"rank": 0, "world_size": 1, "num_workers": 0, "lanes": 12} | config
    return Dataset(batch, plan, WorkerConfig(**settings), None, user_code=True)


def numbers(
    *,
    plan: Plan = PLAN,
    encode: Callable[[Any], Any] = augmented,
    packed: bool = False,
    batch_size: int = 4,
    virtual_epoch_length: int = 0,
    equal_steps: bool = False,
    **config: Any,
) -> Dataset:
    """The data set; keyword arguments left over go to `WorkerConfig`."""
    make = Make(plan, tuple(Numbers(leaf.name) for leaf in plan.leaves), encode=encode)
    stage = Pack(make, 8, pairs, join) if packed else make
    settings = {"rank": 0, "world_size": 1, "num_workers": 0, "lanes": 12} | config
    return Dataset(
        Batch(stage, batch_size, (("batch", 5, collate),)),
        plan,
        WorkerConfig(**settings),
        batch_size,
        virtual_epoch_length=virtual_epoch_length,
        equal_steps=equal_steps,
        user_code=True,
    )


def told(batch: dict[str, Any]) -> tuple[Any, ...]:
    """A batch as a value that can be compared."""
    return tuple(batch["names"]), tuple(batch["draws"]), batch["pixels"].tobytes()


def take(loader: Loader, count: int) -> list[tuple[Any, ...]]:
    return [told(batch) for batch in islice(loader, count)]


@dataclass(frozen=True)
class Deadly:
    """Kills, hangs or stops its process when it meets a name; every time, or only as long as a file is not there."""

    name: str
    act: str
    once: str | None = None

    def __call__(self, name: str) -> Any:
        if name == self.name and (self.once is None or not Path(self.once).exists()):
            if self.once is not None:
                Path(self.once).touch()
            if self.act == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.act == "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            elif self.act == "exit":
                os._exit(3)
            elif self.act == "hang":
                time.sleep(1_000)
            else:
                raise ValueError(self.act)
        return augmented(name)
