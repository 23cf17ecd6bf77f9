"""Data sets put together after they were made: the plans become one, and each leaf keeps its own functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from omniloom.data.loader.dataset import Dataset
from omniloom.data.pipeline.batch import Batch, Map
from omniloom.data.pipeline.calls import gives_many
from omniloom.data.pipeline.group import Group
from omniloom.data.pipeline.make import Make, make_of
from omniloom.data.pipeline.seeding import BATCH
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.energon.adapters.dataset import EngineDataset
from omniloom.errors import ConfigError

Function = Callable[[Any], Any]


class NotOneToOneError(ConfigError):
    """What a data set does with its samples is no function of one of them."""


@dataclass(frozen=True)
class _InSequence:
    """Functions, one after the other, on each value."""

    functions: tuple[Function, ...]

    def __call__(self, value: Any) -> Any:
        for function in self.functions:
            value = function(value)
        return value


def in_sequence(functions: Sequence[Function | None]) -> Function | None:
    """One function of several; ``None`` of none."""
    found = tuple(function for function in functions if function is not None)
    return None if not found else found[0] if len(found) == 1 else _InSequence(found)


def _alone(value: Any) -> list[Any]:
    return [value]


def chained(pipeline: Any) -> Function | None:
    """What the stages after the cooks do with a sample, as one function; batches of one count as samples.

    Raises:
        NotOneToOneError: a stage collects samples, or makes several of one.
    """
    functions: list[Function | None] = []
    stage = pipeline
    while not isinstance(stage, Make):
        if isinstance(stage, Map):
            functions.insert(0, stage.call[2])
        elif isinstance(stage, Batch) and stage.size == 1 and not gives_many(stage.calls):
            functions[:0] = [_alone, *(function for _, _, function in stage.calls)]
        else:
            raise NotOneToOneError(f"values of {type(stage).__name__} are no samples and no batches of a size")
        stage = stage.source
    if stage.gives_many:
        raise NotOneToOneError("a data set of the blend makes several samples of one")
    return in_sequence([stage.encode, *functions])


@dataclass(frozen=True)
class _Of:
    """A sample on its way to the batches of its data set, by the number of the data set in the blend."""

    number: int
    sample: Any


@dataclass(frozen=True)
class _Sorter:
    """Puts samples to those of their data set, so many to a batch.

    Attributes:
        sizes: samples in a batch of each data set.
        batchers: make of them what the data set gives.
    """

    sizes: tuple[int, ...]
    batchers: tuple[Function, ...]

    def group(self, value: _Of) -> tuple[int, int]:
        """The group of a sample, and the size of its batches."""
        return value.number, self.sizes[value.number]

    def batch(self, values: list[_Of]) -> Any:
        """What the data set gives for some of its samples."""
        return self.batchers[values[0].number]([value.sample for value in values])


def _first(values: list[Any]) -> Any:
    return values[0]


def blended(parts: Sequence[tuple[Dataset, float]]) -> EngineDataset:
    """The blend of data sets by weight: of their samples, or, where they give batches, of the batches."""
    sizes = tuple(_batch_size(dataset.pipeline) or 1 for dataset, _ in parts)
    weighted = [(dataset, weight * size) for (dataset, weight), size in zip(parts, sizes, strict=True)]
    plan = _blended_plan(weighted)
    datasets = [dataset for dataset, _ in parts]
    if max(sizes) == 1:
        return _put_together(datasets, plan, [chained(dataset.pipeline) for dataset in datasets])
    functions, batchers = [], []
    for number, dataset in enumerate(datasets):
        pipeline: Any = dataset.pipeline
        size = _batch_size(pipeline)
        functions.append(in_sequence([chained(pipeline if size is None else pipeline.source), partial(_Of, number)]))
        batchers.append(_first if size is None else in_sequence([call for _, _, call in pipeline.calls]) or list)
    sorter = _Sorter(sizes, tuple(batchers))
    drop_last = all(getattr(dataset.pipeline, "drop_last", False) for dataset in datasets)
    together = _put_together(datasets, plan, functions)
    calls = (("batch", BATCH, sorter.batch),)
    return replace(together, pipeline=Group(together.pipeline, sorter.group, None, calls, drop_last), user_code=True)


def _batch_size(pipeline: Any) -> int | None:
    """Samples in the batches that a pipeline gives; ``None`` where it gives samples, or batches of one."""
    collects = isinstance(pipeline, Batch) and pipeline.size > 1 and not gives_many(pipeline.calls)
    return pipeline.size if collects else None


def _blended_plan(parts: Sequence[tuple[Dataset, float]]) -> Plan:
    """The plan of the samples of data sets, drawn by weight."""
    leaves: list[Leaf] = []
    for dataset, weight in parts:
        if weight <= 0:
            raise ConfigError(f"BlendDataset: weight {weight} found, a number above 0 expected")
        plan = dataset.plan
        if isinstance(plan, InOrder):
            own = [replace(leaf, passes=plan.passes, weight=float(leaf.rows)) for leaf in plan.leaves]
        else:
            passes = None if plan.repeats else ()
            own = [leaf if passes == () else replace(leaf, passes=None) for leaf in plan.leaves]
            own = [leaf if leaf.shuffle else replace(leaf, shuffle=plan.shuffle) for leaf in own]
        total = sum(leaf.weight for leaf in own) or 1.0
        leaves += [replace(leaf, weight=leaf.weight / total * weight) for leaf in own]
    first = parts[0][0]
    shuffle = first.plan.shuffle if isinstance(first.plan, Plan) else Plan(()).shuffle
    return Plan(named_apart(leaves), shuffle=shuffle, seed=first.worker_config.seed_offset)


def concatenated(datasets: Sequence[Dataset]) -> EngineDataset:
    """Data sets for evaluation as one."""
    leaves: list[Leaf] = []
    for dataset in datasets:
        plan = dataset.plan
        if not isinstance(plan, InOrder) or plan.passes is None or plan.units is not None:
            raise ConfigError("ConcatDataset: whole data sets for evaluation expected; blend those for training")
        leaves += plan.leaves * plan.passes
    functions = [chained(dataset.pipeline) for dataset in datasets]
    return _put_together(datasets, InOrder(named_apart(leaves), 1), functions)


def _put_together(
    datasets: Sequence[Dataset], plan: Plan | InOrder, functions: Sequence[Function | None]
) -> EngineDataset:
    """One data set of single samples over a plan whose leaves are those of all data sets, in their order.

    Args:
        datasets: the data sets.
        plan: the plan of all their leaves.
        functions: what becomes of the cooked samples of each.
    """
    works: list[Any] = []
    cooks: list[Function | None] = []
    for dataset, function in zip(datasets, functions, strict=True):
        make = make_of(dataset.pipeline)
        times = dataset.plan.passes or 1 if isinstance(dataset.plan, InOrder) and isinstance(plan, InOrder) else 1
        for _ in range(times):
            works += make.leaves
            cooks += [in_sequence([cook, function]) for cook in make.cooks or [None] * len(make.leaves)]
    named = [replace(work, name=leaf.name) for work, leaf in zip(works, plan.leaves, strict=True)]
    first = datasets[0]
    make = make_of(first.pipeline)
    joined = Make(plan, tuple(named), seed=make.seed, ahead=make.ahead, cooks=tuple(cooks) if any(cooks) else ())
    paths = tuple(path for dataset in datasets for path in dataset.paths)
    code = any(cooks) or first.user_code
    return EngineDataset(joined, plan, first.worker_config, None, user_code=code, paths=paths)


def named_apart(leaves: Sequence[Leaf]) -> tuple[Leaf, ...]:
    """Leaves with names of their own: the second of a name is ``name#2``."""
    seen: dict[str, int] = {}
    named = []
    for leaf in leaves:
        number = seen[leaf.name] = seen.get(leaf.name, 0) + 1
        named.append(leaf if number == 1 else replace(leaf, name=f"{leaf.name}#{number}"))
    return tuple(named)
