"""Tensor parallelism: the matrices of a language model cut over ranks, heads by heads and words by words.

A ``DTensor`` is how a parameter is stored, sharded further, clipped, stepped and saved; computation is on its local
part with sums over ranks where they are due, for each operation on a ``DTensor`` costs more time than a layer has to
give. Everything that is not cut (norms, tower, projector) is computed by all ranks of a group alike, and its gradients
come out equal. Source: Shoeybi et al., Megatron-LM, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.nn import functional

from omniloom.errors import ConfigError
from omniloom.model.config import DecoderConfig
from omniloom.model.decoder import Attention, Decoder, DecoderLayer
from omniloom.model.llava import Llava
from omniloom.model.loss import LossSum
from omniloom.model.norm import RMSNorm
from omniloom.parallel.collectives import sum_gradients, sum_values
from omniloom.parallel.vocabulary import own_rows, sum_of_losses

ROWS, COLUMNS = 0, 1
"""A matrix is cut in rows (of its outputs), or in columns (of its inputs)."""

CUTS = {
    "attention.q_proj": ROWS,
    "attention.k_proj": ROWS,
    "attention.v_proj": ROWS,
    "attention.o_proj": COLUMNS,
    "mlp.gate_proj": ROWS,
    "mlp.up_proj": ROWS,
    "mlp.down_proj": COLUMNS,
    "embed_tokens": ROWS,
    "head": ROWS,
}
"""How the modules of a decoder are cut, by the end of their names."""


def cut_tensors(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Cut a model's language model over the one axis of a mesh, before it is sharded over other axes.

    All ranks have the same weights in it. Names of parameters stay as they are; each becomes a ``DTensor``.

    Args:
        model: a `Llava` with a `Decoder` in it.
        mesh: the ranks of a tensor-parallel group.

    Raises:
        ConfigError: another model, or heads, hidden features or words that the ranks do not divide.
    """
    decoder = model.language_model if isinstance(model, Llava) else None
    if not isinstance(model, Llava) or not isinstance(decoder, Decoder):
        raise ConfigError(f"parallel.tensor: {type(model).__name__} found; a LLaVA with our decoder expected.")
    _check(decoder.config, mesh.size())
    group = mesh.get_group()
    cuts = dict(_cuts_of(decoder))
    for module in model.modules():
        _distribute(module, mesh, cuts.get(module))
    for module in list(model.modules()):
        if module._parameters:
            _compute_locally(module)
    for layer in decoder.modules():
        if isinstance(layer, DecoderLayer):
            _cut_layer(layer, group)
    _replace(decoder.embed_tokens, "forward", partial(_embed, decoder.embed_tokens, group))
    _replace(decoder, "logits", partial(_logits, decoder, group))
    _replace(model, "loss", partial(_loss, model, group))
    return model


def _check(config: DecoderConfig, ranks: int) -> None:
    dealt = {
        "heads": config.num_heads,
        "heads of keys and values": config.num_kv_heads,
        "hidden features of the MLP": config.mlp_dim,
        "words": config.vocab_size,
    }
    for what, number in dealt.items():
        if number % ranks:
            raise ConfigError(f"parallel.tensor: {ranks} ranks do not divide {number} {what} of the language model.")


def _cuts_of(decoder: Decoder) -> Iterator[tuple[nn.Module, int]]:
    for name, module in decoder.named_modules():
        words = name.split(".")
        cut = CUTS.get(".".join(words[-2:]), CUTS.get(name))
        if cut is not None:
            yield module, cut


def _distribute(module: nn.Module, mesh: DeviceMesh, cut: int | None) -> None:
    """Store a module's own parameters as ``DTensor``: of each rank's values, nothing is sent."""
    for name, parameter in module.named_parameters(recurse=False):
        # A bias goes with the outputs: whole where the columns are cut.
        whole = cut is None or cut >= parameter.dim()
        placement: Placement = Replicate() if whole or cut is None else Shard(cut)
        stored = distribute_tensor(parameter.detach(), mesh, [placement], src_data_rank=None)
        module.register_parameter(name, nn.Parameter(stored, requires_grad=parameter.requires_grad))


