"""A packed batch as bytes and a few numbers that tell its shapes, on its way from one rank to another."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

FIELDS = ("input_ids", "labels", "document_lengths", "image_positions", "shown_tiles", "images", "document_sets")
_DTYPES = (torch.int64, torch.int32, torch.uint8, torch.float32, torch.bfloat16, torch.float16)
_MOST_DIMS = 4
_FIELD_NUMBERS = 2 + _MOST_DIMS
HEADER_NUMBERS = (len(FIELDS) + 1) * _FIELD_NUMBERS
"""Of each field, and of the seed: number of its dtype, of its dimensions, and four sizes."""


@dataclass(frozen=True)
class SentBatch:
    """A packed batch as it came from another rank; see `omniloom.train.batches.PackedBatch`."""

    input_ids: Tensor
    labels: Tensor
    document_lengths: Tensor
    image_positions: Tensor
    shown_tiles: Tensor
    images: Tensor
    document_sets: Tensor
    seed: Tensor

    @classmethod
    def of(cls, header: Tensor, payload: Tensor) -> SentBatch:
        """The batch of a header and a payload."""
        shapes = _shapes(header)
        parts = torch.split(payload, [shape.numel() * kind.itemsize for kind, shape in shapes])
        # A copy each: a view of another type has to begin at a multiple of its size.
        made = (part.clone().view(kind).reshape(shape) for part, (kind, shape) in zip(parts, shapes, strict=True))
        return cls(*made)


def tensors_of(batch: Any) -> list[Tensor]:
    """The fields of a batch, in order, and its seed."""
    return [*(getattr(batch, name).contiguous() for name in FIELDS), torch.tensor(seed_of(batch))]


def seed_of(batch: Any) -> int:
    """The seed of what is drawn while a batch is learned: from the keys of its samples, wherever that is."""
    if isinstance(batch, SentBatch):
        return int(batch.seed)
    keys = getattr(batch, "__restore_key__", ())
    return int.from_bytes(hashlib.blake2b(repr(keys).encode(), digest_size=7).digest(), "big")


def header_of(tensors: Sequence[Tensor]) -> Tensor:
    """What tells the shapes; int64, `HEADER_NUMBERS`."""
    numbers: list[int] = []
    for tensor in tensors:
        shape = list(tensor.shape)
        numbers += [_DTYPES.index(tensor.dtype), len(shape), *shape, *[0] * (_MOST_DIMS - len(shape))]
    return torch.tensor(numbers, dtype=torch.int64)


def payload_of(tensors: Sequence[Tensor]) -> Tensor:
    """All bytes, one field's after another's; uint8."""
    return torch.cat([each.flatten().view(torch.uint8) for each in tensors])


def bytes_told(header: Tensor) -> int:
    """Bytes of the payload of a header."""
    return sum(shape.numel() * kind.itemsize for kind, shape in _shapes(header))


def payload_size(batch: Any) -> int:
    """Bytes of the payload of a batch."""
    sizes: list[int] = [getattr(batch, name).nbytes for name in FIELDS]
    return sum(sizes) + torch.int64.itemsize  # that of the seed


def _shapes(header: Tensor) -> list[tuple[torch.dtype, torch.Size]]:
    told = header.view(-1, _FIELD_NUMBERS).tolist()
    return [(_DTYPES[kind], torch.Size(sizes[:dims])) for kind, dims, *sizes in told]
