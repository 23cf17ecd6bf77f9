"""What is done to a model so that the ranks of a job train it together, in the order in which it has to be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from omniloom.errors import ConfigError
from omniloom.parallel.checkpointing import compile_layers, recompute_layers
from omniloom.parallel.data import DataParallelConfig, data_mesh, shard
from omniloom.parallel.tensor import cut_tensors


@dataclass(frozen=True, kw_only=True)
class ParallelConfig(DataParallelConfig):
    """How a model is laid over ranks, and what its layers keep.

    Attributes:
        tensor: ranks that share each matrix of the language model, and are given the same batches.
        recompute: by part, such as ``{language_model: 1}``: layers whose activations are computed again for their
            gradients. 1: each layer; ``n``: each ``n``-th; 0, or a part that is not named: none.
        compile: compile each layer with ``torch.compile``; not together with ``tensor``.
    """

    tensor: int = 1
    recompute: Mapping[str, int] = field(default_factory=dict)
    compile: bool = False

    def __post_init__(self) -> None:
        if self.tensor < 1:
            raise ConfigError(f"parallel.tensor: {self.tensor} found; at least 1 expected.")
        if self.compile and self.tensor > 1:
            raise ConfigError(
                f"parallel: compile together with tensor {self.tensor} found. Leave out one: a compiled layer does not "
                "take sums over ranks."
            )


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The place of a rank in a job.

    Attributes:
        data_mesh: the ranks that share parameters and have batches of their own; ``None``: a process alone.
        tensor_mesh: the ranks that share matrices and batches; ``None``: this rank has none to share with.
        data: group of the ranks of `data_mesh`.
        everyone: group of all ranks.
        data_rank: number of this rank's batches.
        data_ranks: how many ranks have batches of their own.
    """

    data_mesh: DeviceMesh | None = None
    tensor_mesh: DeviceMesh | None = None
    data: distributed.ProcessGroup | None = None
    everyone: distributed.ProcessGroup | None = None
    data_rank: int = 0
    data_ranks: int = 1

    @property
    def loads(self) -> bool:
        """Whether this rank loads batches; else it is sent those of another."""
        return self.tensor_mesh is None or self.tensor_mesh.get_local_rank() == 0


def lay_out(config: ParallelConfig, *, device: str) -> Ranks:
    """The place of this rank. All ranks call it.

    Ranks of a tensor-parallel group are neighbours: so they are of one machine, where its ranks are a multiple.

    Raises:
        ConfigError: the numbers of the config do not divide the number of ranks.
    """
    if not distributed.is_initialized():
        if config.tensor > 1:
            raise ConfigError(f"parallel.tensor: {config.tensor} found for one process. Start it with torchrun.")
        return Ranks()
    ranks, everyone = distributed.get_world_size(), distributed.group.WORLD
    if config.tensor == 1:
        mesh = data_mesh(ranks, config, device=device)
        rank = distributed.get_rank()
        return Ranks(data_mesh=mesh, data=everyone, everyone=everyone, data_rank=rank, data_ranks=ranks)
    return _with_tensor_groups(config, ranks, device)


def _with_tensor_groups(config: ParallelConfig, ranks: int, device: str) -> Ranks:
    if ranks % config.tensor or config.replicas < 1 or ranks // config.tensor % config.replicas:
        raise ConfigError(
            f"parallel: tensor {config.tensor} and replicas {config.replicas} do not divide {ranks} ranks."
        )
    data_ranks = ranks // config.tensor
    whole = init_device_mesh(
        device,
        (config.replicas, data_ranks // config.replicas, config.tensor),
        mesh_dim_names=("replicate", "shard", "tensor"),
    )
    # Each rank makes all groups, and is in one of them.
    groups = [distributed.new_group(list(range(first, ranks, config.tensor))) for first in range(config.tensor)]
    rank = distributed.get_rank()
    return Ranks(
        data_mesh=whole["shard"] if config.replicas == 1 else whole["replicate", "shard"],
        tensor_mesh=whole["tensor"],
        data=groups[rank % config.tensor],
        everyone=distributed.group.WORLD,
        data_rank=rank // config.tensor,
        data_ranks=data_ranks,
    )


def parallelize(model: nn.Module, config: ParallelConfig, ranks: Ranks) -> nn.Module:
    """Apply a config to a model on its device; what is trained has been chosen. All ranks call it.

    Raises:
        ConfigError: the config does not fit the model.
    """
    if ranks.tensor_mesh is not None:
        cut_tensors(model, ranks.tensor_mesh)
    if config.compile:
        compile_layers(model)
    recompute_layers(model, config.recompute)
    return model if ranks.data_mesh is None else shard(model, ranks.data_mesh, config)
