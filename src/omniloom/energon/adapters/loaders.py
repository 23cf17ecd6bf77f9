"""Loaders under Energon's names; its arguments for checkpoints within workers are accepted and have no effect."""

from __future__ import annotations

from typing import Any

from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.loader import Loader

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
    """

    def __init__(self, dataset: Dataset, **settings: Any) -> None:
        super().__init__(dataset, **{name: one for name, one in settings.items() if name not in _WITHOUT_EFFECT})


def get_savable_loader(dataset: Dataset, **settings: Any) -> SavableDataLoader:
    """A loader whose state can be saved and restored at every step."""
    return SavableDataLoader(dataset, **settings)


def get_loader(dataset: Dataset, **settings: Any) -> SavableDataLoader:
    """The same as `get_savable_loader`: every loader can be saved."""
    return SavableDataLoader(dataset, **settings)