def _compute_locally(module: nn.Module) -> None:
    _replace(module, "forward", partial(_on_local_parts, module, module.forward, None))


def _on_local_parts(
    module: nn.Module,
    forward: Callable[..., Any],
    group: distributed.ProcessGroup | None,
    *inputs: Any,
    **settings: Any,
) -> Any:
    """A forward pass that finds the local parts under the names of the module's own parameters.

    With a group, gradients of the parameters are summed over it: each rank has applied them to its own heads alone.
    """
    own = {name: local(parameter) for name, parameter in module.named_parameters(recurse=False)}
    if group is not None:
        own = {name: sum_gradients(tensor, group) for name, tensor in own.items()}
    module.__dict__.update(own)  # found before the parameters are
    try:
        return forward(*inputs, **settings)
    finally:
        for name in own:
            del module.__dict__[name]


def _cut_layer(layer: DecoderLayer, group: distributed.ProcessGroup) -> None:
    for block in (layer.attention, layer.mlp):
        _replace(block, "forward", partial(_enter, group, block.forward))
    for last in (layer.attention.o_proj, layer.mlp.down_proj):
        _replace(last, "forward", partial(_sum_of_columns, last, group))
    _norm_own_heads(layer.attention, group)


def _norm_own_heads(attention: Attention, group: distributed.ProcessGroup) -> None:
    for norm in (attention.q_norm, attention.k_norm):
        if isinstance(norm, RMSNorm):
            _replace(norm, "forward", partial(_on_local_parts, norm, partial(RMSNorm.forward, norm), group))


def _enter(group: distributed.ProcessGroup, forward: Callable[..., Tensor], inputs: Tensor, *others: Any) -> Tensor:
    return forward(sum_gradients(inputs, group), *others)


def _sum_of_columns(linear: nn.Linear, group: distributed.ProcessGroup, inputs: Tensor) -> Tensor:
    """A linear map of inputs that are dealt over ranks; the bias is added once, to the sum."""
    summed = sum_values(functional.linear(inputs, local(linear.weight)), group)
    return summed if linear.bias is None else summed + local(linear.bias)


def _embed(embedding: nn.Embedding, group: distributed.ProcessGroup, ids: Tensor) -> Tensor:
    weight = local(embedding.weight)
    rows, own = own_rows(ids, len(weight), group)
    return sum_values(functional.embedding(rows, weight) * own[:, None], group)


def _logits(decoder: Decoder, group: distributed.ProcessGroup, stream: Tensor) -> Tensor:
    """Scores of all words, put together; for looking at them, no gradient goes through."""
    own = functional.linear(stream, local(decoder.head_weight)).detach()
    parts = [torch.empty_like(own) for _ in range(distributed.get_world_size(group))]
    distributed.all_gather(parts, own, group=group)
    return torch.cat(parts, dim=-1)


def _loss(
    model: Llava,
    group: distributed.ProcessGroup,
    input_ids: Tensor,
    *,
    labels: Tensor,
    token_weights: Tensor | None = None,
    **settings: Any,
) -> LossSum:
    chunk = {"chunk_tokens": settings.pop("chunk_tokens")} if "chunk_tokens" in settings else {}
    stream = model.decode(input_ids, **settings)
    weight = local(model.language_model.head_weight)
    return sum_of_losses(stream, weight, labels, group=group, token_weights=token_weights, **chunk)


def local(parameter: Tensor) -> Tensor:
    """What this rank holds of a parameter, whose gradient becomes the parameter's."""
    own: Tensor = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    return own


def _replace(module: nn.Module, method: str, function: Callable[..., Any]) -> None:
    setattr(module, method, function)
