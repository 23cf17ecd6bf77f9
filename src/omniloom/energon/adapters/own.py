"""Data sets of a user's own as descriptions that the engine runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.finish import finisher
from omniloom.data.pipeline.batch import Map
from omniloom.data.pipeline.make import Make, make_of
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.permute import Permutation, derive_key
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.energon.adapters.blends import named_apart
from omniloom.energon.adapters.dataset import EngineDataset
from omniloom.energon.adapters.own_leaves import NoRows, shifted
from omniloom.energon.adapters.own_stage import OwnStage, Within, copied
from omniloom.energon.adapters.savable import BaseWrapperDataset, SavableDataset
from omniloom.errors import ConfigError


def described(dataset: Any) -> Any:
    """A data set as the engine takes it: one of a user's own becomes a stage, all else stays as it is."""
    if isinstance(dataset, Dataset) or not isinstance(dataset, SavableDataset):
        return dataset
    within: list[Dataset] = []

    def place(one: Any) -> Any:
        if not isinstance(one, EngineDataset):
            return one
        first = sum(len(make_of(known.pipeline).leaves) for known in within)
        within.append(_with_tensors(one))
        leaves = range(first, first + len(make_of(one.pipeline).leaves))
        workers = range(max(1, one.worker_config.num_workers))
        return Within(len(within) - 1, leaves, one.worker_config, [one.len_worker(number) for number in workers])

    own = copied(dataset, place)
    config = dataset.worker_config
    source, plan, inner = _sources(own, within)
    stage = OwnStage(source, own, inner)
    finish = finisher(late=False, pin=bool(config.pin_memory))
    paths = tuple(path for one in within for path in one.paths)
    return EngineDataset(stage, plan, config, None, finish=finish, user_code=True, paths=paths)


def _sources(own: SavableDataset[Any], within: Sequence[Dataset]) -> tuple[Any, Plan | InOrder, tuple[Any, ...]]:
    """The pipeline that knows the leaves of all data sets within, its plan, and the pipelines of each."""
    plan: Plan | InOrder
    if not within:
        name = type(own).__name__
        plan = InOrder((Leaf(name, 1),), 1)
        return Make(plan, (NoRows(name),), seed=own.worker_config.seed_offset), plan, ()
    if len(within) == 1:
        (one,) = within
        plan = replace(one.plan, passes=1, units=None) if isinstance(one.plan, InOrder) else one.plan
        return one.with_plan(plan).pipeline, plan, (one.pipeline,)
    makes = [make_of(one.pipeline) for one in within]
    leaves = named_apart([leaf for one in within for leaf in _leaves(one.plan)])
    works: list[Any] = [work for make in makes for work in make.leaves]
    named = tuple(replace(work, name=leaf.name) for work, leaf in zip(works, leaves, strict=True))
    cooks = tuple(cook for make in makes for cook in make.cooks or [None] * len(make.leaves))
    in_order = all(isinstance(one.plan, InOrder) for one in within)
    repeat = any(one.plan.endless for one in within)
    plan = InOrder(leaves, 1) if in_order else Plan(leaves, seed=makes[0].seed, repeat=repeat)
    whole = Make(plan, named, seed=makes[0].seed, cooks=cooks if any(cooks) else ())
    starts = [sum(len(make.leaves) for make in makes[:number]) for number in range(len(makes))]
    return whole, plan, tuple(shifted(one.pipeline, whole, start) for one, start in zip(within, starts, strict=True))


def _leaves(plan: Plan | InOrder) -> list[Leaf]:
    if isinstance(plan, InOrder):
        return [replace(leaf, passes=plan.passes) for leaf in plan.leaves]
    return [leaf if leaf.shuffle else replace(leaf, shuffle=plan.shuffle) for leaf in plan.leaves]


def _with_tensors(dataset: Dataset) -> Dataset:
    """The data set with what the caller's process would do to its values done in the pipeline."""
    if dataset.finish is None:
        return dataset
    return replace(dataset, pipeline=Map(dataset.pipeline, ("finish", 0, dataset.finish)), finish=None)


