"""Which ranks do what: a grid of pipeline stages, replicas, shards, parts of sequences, and parts of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from omniloom.errors import ConfigError
from omniloom.parallel.collectives import Group
from omniloom.parallel.config import ParallelConfig

PIPELINE, REPLICATE, SHARD, CONTEXT, TENSOR = range(5)
"""Axes of the grid of ranks, from those that speak least with each other to those that speak most."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The place of this rank among others. A group is ``None`` where this rank has none to share with.

    Attributes:
        data_mesh: ranks that parameters are cut over, and gradients summed over: shards times parts of sequences, by
            replicas where there are; ``None``: one process.
        tensor_mesh: ranks that share the matrices.
        tower_mesh: ranks that the tower's parameters are cut over, where these are others than those of `data_mesh`.
        data: ranks with batches of their own, one of each group that is given the same.
        model: ranks that are given the same batches.
        context: ranks that share the tokens of a batch.
        pipeline: stages of the same batches, in order.
        ends: the first and the last of these, for those two.
        everyone: all ranks.
        data_rank: number of this rank's batches.
        data_ranks: how many ranks have batches of their own.
    """

    data_mesh: DeviceMesh | None = None
    tensor_mesh: DeviceMesh | None = None
    tower_mesh: DeviceMesh | None = None
    data: Group | None = None
    model: Group | None = None
    context: Group | None = None
    pipeline: Group | None = None
    ends: Group | None = None
    everyone: Group | None = None
    data_rank: int = 0
    data_ranks: int = 1

    @property
    def loads(self) -> bool:
        """Whether this rank loads batches; else it is sent those of another."""
        return self.model is None or distributed.get_rank(self.model) == 0

    @property
    def tensor(self) -> Group | None:
        """Group of the ranks that share the matrices."""
        return None if self.tensor_mesh is None else self.tensor_mesh.get_group()

    @property
    def stage(self) -> int:
        """Number of this rank in its pipeline."""
        return 0 if self.pipeline is None else distributed.get_rank(self.pipeline)


def lay_out(config: ParallelConfig, *, device: str) -> Ranks:
    """The place of this rank. All ranks call it.

    Ranks of a tensor-parallel group are neighbours, and stages of a pipeline are the farthest from each other: so the
    former are of one machine, where its ranks are a multiple.

    Raises:
        ConfigError: the numbers of the config do not divide the number of ranks.
    """
    if not distributed.is_initialized():
        if config.ranks_of_a_replica > 1:
            told = ", ".join(f"{name} {number}" for name, number in config.axes.items() if number > 1)
            raise ConfigError(f"parallel.{told}: found for one process. Start it with torchrun.")
        return Ranks()
    ranks = distributed.get_world_size()
    data_ranks = ranks // config.ranks_of_a_replica
    if ranks % config.ranks_of_a_replica or config.replicas < 1 or data_ranks % config.replicas:
        told = ", ".join(f"{name} {number}" for name, number in config.axes.items() if number > 1)
        told = f"{told} and " if told else ""
        raise ConfigError(f"parallel: {told}replicas {config.replicas} do not divide {ranks} ranks.")
    shards = data_ranks // config.replicas
    grid = torch.arange(ranks).reshape(config.pipeline, config.replicas, shards, config.context, config.tensor)
    mesh = init_device_mesh(
        device,
        (config.pipeline, config.replicas, shards * config.context, config.tensor),
        mesh_dim_names=("pipeline", "replicate", "shard", "tensor"),
    )
    place = (grid == distributed.get_rank()).nonzero()[0].tolist()
    return Ranks(
        data_mesh=mesh["shard"] if config.replicas == 1 else mesh["replicate", "shard"],
        tensor_mesh=mesh["tensor"] if config.tensor > 1 else None,
        tower_mesh=_tower_mesh(config, ranks // config.pipeline, device=device),
        data=_own_group(grid, (REPLICATE, SHARD)),
        model=_own_group(grid, (PIPELINE, CONTEXT, TENSOR)),
        context=_own_group(grid, (CONTEXT,)),
        pipeline=_own_group(grid, (PIPELINE,)),
        ends=_own_group(grid[[0, -1]], (PIPELINE,)) if config.pipeline > 1 else None,
        everyone=distributed.group.WORLD,
        data_rank=place[REPLICATE] * shards + place[SHARD],
        data_ranks=data_ranks,
    )


def _tower_mesh(config: ParallelConfig, ranks: int, *, device: str) -> DeviceMesh | None:
    """The ranks that the tower is cut over, of all those of a stage; ``None`` where they are those of all else."""
    replicas = ranks if config.tower_weights == "replicated" else config.replicas
    if replicas == config.replicas and config.tensor == 1:
        return None
    shape = (config.pipeline, replicas, ranks // replicas)
    mesh = init_device_mesh(device, shape, mesh_dim_names=("pipeline", "replicate", "shard"))
    return mesh["shard"] if replicas == 1 else mesh["replicate", "shard"]


def _own_group(grid: torch.Tensor, axes: Sequence[int]) -> Group | None:
    """The group of this rank along some axes. Each rank makes all groups, and is in one of them at most."""
    others = [axis for axis in range(grid.dim()) if axis not in axes]
    rows = grid.permute(*others, *axes).flatten(0, len(others) - 1).flatten(1).tolist()
    if len(rows[0]) == 1:
        return None
    if len(rows[0]) == distributed.get_world_size():
        return distributed.group.WORLD
    groups = [distributed.new_group(row) for row in rows]
    return next((group for group, row in zip(groups, rows, strict=True) if distributed.get_rank() in row), None)
