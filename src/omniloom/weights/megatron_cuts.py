"""Where Megatron's tensor parallelism cuts a tensor, and which pipeline stage it lies on: tables over names.

| cut | tensors | why |
|---|---|---|
| rows | qkv, fc1, embedding, head, RADIO's patches, a projector of one map | each rank computes some outputs |
| rows of both halves | fc1 of a gated MLP | each rank holds ``[its gate rows; its up rows]`` |
| columns | attention output, fc2 | each rank adds its share of the sum |
| none | everything else | each rank holds all of it |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

import torch
from torch import Tensor

from omniloom.errors import WeightsError

Part = Literal["language", "vision", "projection"]


@dataclass(frozen=True)
class Cut:
    """How a tensor is dealt to tensor-parallel ranks.

    Attributes:
        axis: along which it is cut; ``None`` leaves every rank the whole of it.
        pieces: equal pieces that are each cut on their own: 2 for gate and up of a gated MLP.
    """

    axis: int | None = None
    pieces: int = 1

    def fits(self, shape: Sequence[int], ranks: int) -> bool:
        """Whether a tensor can be dealt to so many ranks in equal slices."""
        return self.axis is None or (len(shape) > self.axis and shape[self.axis] % (self.pieces * ranks) == 0)

    def shape_of_slice(self, shape: Sequence[int], ranks: int) -> tuple[int, ...]:
        """Shape of each rank's slice."""
        slice_shape = list(shape)
        if self.axis is not None:
            slice_shape[self.axis] //= ranks
        return tuple(slice_shape)

    def shape_of_whole(self, shape: Sequence[int], ranks: int) -> tuple[int, ...]:
        """Shape of the tensor out of that of a slice."""
        whole = list(shape)
        if self.axis is not None:
            whole[self.axis] *= ranks
        return tuple(whole)

    def slice_of(self, whole: Tensor, *, rank: int, ranks: int) -> Tensor:
        """The slice of one rank; a view where its numbers lie together."""
        if self.axis is None or ranks == 1:
            return whole
        if self.pieces == 1:
            return whole.chunk(ranks, dim=self.axis)[rank]
        own = [piece.chunk(ranks, dim=self.axis)[rank] for piece in whole.chunk(self.pieces, dim=self.axis)]
        return torch.cat(own, dim=self.axis)

    def merge(self, slices: Sequence[Tensor]) -> Tensor:
        """The whole tensor out of the slices of all ranks.

        Raises:
            WeightsError: a tensor that all ranks hold whole is not the same everywhere.
        """
        if self.axis is None:
            first = slices[0]
            for rank, other in enumerate(slices[1:], start=1):
                if not torch.equal(first, other):
                    raise WeightsError(f"differs between tensor-parallel rank 0 and rank {rank}, which should be equal")
            return first
        if len(slices) == 1:
            return slices[0]
        by_piece = [one.chunk(self.pieces, dim=self.axis) for one in slices]
        return torch.cat([pieces[number] for number in range(self.pieces) for pieces in by_piece], dim=self.axis)


WHOLE = Cut()
ROWS = Cut(0)
COLUMNS = Cut(1)
GATED_ROWS = Cut(0, pieces=2)

# The first pattern that fits a name counts. Names are those within a part, without its prefix.
CUTS: dict[Part, tuple[tuple[str, Cut], ...]] = {
    "language": (
        ("embedding.word_embeddings.weight", ROWS),
        ("output_layer.weight", ROWS),
        ("*.linear_qkv.weight", ROWS),
        ("*.linear_qkv.bias", ROWS),
        ("*.linear_proj.weight", COLUMNS),
        ("*.linear_fc1.weight", GATED_ROWS),
        ("*.linear_fc1.bias", GATED_ROWS),
        ("*.linear_fc2.weight", COLUMNS),
    ),
    "vision": (
        ("embedder.weight", ROWS),
        ("embedder.bias", ROWS),
        ("*.linear_qkv.weight", ROWS),
        ("*.linear_qkv.bias", ROWS),
        ("*.self_attention.q_layernorm.weight", ROWS),  # over all heads together, unlike a language model's
        ("*.self_attention.k_layernorm.weight", ROWS),
        ("*.linear_proj.weight", COLUMNS),
        ("*.linear_fc1.weight", ROWS),
        ("*.linear_fc1.bias", ROWS),
        ("*.linear_fc2.weight", COLUMNS),
    ),
    "projection": (
        ("encoder.weight", ROWS),
        ("encoder.bias", ROWS),
        ("encoder.linear_fc1.weight", ROWS),
        ("encoder.linear_fc1.bias", ROWS),
        ("encoder.linear_fc2.weight", COLUMNS),
    ),
}
PREFIXES: dict[str, Part] = {
    "language_model.": "language",
    "vision_model.": "vision",
    "vision_projection.": "projection",
}
_LAYER = re.compile(r"^(.*?decoder\.layers\.)(\d+)(\..*)$")


