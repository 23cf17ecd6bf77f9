"""Tensor parallelism: the matrices of a language model cut over ranks, heads by heads and words by words.

A ``DTensor`` is how a parameter is stored, sharded further, clipped, stepped and saved; computation is on its local
part with sums over ranks where they are due, for each operation on a ``DTensor`` costs more time than a layer has to
give. Everything that is not cut (norms, tower, projector) is computed by all ranks of a group alike, and its gradients
come out equal. Source: Shoeybi et al., Megatron-LM, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.nn import functional

from omniloom.errors import ConfigError
from omniloom.model.config import DecoderConfig
from omniloom.model.decoder import Decoder, DecoderLayer
from omniloom.model.hugging_face import HuggingFaceDecoder
from omniloom.model.llava import Llava
from omniloom.model.lora import DOWN, UP, scale_of
from omniloom.model.loss import LossSum
from omniloom.model.norm import RMSNorm
from omniloom.parallel.collectives import Group, gather_rows, sum_gradients, sum_to_own_rows, sum_values
from omniloom.parallel.sequence import Score, replace_method
from omniloom.parallel.vocabulary import first_word, own_rows, sum_of_losses, words_of_a_rank

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

_OF_KV_HEADS = ("attention.k_proj", "attention.v_proj")
"""Where heads of keys and values are fewer than ranks, each rank has these whole, and computes one head."""

_KV_HEADS = "kv_heads_of_this_rank"


def cut_tensors(
    model: Llava, mesh: DeviceMesh, *, sequence: bool = False, dealt_tower: bool = False, own_tower: bool = False
) -> None:
    """Cut a model's language model over the one axis of a mesh, before it is sharded over other axes.

    All ranks have the same weights in it. Names of parameters stay as they are; each becomes a ``DTensor``.

    Args:
        model: with a `Decoder` in it.
        mesh: the ranks of a tensor-parallel group.
        sequence: rows of the stream between the cut matrices are dealt over the same ranks
            (`omniloom.parallel.sequence`); else each has them all.
        dealt_tower: each rank sees tiles of its own (`omniloom.parallel.tower`); else each sees them all.
        own_tower: the tower stays as it is: it is sharded over ranks of its own.

    Raises:
        ConfigError: heads, hidden features or words that the ranks do not divide.
    """
    decoder = llava_of(model)[1]
    _check(decoder.config, mesh.size())
    group = mesh.get_group()
    cuts = dict(_cuts_of(decoder, mesh.size()))
    rows = own_kv_rows(decoder.config, group)
    shared = _maps_of_kv_heads(decoder) if shares_kv_heads(decoder.config, mesh.size()) else set()
    left = set(model.vision_tower.modules()) if own_tower else set()
    modules = [module for module in model.modules() if module not in left]
    for module in modules:
        _distribute(module, mesh, cuts.get(module))
    alone = {*model.vision_tower.modules(), *model.projector.modules()} if dealt_tower else set()
    for module in modules:
        if module._parameters:
            mine = rows if module in shared else None
            _compute_locally(module, group, alone=module in alone or mine is not None, rows=mine)
    for layer in decoder.modules():
        if isinstance(layer, DecoderLayer):
            _cut_layer(layer, group, sequence)
    if sequence and isinstance(decoder.norm, RMSNorm):
        sum_over_ranks(decoder.norm, group)
    if isinstance(decoder.embed_tokens, nn.Embedding):
        replace_method(decoder.embed_tokens, "forward", partial(_embed, decoder.embed_tokens, group))
    replace_method(decoder, "logits", partial(_logits, decoder, group))
    setattr(decoder, _KV_HEADS, len(rows) // decoder.config.head_dim)


def kv_heads_of(decoder: Decoder) -> int:
    """Heads of keys and values that this rank computes."""
    return int(getattr(decoder, _KV_HEADS, decoder.config.num_kv_heads))


def llava_of(model: nn.Module) -> tuple[Llava, Decoder]:
    """A model with its decoder. Raises ConfigError for another model than a LLaVA with ours."""
    if isinstance(model, Llava) and isinstance(model.language_model, HuggingFaceDecoder):
        raise ConfigError(
            "parallel: tensor, context, pipeline or pad_tokens found for a language model that transformers runs "
            "(`hf:`), which is trained by one process, or under FSDP. Leave them out."
        )
    decoder = model.language_model if isinstance(model, Llava) else None
    if not isinstance(model, Llava) or not isinstance(decoder, Decoder):
        raise ConfigError(f"parallel: {type(model).__name__} found; a LLaVA with our decoder expected.")
    return model, decoder


def _check(config: DecoderConfig, ranks: int) -> None:
    for what, number in {"heads": config.num_heads, "hidden features of the MLP": config.mlp_dim}.items():
        if number % ranks:
            raise ConfigError(f"parallel.tensor: {ranks} ranks do not divide {number} {what} of the language model.")
    heads = config.num_kv_heads
    if heads % ranks and ranks % heads:
        raise ConfigError(
            f"parallel.tensor: {ranks} ranks do not divide {heads} heads of keys and values of the language model, nor "
            "are they a multiple of them."
        )


def _cuts_of(decoder: Decoder, ranks: int) -> Iterator[tuple[nn.Module, int]]:
    for name, module in decoder.named_modules():
        cut = cut_of(name, kv_heads_shared=shares_kv_heads(decoder.config, ranks))
        if cut is not None:
            yield module, cut


def _maps_of_kv_heads(decoder: Decoder) -> set[nn.Module]:
    return {module for name, module in decoder.named_modules() if name.endswith(_OF_KV_HEADS)}


def shares_kv_heads(config: DecoderConfig, ranks: int) -> bool:
    """Whether several of so many ranks compute the same head of keys and values, each for query heads of its own."""
    return config.num_kv_heads < ranks


def own_kv_rows(config: DecoderConfig, group: Group) -> range:
    """The outputs of the maps to keys and values that this rank computes."""
    ranks, rank = distributed.get_world_size(group), distributed.get_rank(group)
    heads = max(1, config.num_kv_heads // ranks)
    first = rank * config.num_kv_heads // ranks
    return range(first * config.head_dim, (first + heads) * config.head_dim)


def axis_of(name: str, cut: int | None) -> int | None:
    """Along which axis a parameter of a module is cut; ``None``: it is whole.

    Args:
        name: of the parameter in its module.
        cut: how the module is.
    """
    # A bias goes with the outputs, and of the factors of LoRA the one that touches what is cut is cut.
    whole = {ROWS: (DOWN,), COLUMNS: ("bias", UP)}
    return None if cut is None or name in whole[cut] else cut


def cut_of(module: str, *, kv_heads_shared: bool = False) -> int | None:
    """How a module of a decoder is cut, by its name; where ranks share heads of keys and values, their maps are not."""
    if kv_heads_shared and module.endswith(_OF_KV_HEADS):
        return None
    return CUTS.get(".".join(module.split(".")[-2:]), CUTS.get(module))


def _distribute(module: nn.Module, mesh: DeviceMesh, cut: int | None) -> None:
    """Store a module's own parameters as ``DTensor``: of each rank's values, nothing is sent."""
    for name, parameter in module.named_parameters(recurse=False):
        axis = axis_of(name, cut)
        placement: Placement = Replicate() if axis is None else Shard(axis)
        stored = distribute_tensor(parameter.detach(), mesh, [placement], src_data_rank=None)
        module.register_parameter(name, nn.Parameter(stored, requires_grad=parameter.requires_grad))


def _compute_locally(module: nn.Module, group: Group, *, alone: bool, rows: range | None = None) -> None:
    """Compute with local parts; where a rank is `alone` with what it applies them to, their gradients are summed.

    Of a linear map that is whole here, only the outputs `rows` are computed, where these are given.
    """
    # Each rank has the product of LoRA's first factor go into its own rows of the second.
    factors = () if scale_of(module) is None else (DOWN,)
    summed = [name for name, _ in module.named_parameters(recurse=False)] if alone else factors
    replace_method(module, "forward", partial(_on_local_parts, module, module.forward, group, summed, rows))


def _on_local_parts(
    module: nn.Module,
    forward: Callable[..., Any],
    group: Group,
    summed: Collection[str],
    rows: range | None,
    *inputs: Any,
    **settings: Any,
) -> Any:
    """A forward pass that finds the local parts under the names of the module's own parameters.

    Gradients of `summed` are summed over the group: each rank has applied them to what is its own. Where `rows` are
    given, so many outputs are computed.
    """
    own = {name: local(parameter) for name, parameter in module.named_parameters(recurse=False)}
    own |= {name: sum_gradients(own[name], group) for name in summed}
    if rows is not None:
        own |= {name: own[name][rows.start : rows.stop] for name in own if name != DOWN}
    module.__dict__.update(own)  # found before the parameters are
    try:
        return forward(*inputs, **settings)
    finally:
        for name in own:
            del module.__dict__[name]


def _cut_layer(layer: DecoderLayer, group: Group, sequence: bool) -> None:
    enter = gather_rows if sequence else sum_gradients
    for block in (layer.attention, layer.mlp):
        replace_method(block, "forward", partial(_enter, enter, group, block.forward))
    for last in (layer.attention.o_proj, layer.mlp.down_proj):
        replace_method(last, "forward", partial(_sum_to_rows if sequence else _sum_of_columns, last, group))
    # Each rank applies these to its own heads, or to its own rows.
    norms = [layer.attention.q_norm, layer.attention.k_norm]
    norms += [layer.attention_norm, layer.mlp_norm] if sequence else []
    for norm in norms:
        if isinstance(norm, RMSNorm):
            sum_over_ranks(norm, group)


def sum_over_ranks(module: nn.Module, group: Group) -> None:
    """Sum gradients of a module's own parameters over a group, whose ranks each apply them to other things."""
    names = [name for name, _ in module.named_parameters(recurse=False)]
    forward = partial(type(module).forward, module)
    replace_method(module, "forward", partial(_on_local_parts, module, forward, group, names, None))