_GOLDEN = 0.618033988749895  # the fractional parts of its multiples lie evenly, however many are taken


class Blended(BaseWrapperDataset[Any, Any]):
    """Values of several data sets by weight, where the engine cannot blend their samples: of packs and groups.

    The counts of values stay within one of their shares. What ends is left out from then on.

    Args:
        parts: the data sets and their weights.
        worker_config: rank, world and workers.
    """

    _savable_fields: ClassVar[tuple[str, ...]] = ("counts",)

    def __init__(self, parts: Sequence[tuple[SavableDataset[Any], float]], *, worker_config: Any) -> None:
        super().__init__([dataset for dataset, _ in parts], worker_config=worker_config)
        self.weights = [weight for _, weight in parts]
        self.counts = [0] * len(parts)
        if min(self.weights) <= 0:
            raise ConfigError(f"BlendDataset: weights {self.weights} found, numbers above 0 expected")

    def __iter__(self) -> Iterator[Any]:
        phase = self.worker_config.global_worker_id(self.worker_config.rank_worker_id()) * _GOLDEN % 1
        going = {number: iter(dataset) for number, dataset in enumerate(self.datasets)}
        while going:
            due = min(going, key=lambda number: ((self.counts[number] + 1 - phase) / self.weights[number], number))
            try:
                value = next(going[due])
            except StopIteration:
                del going[due]
                continue
            self.counts[due] += 1
            yield value

    def config(self) -> dict[str, Any]:
        """What it is made of, as plain values."""
        parts = zip((one.config() for one in self.datasets), self.weights, strict=True)
        return {"type": "BlendDataset", "dataset_weights": [list(part) for part in parts]}


class Shuffled(BaseWrapperDataset[Any, Any]):
    """Values of a data set of a user's own, which nobody knows before they are made: shuffled in blocks.

    A state holds none of them, but where the running block began: going on, its values are made again.

    Args:
        dataset: the data set.
        size: values of a lane that are held and shuffled at a time.
        worker_config: rank, world and workers.
    """

    _savable_fields: ClassVar[tuple[str, ...]] = ("block", "given")

    def __init__(self, dataset: SavableDataset[Any], size: int, *, worker_config: Any) -> None:
        super().__init__(dataset, worker_config=worker_config)
        if size < 1:
            raise ConfigError(f"ShuffleBufferDataset: size={size} found, at least 1 expected")
        self.size = size
        self.block = self.given = 0  # the running block, and how many of its values were given
        self._before: Any = None  # state of the data set where it began

    @property
    def takes_again(self) -> bool:
        """Whether the running block, of which some was given, is yet to be taken again."""
        return self.given > 0

    def __iter__(self) -> Iterator[Any]:
        values = iter(self.dataset)
        while True:
            self._before = self.dataset.save_state()
            block = list(islice(values, self.size))
            if not block:
                self._before = None
                return
            key = derive_key("shuffled values", self.worker_config.seed_offset, self.block)
            left = [block[place] for place in Permutation(len(block), key)(np.arange(self.given, len(block))).tolist()]
            for value in left[:-1]:
                self.given += 1
                yield value
            self._before, self.block, self.given = None, self.block + 1, 0  # with its last value a block is over
            yield from left[-1:]

    def save_state(self) -> dict[str, Any]:
        """Where the running block began, and how many of its values were given."""
        state = super().save_state()
        return state if self._before is None else {**state, "datasets": [self._before]}


class Chained(BaseWrapperDataset[Any, Any]):
    """Data sets one after the other, where the engine cannot put their samples together."""

    _savable_fields: ClassVar[tuple[str, ...]] = ("number",)

    def __init__(self, datasets: Sequence[SavableDataset[Any]], *, worker_config: Any) -> None:
        super().__init__(datasets, worker_config=worker_config)
        self.number = 0

    def __iter__(self) -> Iterator[Any]:
        while self.number < len(self.datasets):
            yield from self.datasets[self.number]
            self.number += 1
        self.number = 0
