"""`EngineDataset`: the engine's data set, with the lengths and descriptions that Energon's users ask it for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from omniloom.data.loader.dataset import Dataset
from omniloom.data.mixed_cook import WaysCook
from omniloom.data.pipeline.make import make_of
from omniloom.data.plan.in_order import InOrder
from omniloom.energon.adapters.config_tree import Asked, tree_of
from omniloom.energon.adapters.loaders import SavableDataLoader
from omniloom.energon.adapters.own_stage import OwnStage, placed
from omniloom.energon.adapters.savable import SavableDataset

_OWN_STATE_KEYS = 1024  # room in a lane's tensor for the state of a data set of a user's own


@dataclass(frozen=True)
class EngineDataset(Dataset, SavableDataset[Any]):
    """`omniloom.Dataset` as a `SavableDataset`: what the getters, factories and wrapper datasets give.

    Attributes:
        asked: what a getter was asked for, which made its pipeline.
        asked_for: that pipeline.
    """

    asked: Asked | None = None
    asked_for: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return placed(self)

    @classmethod
    def of(cls, dataset: Dataset, asked: Asked | None = None) -> EngineDataset:
        """The data set under this name."""
        known = {field.name: getattr(dataset, field.name) for field in fields(dataset)}
        return cls(**known, asked=asked, asked_for=dataset.pipeline)

    def __iter__(self) -> Iterator[Any]:
        return iter(SavableDataLoader(self, num_workers=0))

    def __len__(self) -> int:
        """Batches of this rank in a pass; where packs, groups or encoders make the number unknown, an estimate.

        As in Energon, the estimate takes each row for one sample and each pack for as many samples as were packed, and
        a data set that two ways of a mix lead to counts twice.
        """
        known = None if self.plan.endless and not self.virtual_epoch_length else self.length()
        return estimated_length(self) if known is None else known

    def len_rank(self) -> int:
        """The same as ``len``."""
        return len(self)

    def len_worker(self, worker_idx: int | None = None) -> int:
        """Batches of a worker in a pass: its share of ``len``, the first workers having one more where it is uneven."""
        share, more = divmod(len(self), max(1, self.worker_config.num_workers))
        return share + int((worker_idx or 0) < more)

    def worker_has_samples(self) -> bool:
        """Whether there is anything to give."""
        return any(leaf.rows for leaf in self.plan.leaves)

    @property
    def own(self) -> OwnStage | None:
        """The stage of a data set of a user's own in it, the outermost; ``None`` where there is none."""
        return next((stage for stage in self.stages if isinstance(stage, OwnStage)), None)

    @property
    def keys_in_state(self) -> int:
        """As in the engine; with room for the state of a user's own data set."""
        return super().keys_in_state + (0 if self.own is None else _OWN_STATE_KEYS)

    def can_restore_sample(self) -> bool:
        """Whether single samples can be made again by their key: always, unless a data set of a user's own cannot."""
        return self.own is None or self.own.object_of_user.can_restore_sample()

    def save_state(self) -> dict[str, Any]:
        """A description has no state: the loader's ``save_state_rank`` gives it."""
        return {}

    def restore_state(self, state: dict[str, Any]) -> None:
        """Nothing; see `save_state`."""

    def restore_sample(self, restore_key: Sequence[Any]) -> Any:
        """The sample or batch of a key, made again."""
        return SavableDataLoader(self, num_workers=0).restore_sample(restore_key)

    def config(self) -> dict[str, Any]:
        """What it is made of, as plain values: Energon's tree of wrappers, or, of what wrappers made, its stages."""
        if self.own is not None and self.own is self.pipeline:
            return self.own.object_of_user.config()
        if self.asked is not None and self.asked_for is self.pipeline:
            return tree_of(self, self.asked)
        config = self.worker_config
        leaves = zip(self.plan.leaves, self.paths or [""] * len(self.plan.leaves), strict=False)
        return {
            "type": type(self).__name__,
            "stages": [type(stage).__name__ for stage in self.stages],
            "batch_size": self.batch_size,
            "virtual_epoch_length": self.virtual_epoch_length,
            "worker_config": config.config() if hasattr(config, "config") else None,
            "datasets": [
                {
                    "type": "Leaf",
                    "name": leaf.name,
                    "rows": leaf.rows,
                    "weight": leaf.weight,
                    "map_fn_config": {"training": not isinstance(self.plan, InOrder), "_path": path},
                }
                for leaf, path in leaves
            ],
        }


def own_of(dataset: Dataset) -> OwnStage | None:
    """The data set of a user's own that this one iterates; ``None`` for those that the engine describes whole."""
    return dataset.own if isinstance(dataset, EngineDataset) else None


def estimated_length(dataset: Dataset) -> int:
    """Batches of a rank in an epoch, if each row gave one sample: what Energon tells of any data set."""
    own = own_of(dataset)
    if own is not None:
        return max(1, -(-own.object_of_user.len_rank() // (dataset.batch_size or 1)))
    ways = [
        len(cook.ways) if isinstance(cook := getattr(leaf, "cook_row", None), WaysCook) else 1
        for leaf in make_of(dataset.pipeline).leaves
    ]
    if isinstance(dataset.plan, InOrder) or not dataset.plan.endless:
        rows = sum(leaf.rows for leaf in dataset.plan.leaves)
    else:
        more = sum(leaf.rows * (count - 1) for leaf, count in zip(dataset.plan.leaves, ways, strict=False))
        rows = dataset.plan.epoch_rows + more
    return max(1, -(-rows // (dataset.worker_config.ranks * (dataset.batch_size or 1))))
