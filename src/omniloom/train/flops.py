"""How many floating-point operations a model takes for a batch: two for each product and its sum.

Counted is what the model asks for: matrices and attention, forward, and backward where gradients go. What is computed
again for its gradients is not counted twice, and attention counts the pairs that see each other, so a share of the
device's peak made of it is the usual MFU. Norms, activations and the optimizer are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise

from omniloom.model.config import DecoderConfig, LlavaConfig, VisionConfig

_FORWARD = 1
_TO_INPUTS = 1  # the gradient by what went in costs as much as the forward pass
_TO_WEIGHTS = 1  # and so does the gradient by the weights


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a batch holds.

    Attributes:
        documents: lengths in tokens, image features and all.
        learned_tokens: those that are scored.
        tiles: images of the tower's size.
        tiles_seen_before: tiles whose features were made beforehand: the tower has no work with them.
    """

    documents: tuple[int, ...]
    learned_tokens: int
    tiles: int
    tiles_seen_before: int = 0


def training_flops(config: LlavaConfig, work: Work, *, trained: Collection[str]) -> int:
    """Operations of a step on a batch, forward and backward.

    Args:
        config: of the model.
        work: what the batch holds.
        trained: parts that are trained, such as ``projector``; gradients go through what lies above them.
    """
    tower, projector, language = (name in trained for name in ("vision_tower", "projector", "language_model"))
    passes_language = _FORWARD + _TO_INPUTS * (tower or projector or language)
    passes_tower = _FORWARD + (_TO_INPUTS + _TO_WEIGHTS) * tower
    of_language = language_matrices(config.language) * sum(work.documents) * (passes_language + _TO_WEIGHTS * language)
    of_language += head_matrix(config.language) * work.learned_tokens * (passes_language + _TO_WEIGHTS * language)
    of_language += causal_attention(config.language, work.documents) * (2 * passes_language - _FORWARD)
    of_tower = tower_forward(config) * work.tiles * passes_tower
    first, *others = projector_forward(config)
    of_projector = first * (_FORWARD + _TO_INPUTS * tower + _TO_WEIGHTS * projector)
    of_projector += sum(others) * (_FORWARD + _TO_INPUTS * (tower or projector) + _TO_WEIGHTS * projector)
    return of_language + of_tower + of_projector * (work.tiles + work.tiles_seen_before)


def language_matrices(config: DecoderConfig) -> int:
    """Operations of a token in the matrices of all layers, forward."""
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    attention = config.dim * (2 * heads + 2 * kv_heads)
    return 2 * config.num_layers * (attention + 3 * config.dim * config.mlp_dim)


def head_matrix(config: DecoderConfig) -> int:
    """Operations of a scored token in the head, forward."""
    return 2 * config.dim * config.vocab_size


def causal_attention(config: DecoderConfig, documents: Iterable[int]) -> int:
    """Operations of attention within documents, forward: scores and their weighted sum, over pairs that are seen."""
    width = config.num_heads * config.head_dim
    windows = [config.window_of(layer) for layer in range(config.num_layers)]
    return sum(4 * width * _pairs(length, window) for length in documents for window in windows)


def tower_forward(config: LlavaConfig) -> int:
    """Operations of a tile in the tower up to the last layer that features are taken of, forward."""
    vision = config.vision
    rows, columns = vision.grid(vision.image_size, vision.image_size)
    tokens = rows * columns + vision.prefix_tokens
    last = max(layer if layer >= 0 else vision.num_layers + 1 + layer for layer in config.feature_layers)
    mlp = (3 if vision.gated_mlp else 2) * vision.dim * vision.mlp_dim
    layer = 2 * tokens * (4 * vision.dim**2 + mlp) + 4 * vision.dim * tokens**2
    return _patches(vision, rows * columns) + last * layer


def projector_forward(config: LlavaConfig) -> list[int]:
    """Operations of a tile in each matrix of the projector, forward."""
    side = config.vision.image_size
    widths = (config.projector.reduced_dim, *config.projector.hidden_dims, config.projector.output_dim)
    return [2 * before * after * config.image_tokens(side, side) for before, after in pairwise(widths)]


def _patches(vision: VisionConfig, patches: int) -> int:
    return 2 * 3 * vision.patch_size**2 * vision.dim * patches


def _pairs(length: int, window: int | None) -> int:
    """Pairs of a token and one that it sees."""
    seen = length if window is None else min(length, window)
    return seen * (seen + 1) // 2 + (length - seen) * seen
