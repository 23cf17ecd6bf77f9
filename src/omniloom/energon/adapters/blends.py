"""Data sets put together after they were made: the plans become one, and each leaf keeps its own functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omniloom.data.loader.dataset import Dataset
from omniloom.data.pipeline.batch import Batch, Map
from omniloom.data.pipeline.calls import gives_many
from omniloom.data.pipeline.make import Make, make_of
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.errors import ConfigError

Function = Callable[[Any], Any]


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
        ConfigError: a stage collects samples, or makes several of one.
    """
    functions: list[Function | None] = []
    stage = pipeline
    while not isinstance(stage, Make):
        if isinstance(stage, Map):
            functions.insert(0, stage.call[2])
        elif isinstance(stage, Batch) and stage.size == 1 and not gives_many(stage.calls):
            functions[:0] = [_alone, *(function for _, _, function in stage.calls)]
        else:
            raise ConfigError(
                f"a blend is of samples (or of batches of one), and a data set of it gives {type(stage).__name__} "
                "values. Blend first: by a metadataset, or Blender([(path, weight), ...]), and batch the blend"
            )
        stage = stage.source
    if stage.gives_many:
        raise ConfigError("a data set of the blend makes several samples of one; give the blend that task encoder")
    return in_sequence([stage.encode, *functions])


def blended(parts: Sequence[tuple[Dataset, float]]) -> Dataset:
    """The blend of data sets by weight."""
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
    plan = Plan(_named_apart(leaves), shuffle=shuffle, seed=first.worker_config.seed_offset)
    return _put_together([dataset for dataset, _ in parts], plan)


def concatenated(datasets: Sequence[Dataset]) -> Dataset:
    """Data sets for evaluation as one."""
    leaves: list[Leaf] = []
    for dataset in datasets:
        plan = dataset.plan
        if not isinstance(plan, InOrder) or plan.passes is None or plan.units is not None:
            raise ConfigError("ConcatDataset: whole data sets for evaluation expected; blend those for training")
        leaves += plan.leaves * plan.passes
    return _put_together(datasets, InOrder(_named_apart(leaves), 1))


def _put_together(datasets: Sequence[Dataset], plan: Plan | InOrder) -> Dataset:
    """One data set of single samples over a plan whose leaves are those of all data sets, in their order."""
    works: list[Any] = []
    cooks: list[Function | None] = []
    for dataset in datasets:
        make, function = make_of(dataset.pipeline), chained(dataset.pipeline)
        times = dataset.plan.passes or 1 if isinstance(dataset.plan, InOrder) and isinstance(plan, InOrder) else 1
        for _ in range(times):
            works += make.leaves
            cooks += [in_sequence([cook, function]) for cook in make.cooks or [None] * len(make.leaves)]
    named = [replace(work, name=leaf.name) for work, leaf in zip(works, plan.leaves, strict=True)]
    first = datasets[0]
    make = make_of(first.pipeline)
    joined = Make(plan, tuple(named), seed=make.seed, ahead=make.ahead, cooks=tuple(cooks) if any(cooks) else ())
    return Dataset(joined, plan, first.worker_config, None, user_code=any(cooks) or first.user_code)


def _named_apart(leaves: Sequence[Leaf]) -> tuple[Leaf, ...]:
    """Leaves with names of their own: the second of a name is ``name#2``."""
    seen: dict[str, int] = {}
    named = []
    for leaf in leaves:
        number = seen[leaf.name] = seen.get(leaf.name, 0) + 1
        named.append(leaf if number == 1 else replace(leaf, name=f"{leaf.name}#{number}"))
    return tuple(named)
