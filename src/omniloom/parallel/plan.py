"""What is done to a model so that the ranks of a job train it together, in the order in which it has to be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import distributed, nn

from omniloom.parallel.checkpointing import compile_layers, recompute_layers
from omniloom.parallel.data import DataParallelConfig, data_mesh, shard


@dataclass(frozen=True, kw_only=True)
class ParallelConfig(DataParallelConfig):
    """How a model is laid over ranks, and what its layers keep.

    Attributes:
        recompute: by part, such as ``{language_model: 1}``: layers whose activations are computed again for their
            gradients. 1: each layer; ``n``: each ``n``-th; 0, or a part that is not named: none.
        compile: compile each layer with ``torch.compile``.
    """

    recompute: Mapping[str, int] = field(default_factory=dict)
    compile: bool = False


def parallelize(model: nn.Module, config: ParallelConfig, *, device: str) -> nn.Module:
    """Apply a config to a model on its device; what is trained has been chosen. All ranks call it.

    Raises:
        ConfigError: the config does not fit the model, or the number of ranks.
    """
    if config.compile:
        compile_layers(model)
    recompute_layers(model, config.recompute)
    if not distributed.is_initialized():
        return model
    return shard(model, data_mesh(distributed.get_world_size(), config, device=device), config)
