"""A data set as a loader takes it: a pipeline, the plan in it, and the rank it is for. Nothing is open yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Any, Self

from omniloom.data.loader.config import WorkerConfig
from omniloom.data.loader.state import CURSOR_FIELDS, MOVING_FIELDS, Mix
from omniloom.data.pipeline.batch import Batch, Map
from omniloom.data.pipeline.calls import gives_many
from omniloom.data.pipeline.group import Group
from omniloom.data.pipeline.iter_map import IterMap
from omniloom.data.pipeline.make import Make, make_of
from omniloom.data.pipeline.pack import MOST_WAITING, Pack
from omniloom.data.plan.counts import check_at_least
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.lane import Lane, rank_lanes
from omniloom.data.plan.plan import Plan
from omniloom.errors import ConfigError

Pipeline = Make | Pack | IterMap | Map | Batch | Group


@dataclass(frozen=True)
class Dataset:
    """What `get_train_dataset` and its kin give. A loader iterates it; iterating it directly loads in this process.

    Attributes:
        pipeline: root stage of the pipeline.
        plan: the plan at its other end.
        worker_config: rank, world and workers.
        batch_size: samples in a batch; ``None``: samples come one by one.
        virtual_epoch_length: batches of each rank in a pass; 0: a pass ends with the data, or never.
        finish: made of each batch in the caller's process, or ``None``.
        user_code: whether the pipeline calls functions that may draw random numbers.
        paths: where the leaves lie, by position.
        limit: batches of each rank in a pass at most, where the plan cannot say so; the next pass begins anew.
    """

    pipeline: Pipeline
    plan: Plan | InOrder
    worker_config: WorkerConfig
    batch_size: int | None
    virtual_epoch_length: int = 0
    equal_steps: bool = False
    finish: Callable[[Any], Any] | None = None
    user_code: bool = False
    paths: tuple[str, ...] = ()
    limit: int | None = None

    def __post_init__(self) -> None:
        check_at_least(0, "virtual_epoch_length", self.virtual_epoch_length)

    def __iter__(self) -> Iterator[Any]:
        from omniloom.data.loader.loader import Loader  # noqa: PLC0415 - the loader is built of data sets

        return iter(Loader(self, num_workers=0))

    def __str__(self) -> str:
        return str(self.pipeline)

    def __len__(self) -> int:
        """Batches of this rank in a pass. Raises TypeError where it cannot be known."""
        length = self.length()
        if length is None:
            raise TypeError(
                "this data set has no length: its pipeline packs or groups samples, or makes several of one"
            )
        return length

    @property
    def one_to_one(self) -> bool:
        """Whether each row gives one sample, and each ``batch_size`` of them a batch."""
        for stage in self.stages:
            if isinstance(stage, Pack | Group | IterMap) or (isinstance(stage, Batch) and gives_many(stage.calls)):
                return False
        return not make_of(self.pipeline).gives_many

    @property
    def stages(self) -> list[Any]:
        """The stages that work, the root first."""
        stages: list[Any] = [self.pipeline]
        while not isinstance(stages[-1], Make):
            stages.append(stages[-1].source)
        return stages

    @property
    def holds_back(self) -> bool:
        """Whether samples wait in windows or groups, which take time to make again elsewhere."""
        return any(isinstance(stage, Pack | Group) for stage in self.stages)

    @property
    def window_samples(self) -> int:
        """Samples of a packing window; 0 without packing."""
        return next((stage.window_samples for stage in self.stages if isinstance(stage, Pack)), 0)

    @property
    def most_waiting(self) -> int | None:
        """Values that wait in the groups of a lane at most; ``None`` without groups, or for any number."""
        return next((stage.most_waiting for stage in self.stages if isinstance(stage, Group)), None)

    def with_plan(self, plan: Plan | InOrder) -> Self:
        """The same pipeline over another plan of the same leaves."""
        return replace(self, plan=plan, pipeline=_over(self.pipeline, plan))

    def limited(self, batches: int) -> Self:
        """The first so many batches of each rank; each pass begins anew."""
        if batches < 1:
            raise ConfigError(f"a limit of {batches} batches found; at least 1 expected")
        plan = self.plan
        a_unit = isinstance(plan, InOrder) and self.one_to_one and plan.unit_rows == (self.batch_size or 1)
        if isinstance(plan, InOrder) and a_unit and self.limit is None:  # then no row is read for nothing
            units = batches * self.worker_config.ranks
            return self.with_plan(replace(plan, units=units if plan.units is None else min(units, plan.units)))
        return replace(self, limit=batches if self.limit is None else min(batches, self.limit))

    def with_buffers(self, *, window_samples: int, most_waiting: int | None) -> Dataset:
        """The same data set with packing windows and groups of another size."""
        pipeline = _changed(self.pipeline, Pack, window_samples=window_samples)
        return replace(self, pipeline=_changed(pipeline, Group, most_waiting=most_waiting))

    def length(self, lanes: int | None = None, *, lap: int = 0) -> int | None:
        """Batches of this rank in a pass; of an endless one, in an epoch of the data. ``None`` if unknown."""
        config = self.worker_config
        if self.virtual_epoch_length:
            return self.virtual_epoch_length
        if self.limit is not None:
            whole = self.limit if self.plan.endless else replace(self, limit=None).length(lanes, lap=lap)
            return None if whole is None else min(self.limit, whole)
        if not self.one_to_one:
            return None
        if self.plan.endless:
            return max(1, self.plan.epoch_rows // (config.ranks * (self.batch_size or 1)))
        lanes = lanes or config.run_lanes
        if self.equal_steps:
            return max(self.rank_batches(rank, lanes, lap) for rank in range(config.ranks))
        return self.rank_batches(config.number, lanes, lap)

    def rank_batches(self, rank: int, lanes: int, lap: int = 0) -> int:
        """Batches of a rank in one pass over data that ends, where each row gives one sample."""
        size = self.batch_size or 1
        if isinstance(self.plan, InOrder) and self.plan.passes != 1:  # each pass has a last unit, full or not
            return sum(
                self.plan.lane_units(Lane(i, lanes, lap)) or 0
                for i in rank_lanes(lanes, rank, self.worker_config.ranks)
            )
        drops = isinstance(self.pipeline, Batch) and self.pipeline.drop_last
        rows = (
            self.plan.lane_rows(Lane(i, lanes, lap)) or 0 for i in rank_lanes(lanes, rank, self.worker_config.ranks)
        )
        return sum(n // size if drops else -(-n // size) for n in rows)

    @property
    def lists_in_state(self) -> int:
        """Lists of a number a leaf that the state of a lane may hold."""
        plan = self.plan
        if not isinstance(plan, Plan) or not plan.moves:
            return len(CURSOR_FIELDS)
        return len(CURSOR_FIELDS) + len(MOVING_FIELDS)

    @property
    def keys_in_state(self) -> int:
        """Keys of samples that wait in windows and groups, for which the state of a lane has to have room."""
        if not self.holds_back:
            return 0
        groups = any(isinstance(stage, Group) for stage in self.stages)
        waiting = (self.most_waiting or MOST_WAITING) if groups else 0
        return waiting + max(self.window_samples, MOST_WAITING if self.window_samples else 0)

    def mix(self) -> Mix:
        """What the order of samples hangs on."""
        return self._mix

    @cached_property
    def _mix(self) -> Mix:
        plan = self.plan
        settings: dict[str, Any] = {"window_samples": self.window_samples}
        packer = next((stage.settings for stage in self.stages if isinstance(stage, Pack)), "")
        settings |= {"packer": packer} if packer else {}
        settings |= {"most_waiting": self.most_waiting} if self.most_waiting is not None else {}
        if isinstance(plan, Plan):
            settings |= {
                "seed": plan.seed,
                "shuffle": list(astuple(plan.shuffle)),
                "shuffles": {leaf.name: list(astuple(leaf.shuffle)) for leaf in plan.leaves if leaf.shuffle},
                "passes": {leaf.name: str(leaf.passes) for leaf in plan.leaves if leaf.passes is not None},
                "parts": {leaf.name: leaf.part for leaf in plan.leaves if leaf.part},
                "repeat": plan.repeats,
                "weights": plan.weights_mark,
            }
            return Mix(tuple((leaf.name, leaf.rows, leaf.weight) for leaf in plan.leaves), settings)
        settings |= {"unit_rows": plan.unit_rows, "units": plan.units}
        settings |= {"passes_of_all": plan.passes} if plan.passes != 1 else {}
        return Mix(tuple((leaf.name, leaf.rows, 1.0) for leaf in plan.leaves), settings)


def _over(stage: Any, plan: Plan | InOrder) -> Any:
    """The stages over another plan."""
    return replace(stage, source=plan if isinstance(stage, Make) else _over(stage.source, plan))


def _changed(stage: Any, kind: type, **fields: Any) -> Any:
    """The pipeline with other fields in its stages of a kind."""
    if isinstance(stage, Make):
        return stage
    changed = replace(stage, source=_changed(stage.source, kind, **fields))
    return replace(changed, **fields) if isinstance(stage, kind) else changed
