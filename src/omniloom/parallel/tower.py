"""Tiles dealt over the ranks that are given the same batches: each rank's tower sees some, and all get all features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, distributed
from torch.nn import functional

from omniloom.model.llava import Llava
from omniloom.model.vision import VisionTower
from omniloom.parallel.collectives import Group, gather_rows, join_rows
from omniloom.parallel.sequence import replace_method


def deal_tiles(model: Llava, *, tensor: Group | None, context: Group | None) -> None:
    """Let a model see its share of the tiles only. Gradients of tower and projector are then those of the share.

    Ranks of ``context`` are summed over where parameters are sharded; `cut_tensors` sums over those of ``tensor``.

    Args:
        model: whose tower and projector each rank has whole, or sharded.
        tensor: ranks that share the matrices: their gradients of all features are equal.
        context: ranks that share the tokens: each has the gradients of its own.
    """
    see: Callable[[Sequence[Tensor]], Tensor] = model.image_features

    def image_features(images: Sequence[Tensor]) -> Float[Tensor, "features dim"]:
        return torch.cat([features_of(tiles) for tiles in images])

    def features_of(tiles: Tensor) -> Float[Tensor, "features dim"]:
        rank, ranks = _place(context, tensor)
        each = -(-len(tiles) // ranks)
        # Black tiles make the shares equal; nothing is done with their features.
        filled = functional.pad(tiles, (0, 0) * (tiles.dim() - 1) + (0, each * ranks - len(tiles)))
        features = see([filled[rank * each : (rank + 1) * each]])
        of_a_tile = len(features) // each
        features = features if tensor is None else join_rows(features, tensor)
        features = features if context is None else gather_rows(features, context)
        return features[: len(tiles) * of_a_tile]

    replace_method(model, "image_features", image_features)


def share_gradients(tower: VisionTower, *, ranks: int) -> None:
    """Give each of some ranks that see the same tiles its share of the tower's gradients: they are summed over them.

    Args:
        tower: whose parameters are cut over these ranks, or are on each of them.
        ranks: how many they are.
    """
    see = tower.forward

    def forward(images: Tensor, **settings: Any) -> Tensor:
        features = see(images, **settings)
        if features.requires_grad:
            # The sums of gradients could be divided instead, but torch does that twice where a shard is the whole.
            features.register_hook(lambda gradient: gradient / ranks)  # type: ignore[no-untyped-call]
        return features

    if ranks > 1:
        replace_method(tower, "forward", forward)


def _place(context: Group | None, tensor: Group | None) -> tuple[int, int]:
    """Number of this rank among the ranks of both groups, and how many they are."""
    rank, ranks = 0, 1
    for group in (context, tensor):
        if group is not None:
            size = distributed.get_world_size(group)
            rank, ranks = rank * size + distributed.get_rank(group), ranks * size
    return rank, ranks
