"""How much memory a rank will need, before anything is there: sizes that are known, and activations tried on ``meta``.

What a layer keeps for its gradients is not worked out but seen: the layer is run on tensors without values, and what
autograd keeps is added up. So it holds for each family, and for what is trained of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from omniloom.model.config import DecoderConfig, LlavaConfig
from omniloom.model.decoder import DecoderLayer
from omniloom.model.loss import DEFAULT_CHUNK_TOKENS
from omniloom.model.projector import Projector
from omniloom.model.rope import rope_table
from omniloom.model.vision import VisionLayer
from omniloom.parallel.config import ParallelConfig
from omniloom.train.flops import Work

FLOAT32 = 4
ADAM_STATES = 2
_GATHERED_LAYERS = 2  # the one at work, and the one that is fetched meanwhile
_LOSS_COPIES = 3  # scores, their logarithms, the gradient
META = torch.device("meta")


@dataclass(frozen=True, kw_only=True)
class PartMemory:
    """Bytes that a part of the model takes on a rank.

    Attributes:
        weights, gradients, optimizer: this rank's share; gradients are whole while micro-batches are added up.
        gathered: weights of other ranks that are there at a time, in the precision of computation.
        activations: kept for the gradients, of all micro-batches that are under way.
    """

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    gathered: int = 0
    activations: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.gathered + self.activations


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Bytes on the rank that needs most: of the first stage where layers are those of several.

    Attributes:
        parts: by part of the model.
        batch: images and ids.
        loss: scores of some tokens at a time, and the gradient of the head.
    """

    parts: Mapping[str, PartMemory]
    batch: int
    loss: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(part.total for part in self.parts.values()) + self.batch + self.loss


@dataclass(frozen=True, kw_only=True)
class _Laid:
    """How a model is laid over ranks, as numbers."""

    parallel: ParallelConfig
    shards: int
    alone: bool
    micro_batches: int
    compute_bytes: int


