"""What layers keep for their gradients, in bytes of half precision: one of each kind runs on the meta device.

Nothing is computed there, but torch keeps what it would keep: inputs of trained matrices, and not those of frozen ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from torch import Tensor, nn

from omniloom.model.attention import AttendPacked
from omniloom.model.config import DecoderConfig, LlavaConfig, VisionConfig
from omniloom.model.decoder import DecoderLayer
from omniloom.model.documents import Documents
from omniloom.model.llava import Llava
from omniloom.model.lora import DOWN, UP, lora_forward, scale_of
from omniloom.model.projector import Projector
from omniloom.model.rope import rope_table
from omniloom.model.vision import VisionLayer

HALF_BYTES = 2


@dataclass(frozen=True)
class Learned:
    """What of a layer is learned.

    Attributes:
        names: of its trained parameters.
        factors: of its linear maps with a product of LoRA, by name: features between the factors.
        flows: whether gradients go on to what lies before the layer.
    """

    names: frozenset[str]
    factors: tuple[tuple[str, int], ...] = ()
    flows: bool = True

    @classmethod
    def of(cls, layer: nn.Module, *, flows: bool) -> Learned:
        """What of a layer of a model is."""
        names = frozenset(name for name, each in layer.named_parameters() if each.requires_grad)
        maps = ((name, each) for name, each in layer.named_modules() if scale_of(each) is not None)
        return cls(names, tuple((name, getattr(each, DOWN).shape[0]) for name, each in maps), flows)

    @property
    def keeps(self) -> bool:
        """Whether anything is kept for it."""
        return bool(self.names) or self.flows


@cache
def by_decoder_layer(config: DecoderConfig, learned: Learned, *, ranks: int, tokens: int) -> int:
    """Bytes that a layer of a language model keeps of so many tokens, on one of the ranks that share its matrices."""
    cut = replace(
        config,
        num_heads=share(config.num_heads, ranks),
        num_kv_heads=share(config.num_kv_heads, ranks),
        mlp_dim=share(config.mlp_dim, ranks),
    )

    def run() -> tuple[nn.Module, Callable[[], Tensor]]:
        layer = _learning(DecoderLayer(cut, 0), learned)
        stream = torch.empty(tokens, config.dim, dtype=torch.bfloat16, requires_grad=learned.flows)
        attend = AttendPacked(Documents((0, tokens)), stream.device)
        rope = rope_table(config.rope, attend.positions, head_dim=config.head_dim, dtype=stream.dtype)
        return layer, lambda: layer(stream, rope, attend)

    return _kept_bytes(run) if tokens and learned.keeps else 0


@cache
def by_vision_layer(config: VisionConfig, learned: Learned, *, tiles: int) -> int:
    """Bytes that a layer of a tower keeps of so many tiles."""

    def run() -> tuple[nn.Module, Callable[[], Tensor]]:
        layer = _learning(VisionLayer(config), learned)
        tokens = config.position_rows**2 + config.prefix_tokens
        stream = torch.empty(tiles, tokens, config.dim, dtype=torch.bfloat16, requires_grad=learned.flows)
        return layer, lambda: layer(stream)

    return _kept_bytes(run) if tiles and learned.keeps else 0


def by_projector(model: Llava, *, tiles: int) -> int:
    """Bytes that the projector keeps of so many tiles."""
    config: LlavaConfig = model.config
    side = config.vision.image_size
    rows, columns = config.vision.grid(side, side)
    flows = any(each.requires_grad for each in model.vision_tower.parameters())
    learned = Learned.of(model.projector, flows=flows)

    def run() -> tuple[nn.Module, Callable[[], Tensor]]:
        projector = Projector(config.projector)
        _learning(projector, learned)
        summary = config.projector.reduction == "summary"  # nothing is kept of a mean
        shape = (1, config.projector.reduced_dim) if summary else (rows * columns, config.projector.input_dim)
        features = torch.empty((tiles, *shape), dtype=torch.bfloat16, requires_grad=flows)
        if summary:
            return projector, lambda: projector.map(features)
        return projector, lambda: projector(features, rows=rows, columns=columns)

    return _kept_bytes(run) if tiles and learned.keeps else 0


def share(number: int, parts: int) -> int:
    """The greatest of so many parts."""
    return -(-number // parts)


def _learning(module: nn.Module, learned: Learned) -> nn.Module:
    """A module of which that is learned, in half precision."""
    for name, rank in learned.factors:
        linear = module.get_submodule(name)
        if isinstance(linear, nn.Linear):
            linear.register_parameter(DOWN, nn.Parameter(torch.empty(rank, linear.in_features)))
            linear.register_parameter(UP, nn.Parameter(torch.empty(linear.out_features, rank)))
            linear.forward = partial(lora_forward, linear, 1.0)  # type: ignore[method-assign]
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in learned.names)
    return module.to(torch.bfloat16)


def _kept_bytes(prepare: Callable[[], tuple[nn.Module, Callable[[], Tensor]]]) -> int:
    """Bytes that a forward pass keeps besides its parameters; nothing is computed."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage.nbytes()
        held.append(tensor)  # or another might be given its place
        return tensor

    held: list[Tensor] = []
    with torch.device("meta"):
        layer, run = prepare()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            run()
    parameters = {parameter.untyped_storage()._cdata for parameter in layer.parameters()}
    return sum(size for storage, size in kept.items() if storage not in parameters)