def _enter(
    enter: Callable[[Tensor, Group], Tensor], group: Group, forward: Callable[..., Tensor], inputs: Tensor, *others: Any
) -> Tensor:
    return forward(enter(inputs, group), *others)


def _sum_of_columns(linear: nn.Linear, group: Group, inputs: Tensor) -> Tensor:
    """A linear map of inputs that are dealt over ranks; the bias is added once, to the sum."""
    summed = sum_values(_own_product(linear, group, inputs), group)
    return summed if linear.bias is None else summed + local(linear.bias)


def _sum_to_rows(linear: nn.Linear, group: Group, inputs: Tensor) -> Tensor:
    """The same, of which each rank is given its rows."""
    summed = sum_to_own_rows(_own_product(linear, group, inputs), group)
    return summed if linear.bias is None else summed + sum_gradients(local(linear.bias), group)


def _own_product(linear: nn.Linear, group: Group, inputs: Tensor) -> Tensor:
    """What this rank's columns add to the outputs."""
    product = functional.linear(inputs, local(linear.weight))
    scale = scale_of(linear)
    if scale is None:
        return product
    up = sum_gradients(local(getattr(linear, UP)), group)
    return product + functional.linear(functional.linear(inputs, local(getattr(linear, DOWN))), up) * scale


def _embed(embedding: nn.Embedding, group: Group, ids: Tensor) -> Tensor:
    weight = local(embedding.weight)
    rows, own = own_rows(ids, len(weight), first_word(embedding.num_embeddings, group))
    return sum_values(functional.embedding(rows, weight) * own[:, None], group)


def _logits(decoder: Decoder, group: Group, stream: Tensor) -> Tensor:
    """Scores of all words, put together; for looking at them, no gradient goes through."""
    words = decoder.config.vocab_size
    own = functional.linear(stream, local(decoder.head_weight)).detach()
    own = functional.pad(own, (0, words_of_a_rank(words, group) - own.shape[-1]))  # the last rank may have fewer
    parts = [torch.empty_like(own) for _ in range(distributed.get_world_size(group))]
    distributed.all_gather(parts, own, group=group)
    return torch.cat(parts, dim=-1)[:, :words]


def score_words(decoder: Decoder, group: Group) -> Score:
    """What takes the loss of rows of the stream, of words that are dealt over a group."""

    def score(stream: Tensor, labels: Tensor, **settings: Any) -> LossSum:
        weight, words = local(decoder.head_weight), decoder.config.vocab_size
        return sum_of_losses(stream, weight, labels, group=group, words=words, **settings)

    return score


def local(parameter: Tensor) -> Tensor:
    """What this rank holds of a parameter, whose gradient becomes the parameter's."""
    own: Tensor = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    return own
