"""Data parallelism: parameters, gradients and optimizer states cut over ranks (FSDP2), in one or two levels (HSDP)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from omniloom.errors import ConfigError
from omniloom.model.loss import LossSum
from omniloom.parallel.layers import layers_of

Precision = Literal["float32", "bfloat16"]
Gradients = Literal["auto", "whole", "sharded"]

WHOLE_GRADIENT_BYTES = 2_000_000_000
"""Up to so many bytes of a rank, gradients are kept whole between micro-batches unless a recipe says otherwise."""

_EACH = "sums_each_micro_batch"

torch.export.register_dataclass(LossSum)  # so that FSDP finds the tensor in it, whose backward it has to wait for


@dataclass(frozen=True, kw_only=True)
class DataParallelConfig:
    """How the data-parallel ranks share a model.

    Attributes:
        replicas: groups of ranks that each hold the model once, cut over the ranks of the group (HSDP); 1: one group.
        precision: of parameters in computation; gradients are summed over ranks in float32 either way.
        reshard: let go of a layer's gathered parameters after its forward pass, and gather them again.
        gradients: what a rank keeps of them between the micro-batches of a step. ``sharded``: they are summed over
            ranks with each micro-batch, and a rank keeps its share; ``whole``: they are summed once a step, and until
            then each rank has them all, float32; ``auto``: whole where that takes `WHOLE_GRADIENT_BYTES` at most.
    """

    replicas: int = 1
    precision: Precision = "float32"
    reshard: bool = True
    gradients: Gradients = "auto"

    def sums_each_micro_batch(self, *, trained_numbers: int) -> bool:
        """Whether gradients are summed over ranks with each micro-batch, of so many trained numbers on a rank."""
        if self.gradients == "auto":
            return trained_numbers * torch.float32.itemsize > WHOLE_GRADIENT_BYTES
        return self.gradients == "sharded"


def data_mesh(ranks: int, config: DataParallelConfig, *, device: str) -> DeviceMesh:
    """The mesh of data-parallel ranks: one axis, or replicas by shards.

    Raises:
        ConfigError: the replicas do not divide the ranks.
    """
    if config.replicas < 1 or ranks % config.replicas:
        raise ConfigError(f"parallel: {config.replicas} replicas do not divide {ranks} ranks.")
    if config.replicas == 1:
        return init_device_mesh(device, (ranks,), mesh_dim_names=("shard",))
    return init_device_mesh(device, (config.replicas, ranks // config.replicas), mesh_dim_names=("replicate", "shard"))


def shard(model: nn.Module, mesh: DeviceMesh, config: DataParallelConfig) -> nn.Module:
    """Cut a model over a mesh: each layer on its own, then what is left. What has been cut before stays as it is.

    Gradients are summed over ranks, not averaged: `train.step` has divided by the learned tokens of all of them.

    Args:
        model: a model, or a part of one that is cut over another mesh than the rest.
        mesh: of one axis, or of replicas by shards.
        config: how.
    """
    trained = sum(_own_numbers(parameter) for parameter in model.parameters() if parameter.requires_grad)
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if config.precision == "bfloat16" else None, reduce_dtype=torch.float32
    )
    before = {module for module in model.modules() if isinstance(module, FSDPModule)}
    for layer in layers_of(model):
        if layer not in before:
            fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=config.reshard)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    if hasattr(model, "loss"):
        register_fsdp_forward_method(model, "loss")  # it runs the model as `forward` does
    for module in model.modules():
        if isinstance(module, FSDPModule) and module not in before:
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo knows no sum that divides
    setattr(model, _EACH, config.sums_each_micro_batch(trained_numbers=trained))
    if not any(parameter.is_meta for parameter in model.parameters()):
        gather_once(model)
    return model


def sum_gradients_after(model: nn.Module, *, last: bool) -> None:
    """Say what the next backward pass does with gradients: as the config had it, with the last one at the latest.

    Replicas are summed over once a step either way: what waits for that is a share.

    Args:
        model: that `shard` has cut, or another, with which nothing is done.
        last: whether it is that of the last micro-batch of a step.
    """
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last or getattr(model, _EACH))
        model.set_requires_all_reduce(last)


def _own_numbers(parameter: nn.Parameter) -> int:
    own = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    return own.numel()


def gather_once(model: nn.Module) -> None:
    """Gather and let go of each layer, once its values are there. `shard` does so unless the model is on ``meta``.

    A layer that no forward pass has gathered breaks FSDP's accumulation of gradients, and there are such: features of a
    tower's last layer but one leave its last layer unused.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.unshard()
            module.reshard()
