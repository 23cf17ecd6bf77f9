"""Loaders under Energon's names; its arguments for checkpoints within workers are accepted and have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from omniloom.data.loader.loader import Loader
from omniloom.data.loader.runner import Produced
from omniloom.data.loader.state import LaneState, RankState
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.lane import Lane
from omniloom.energon.adapters.debug_log import LoaderLog
from omniloom.energon.adapters.own_stage import OWN_FIELDS
from omniloom.errors import StateError

_WITHOUT_EFFECT = (
    "worker_config",
    "checkpoint_every_sec",
    "checkpoint_every_min_n_samples",
    "n_checkpoints",
    "gc_collect_every_n_steps",
    "gc_freeze_at_start",
)


class SavableDataLoader(Loader):
    """`omniloom.Loader`: batches, and their place saved at every step.

    Args:
        dataset: what to load.
        settings: as for `omniloom.Loader`; Energon's other arguments are accepted: state travels with every batch.

    Attributes:
        id: number of the loader in this process, for its logs.
    """

    _next_id: ClassVar[int] = 0

    def __init__(self, dataset: Any, **settings: Any) -> None:
        from omniloom.energon.adapters.own import described  # noqa: PLC0415 - data sets are iterated by loaders

        dataset = described(dataset)
        super().__init__(dataset, **{name: one for name, one in settings.items() if name not in _WITHOUT_EFFECT})
        self.id = SavableDataLoader._next_id
        SavableDataLoader._next_id += 1
        self._log: LoaderLog | None = None
        self._last_lane = 0
        if getattr(self.worker_config, "worker_log_level", 0) >= 1:
            training = not isinstance(dataset.plan, InOrder)
            self._log = LoaderLog(self.worker_config, self.id, training=training)  # type: ignore[arg-type]
            self._log.made(self.config())

    def __iter__(self) -> Iterator[Any]:
        if self._log is not None:
            self._log.begun()
        return super().__iter__()

    def __len__(self) -> int:
        """Batches of this rank in a pass; an estimate where it cannot be known (see `SavableDataset`)."""
        dataset = self.dataset
        known = None if dataset.plan.endless else dataset.length(self._lane_count, lap=self._lap)
        return len(dataset) if known is None else known

    def next_batch(self) -> Any:
        """The next batch of the pass. Raises StopIteration at its end."""
        if self._log is None:
            return _converted(super().next_batch())
        try:
            batch = super().next_batch()
        except StopIteration:
            self._log.stopped()
            raise
        self._log.yielded(batch, lane=self._last_lane, step=self._steps - 1)
        return _converted(batch)

    def config(self) -> dict[str, Any]:
        """What it loads and how, as plain values."""
        config = self.worker_config
        described = self.dataset.config() if hasattr(self.dataset, "config") else str(self.dataset).splitlines()
        return {
            "type": type(self).__name__,
            "num_workers": self.num_workers,
            "persistent_workers": config.persistent_workers and self.num_workers > 0,
            "pin_memory": bool(config.pin_memory),
            "prefetch_factor": self._settings.prefetch_factor if self.num_workers else None,
            "dataset": described,
        }

    def can_restore_sample(self) -> bool:
        """Whether single samples can be made again by their key: always, unless a data set of a user's own cannot."""
        return bool(getattr(self.dataset, "can_restore_sample", lambda: True)())

    def _begin_lap(self, lap: int) -> None:
        """The next pass; a data set of a user's own goes on in it from what its state says."""
        before: dict[int, LaneState] = getattr(self, "_lanes", {}) if lap else {}
        super()._begin_lap(lap)
        if self.dataset.limit is not None:
            return
        for index, lane in self._lanes.items():
            old = before.get(index)
            if old is not None and old.stream is not None and "own" in old.stream:
                lane.stream = {name: old.stream[name] for name in OWN_FIELDS}

    def _rebased(self, stream: dict[str, Any] | None, state: RankState, lane: Lane) -> dict[str, Any] | None:
        if stream is not None and "own" in stream:
            raise StateError(
                "a state with a data set of your own goes on with the same data sets and weights; found: others"
            )
        return super()._rebased(stream, state, lane)

    def _fetch(self, index: int) -> Produced:
        self._last_lane = index
        return super()._fetch(index)


def _converted(batch: Any) -> Any:
    """The batch as torch's `DataLoader` hands it on, which Energon's is one of: in dicts, lists and tuples, arrays are
    made tensors; in dataclasses they stay.
    """
    if not isinstance(batch, dict | list | tuple | np.ndarray):
        return batch
    from torch.utils.data import default_convert  # noqa: PLC0415 - torch is imported once there is a batch

    return default_convert(batch)  # type: ignore[no-untyped-call]


def get_savable_loader(dataset: Any, **settings: Any) -> SavableDataLoader:
    """A loader whose state can be saved and restored at every step."""
    return SavableDataLoader(dataset, **settings)


def get_loader(dataset: Any, **settings: Any) -> SavableDataLoader:
    """The same as `get_savable_loader`: every loader can be saved."""
    return SavableDataLoader(dataset, **settings)