def rank_memory(
    config: LlavaConfig,
    counts: Mapping[str, tuple[int, int]],
    *,
    parallel: ParallelConfig,
    ranks: int,
    work: Work,
    micro_batches: int,
) -> RankMemory:
    """The memory of a rank.

    Args:
        config: of the model.
        counts: trained and frozen parameters by part, see `omniloom.train.parts.counts`.
        parallel: how the model is laid over ranks.
        ranks: of the job.
        work: what the largest micro-batch holds.
        micro_batches: of a rank in a step.
    """
    data_ranks = max(1, ranks // parallel.ranks_of_a_replica)
    laid = _Laid(
        parallel=parallel,
        shards=max(1, data_ranks // parallel.replicas) * parallel.context,
        alone=ranks == 1,
        micro_batches=micro_batches,
        compute_bytes=2 if parallel.precision == "bfloat16" else FLOAT32,
    )
    kept = _activations(config, {part: bool(some) for part, (some, _) in counts.items()}, laid, work)
    parts = {
        part: _part(part, counted, config=config, laid=laid, activations=kept[part]) for part, counted in counts.items()
    }
    side, language = config.vision.image_size, config.language
    vocabulary = language.vocab_size // parallel.tensor
    scored = min(DEFAULT_CHUNK_TOKENS, max(1, work.learned_tokens))
    loss = scored * vocabulary * FLOAT32 * _LOSS_COPIES
    if counts["language_model"][0]:
        loss += vocabulary * language.dim * FLOAT32
    batch = work.tiles * 3 * side * side * FLOAT32 + sum(work.documents) * 8 * 3
    return RankMemory(parts=parts, batch=batch, loss=loss)


def _part(part: str, counted: tuple[int, int], *, config: LlavaConfig, laid: _Laid, activations: int) -> PartMemory:
    cut = laid.parallel.tensor * laid.parallel.pipeline if part == "language_model" else 1
    trained, frozen = (number // cut for number in counted)
    # Until the last micro-batch of a step, FSDP adds up gradients that are not yet cut over ranks.
    whole = laid.micro_batches > 1 or laid.alone
    return PartMemory(
        weights=(trained + frozen) * FLOAT32 // laid.shards,
        gradients=trained * FLOAT32 // (1 if whole else laid.shards),
        optimizer=trained * FLOAT32 * ADAM_STATES // laid.shards,
        gathered=_gathered(part, trained + frozen, config, laid),
        activations=activations,
    )


def _gathered(part: str, own: int, config: LlavaConfig, laid: _Laid) -> int:
    """Weights in the precision of computation beside this rank's share of them in float32."""
    if laid.alone:
        return own * laid.compute_bytes if laid.compute_bytes != FLOAT32 else 0
    layers = {"language_model": config.language.num_layers, "vision_tower": config.vision.num_layers}.get(part, 0)
    if not layers or not laid.parallel.reshard or laid.parallel.pipeline > 1:
        return own * laid.compute_bytes
    layered = _layer_parameters(part, config) // (laid.parallel.tensor if part == "language_model" else 1)
    outside = max(0, own - layered * layers)
    return (outside + _GATHERED_LAYERS * layered) * laid.compute_bytes


def _layer_parameters(part: str, config: LlavaConfig) -> int:
    with META:
        layer = DecoderLayer(config.language, 0) if part == "language_model" else VisionLayer(config.vision)
    return sum(parameter.numel() for parameter in layer.parameters())


def _activations(config: LlavaConfig, trained: Mapping[str, bool], laid: _Laid, work: Work) -> dict[str, int]:
    """Bytes that each part keeps for its gradients."""
    parallel, dtype = laid.parallel, torch.bfloat16 if laid.compute_bytes == 2 else torch.float32
    vision, under_way = config.vision, min(parallel.pipeline, laid.micro_batches)
    rows, columns = vision.grid(vision.image_size, vision.image_size)
    dealt = parallel.tensor * parallel.context if parallel.tower == "dealt" else 1
    tiles = max(1, -(-work.tiles // dealt))
    seen = _stream(tiles, rows * columns + vision.prefix_tokens, vision.dim, dtype=dtype, reaches=True)
    features = _stream(tiles, rows * columns, config.projector.input_dim, dtype=dtype, reaches=trained["vision_tower"])
    attend = _AttendFlash(sum(work.documents) // parallel.context)
    rope = rope_table(config.language.rope, attend.positions, head_dim=config.language.head_dim, dtype=dtype)
    stream = _stream(len(attend.positions), config.language.dim, dtype=dtype, reaches=True)
    with META:
        tower_layer = VisionLayer(vision).to(dtype).requires_grad_(trained["vision_tower"])
        projector = Projector(config.projector).to(dtype).requires_grad_(trained["projector"])
        layer = DecoderLayer(_own_sizes(config.language, parallel.tensor), 0).to(dtype)
        layer.requires_grad_(trained["language_model"])
    tower = _layered(
        kept_bytes(tower_layer, seen) if trained["vision_tower"] else 0,
        inputs=seen.untyped_storage().nbytes(), layers=vision.num_layers,
        every=parallel.recompute.get("vision_tower", 0),
    )  # fmt: skip
    language = _layered(
        kept_bytes(layer, stream, rope, attend, shared=rope) if any(trained.values()) else 0,
        inputs=stream.untyped_storage().nbytes(), layers=-(-config.language.num_layers // parallel.pipeline),
        every=parallel.recompute.get("language_model", 0),
    )  # fmt: skip
    return {
        "vision_tower": tower,
        "projector": kept_bytes(projector, features, rows=rows, columns=columns),
        "language_model": language * max(1, under_way),
    }


def _own_sizes(config: DecoderConfig, ranks: int) -> DecoderConfig:
    """A layer as one of several ranks has it that share its matrices."""
    heads = max(1, config.num_heads // ranks), max(1, config.num_kv_heads // ranks)
    return replace(config, num_heads=heads[0], num_kv_heads=heads[1], mlp_dim=config.mlp_dim // ranks)


def _layered(layer: int, *, inputs: int, layers: int, every: int) -> int:
    """Bytes of equal layers; those that are computed again keep what goes in, and one of them is at work."""
    if not every or not layer:
        return layers * layer
    again = -(-layers // every)
    return (layers - again) * layer + again * inputs + layer


class _AttendFlash:
    """What a kernel for attention keeps: queries, keys, values, what was gathered, a sum for each row; no scores."""

    def __init__(self, tokens: int) -> None:
        self.positions = torch.empty(max(1, tokens), dtype=torch.int64, device=META)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, window: int | None) -> Tensor:
        del window
        gathered: Tensor = _Gathered.apply(query, key, value)  # type: ignore[no-untyped-call]
        return gathered

    def at(self, layer: int) -> _AttendFlash:
        del layer
        return self


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        gathered = torch.empty_like(query)
        context.save_for_backward(query, key, value, gathered, query.new_empty(query.shape[:-1], dtype=torch.float32))
        return gathered


class _Kept:
    """Adds up what autograd keeps; a tensor that is kept twice, or lies within another, counts once."""

    def __init__(self, apart: Iterable[Tensor]) -> None:
        self._apart = {_identity(tensor) for tensor in apart}
        self._seen: dict[int, Any] = {}

    def pack(self, tensor: Tensor) -> Tensor:
        """Take note of a tensor that is kept."""
        if _identity(tensor) not in self._apart:
            self._seen[_identity(tensor)] = tensor.untyped_storage()
        return tensor

    @property
    def bytes(self) -> int:
        """All that is kept."""
        return sum(storage.nbytes() for storage in self._seen.values())


def kept_bytes(module: nn.Module, *inputs: Any, shared: Iterable[Tensor] = (), **named: Any) -> int:
    """Bytes that a module keeps for its gradients, without its parameters and what is ``shared``."""
    kept = _Kept([*module.parameters(), *shared])
    with torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda tensor: tensor):
        module(*inputs, **named)
    return kept.bytes


def _identity(tensor: Tensor) -> int:
    """What tells the memory of a tensor from that of others, also where there is none behind it."""
    return int(tensor.untyped_storage()._cdata)


def _stream(*shape: int, dtype: torch.dtype, reaches: bool) -> Tensor:
    return torch.empty(*shape, device=META, dtype=dtype, requires_grad=reaches)