def part_of(name: str, *, alone: Part) -> tuple[Part, str]:
    """Which part of a model a name belongs to, and the name within it.

    Args:
        name: as in a checkpoint.
        alone: the part that names without a prefix belong to.
    """
    for prefix, part in PREFIXES.items():
        if name.startswith(prefix):
            return part, name.removeprefix(prefix)
    return alone, name


def cut_of(name: str, *, alone: Part, gated_vision: bool = False, gated_language: bool = True) -> Cut:
    """Where a tensor is cut.

    Args:
        name: as in a checkpoint.
        alone: the part that names without a prefix belong to.
        gated_vision: whether the tower's MLP is gated.
        gated_language: whether the language model's MLP is gated.
    """
    part, inner = part_of(name, alone=alone)
    gated = {"language": gated_language, "vision": gated_vision, "projection": False}[part]
    for pattern, cut in CUTS[part]:
        if fnmatchcase(inner, pattern):
            if "linear_fc1" in pattern:
                return GATED_ROWS if gated else ROWS
            return cut
    return WHOLE


def split_layer(name: str) -> tuple[str, int, str] | None:
    """A layer's tensor as what stands before its number, the number, and what follows; ``None`` for others."""
    found = _LAYER.match(name)
    return None if found is None else (found[1], int(found[2]), found[3])


def layers_of_stages(num_layers: int, *, stages: int, sizes: Sequence[int] | None = None) -> tuple[range, ...]:
    """Which layers each pipeline stage holds.

    Args:
        num_layers: layers of the language model.
        stages: number of stages.
        sizes: layers of each stage, where they are not equal.

    Raises:
        WeightsError: the layers do not divide among the stages, or the given numbers do not add up.
    """
    if sizes is None:
        if num_layers % stages:
            raise WeightsError(
                f"{num_layers} layers do not divide among {stages} pipeline stages. Say how many each stage holds with "
                "`--num-layers-per-pp-rank`."
            )
        sizes = [num_layers // stages] * stages
    if len(sizes) != stages or sum(sizes) != num_layers or min(sizes) < 0:
        raise WeightsError(f"{list(sizes)} layers on {stages} pipeline stages do not make {num_layers} layers")
    ends = [sum(sizes[: stage + 1]) for stage in range(stages)]
    return tuple(range(end - size, end) for end, size in zip(ends, sizes, strict=True))


def place_on_stages(name: str, *, alone: Part, stages: Sequence[range], tied: bool) -> list[tuple[int, str]]:
    """On which pipeline stages a tensor lies, and what it is called there.

    Args:
        name: as in a checkpoint with one stage.
        alone: the part that names without a prefix belong to.
        stages: layers of each stage.
        tied: whether the head is the embedding, of which the last stage then needs a copy.
    """
    part, inner = part_of(name, alone=alone)
    prefix = name.removesuffix(inner)
    last = len(stages) - 1
    if part != "language":
        return [(0, name)]
    layer = split_layer(inner)
    if layer is not None:
        before, number, after = layer
        stage = next(stage for stage, layers in enumerate(stages) if number in layers)
        return [(stage, f"{prefix}{before}{number - stages[stage].start}{after}")]
    if inner.startswith("embedding."):
        copy = [(last, f"{prefix}output_layer.weight")] if tied and last else []
        return [(0, name), *copy]
    return [(last, name)]
