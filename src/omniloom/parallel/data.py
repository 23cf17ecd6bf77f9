"""Data parallelism: parameters, gradients and optimizer states cut over ranks (FSDP2), in one or two levels (HSDP)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

from omniloom.errors import ConfigError
from omniloom.model.loss import LossSum
from omniloom.parallel.layers import layers_of

Precision = Literal["float32", "bfloat16"]

torch.export.register_dataclass(LossSum)  # so that FSDP finds the tensor in it, whose backward it has to wait for


@dataclass(frozen=True, kw_only=True)
class DataParallelConfig:
    """How the data-parallel ranks share a model.

    Attributes:
        replicas: groups of ranks that each hold the model once, cut over the ranks of the group (HSDP); 1: one group.
        precision: of parameters in computation; gradients are summed over ranks in float32 either way.
        reshard: let go of a layer's gathered parameters after its forward pass, and gather them again.
    """

    replicas: int = 1
    precision: Precision = "float32"
    reshard: bool = True


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
    """Cut a model over a mesh: each layer on its own, then what is left.

    Gradients are summed over ranks, not averaged: `train.step` has divided by the learned tokens of all of them.
    """
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if config.precision == "bfloat16" else None, reduce_dtype=torch.float32
    )
    for layer in layers_of(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=config.reshard)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    if hasattr(model, "loss"):
        register_fsdp_forward_method(model, "loss")  # it runs the model as `forward` does
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo knows no sum that divides
    if not any(parameter.is_meta for parameter in model.parameters()):
        gather_once(model)
    return model


def gather_once(model: nn.Module) -> None:
    """Gather and let go of each layer, once its values are there. `shard` does so unless the model is on ``meta``.

    A layer that no forward pass has gathered breaks FSDP's accumulation of gradients, and there are such: features of a
    tower's last layer but one leave its last layer unused.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.unshard()
            module.reshard()
