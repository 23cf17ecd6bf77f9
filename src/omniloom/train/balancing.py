"""Equal work for the ranks of a run: what a pack costs, and what is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omniloom.model.config import LlavaConfig
from omniloom.parallel.balance import BalancedLoader
from omniloom.parallel.collectives import Group
from omniloom.train.batches import work_of
from omniloom.train.flops import training_flops
from omniloom.train.hooks import Hook
from omniloom.train.loop import LoopConfig
from omniloom.train.recipe import Recipe


def balanced_loader(loader: Any, recipe: Recipe, config: LlavaConfig, *, loop: LoopConfig, group: Group | None) -> Any:
    """The loader, whose packs come in an order that lets ranks wait less, where there are several that load.

    Args:
        loader: of this rank; ``None``: another loads for it.
        recipe: says how packs are balanced, and what is trained.
        config: of the model.
        loop: says how many packs a step has.
        group: the ranks that load; ``None``: this one alone.
    """
    if loader is None or group is None or recipe.parallel.balance == "none":
        return loader
    names = ("vision_tower", "projector", "language_model")
    trained = [name for name in names if name not in recipe.parts or recipe.parts[name].train]

    def cost(batch: Any) -> float:
        return float(training_flops(config, work_of(batch), trained=trained))

    across = recipe.parallel.balance == "ranks"
    return BalancedLoader(loader, micro_batches=loop.micro_batches, cost=cost, group=group, across_ranks=across)


class ToldByLoader(Hook):
    """Tells of each step what a `BalancedLoader` has told of it; of another loader, nothing."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader if isinstance(loader, BalancedLoader) else None

    def after_step(self, step: int) -> Mapping[str, float]:
        """``imbalance_before``, ``imbalance_after`` and ``exchanged_bytes``."""
        del step
        return {} if self._loader is None else self._loader.told
