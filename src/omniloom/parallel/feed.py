"""One loader for all ranks of a tensor-parallel group: its first rank loads, the others are sent each batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed

from omniloom.errors import OmniloomError

FIELDS = ("input_ids", "labels", "document_lengths", "image_positions", "shown_tiles", "images")
_DTYPES = (torch.int64, torch.int32, torch.uint8, torch.float32, torch.bfloat16, torch.float16)
_MOST_DIMS = 4
_BATCH, _END, _FAILED = 0, 1, 2
_FOLLOWS = "follows"


class FeedError(OmniloomError, RuntimeError):
    """The rank that loads for others could not."""


@dataclass(frozen=True)
class SentBatch:
    """A packed batch as it came from the first rank; see `omniloom.train.batches.PackedBatch`."""

    input_ids: Tensor
    labels: Tensor
    document_lengths: Tensor
    image_positions: Tensor
    shown_tiles: Tensor
    images: Tensor


class GroupLoader:
    """The batches of a loader on all ranks of a group: numbers that tell sizes, then all tensors in one broadcast.

    Args:
        loader: of the first rank of the group; others give ``None``.
        group: the ranks that are given the same; ``None``: this process alone.
        device: where the group's broadcasts take place.
    """

    def __init__(self, loader: Any, *, group: distributed.ProcessGroup | None, device: torch.device) -> None:
        self._loader, self._group, self._device = loader, group, device

    def __iter__(self) -> Iterator[Any]:
        if self._group is None:
            yield from self._loader
        elif self._loader is None:
            yield from iter(self._receive, None)
        else:
            yield from self._sent(self._group)

    def save_state_rank(self) -> dict[str, Any]:
        """The loader's state; on the other ranks of a group, that they have none."""
        state: dict[str, Any] = {_FOLLOWS: True} if self._loader is None else self._loader.save_state_rank()
        return state

    def restore_state_rank(self, states: list[dict[str, Any]]) -> None:
        """Put the loader in the place that ranks saved, whatever the groups of these were."""
        if self._loader is not None:
            self._loader.restore_state_rank([state for state in states if not state.get(_FOLLOWS)])

    def close(self) -> None:
        """Close the loader, where there is one."""
        if self._loader is not None and hasattr(self._loader, "close"):
            self._loader.close()

    def _sent(self, group: distributed.ProcessGroup) -> Iterator[Any]:
        batches = iter(self._loader)
        while True:
            try:
                batch = next(batches, None)
            except BaseException:
                self._broadcast(_header(_FAILED, []), group)
                raise
            if batch is None:
                self._broadcast(_header(_END, []), group)
                return
            tensors = [getattr(batch, name).contiguous() for name in FIELDS]
            self._broadcast(_header(_BATCH, tensors), group)
            self._broadcast(torch.cat([each.flatten().view(torch.uint8) for each in tensors]), group)
            yield batch

    def _receive(self) -> SentBatch | None:
        """A batch, or ``None`` at the end. Raises FeedError where the first rank could not load."""
        group = self._group
        status, *told = self._broadcast(_header(_BATCH, []), group).tolist()
        if status == _FAILED:
            raise FeedError(
                "the first rank of this tensor-parallel group could not load a batch; its own error says why."
            )
        if status == _END:
            return None
        width = 2 + _MOST_DIMS
        kinds = [_DTYPES[told[place]] for place in range(0, len(told), width)]
        shapes = [told[place + 2 : place + 2 + told[place + 1]] for place in range(0, len(told), width)]
        sizes = [torch.Size(shape).numel() * kind.itemsize for kind, shape in zip(kinds, shapes, strict=True)]
        payload = self._broadcast(torch.empty(sum(sizes), dtype=torch.uint8), group)
        parts = torch.split(payload, sizes)
        # A copy each: a view of another type has to begin at a multiple of its size.
        return SentBatch(
            *(part.clone().view(kind).reshape(shape) for part, kind, shape in zip(parts, kinds, shapes, strict=True))
        )

    def _broadcast(self, tensor: Tensor, group: distributed.ProcessGroup | None) -> Tensor:
        """The first rank's tensor, on the host."""
        there = tensor.to(self._device)
        first = distributed.get_process_group_ranks(group)[0]
        distributed.broadcast(there, src=first, group=group)
        return there.cpu()


def _header(status: int, tensors: list[Tensor]) -> Tensor:
    """A status, then of each field: number of its dtype, of its dimensions, and four sizes; int64."""
    numbers = [status]
    for tensor in tensors or [torch.empty(0)] * len(FIELDS):
        shape = list(tensor.shape)
        numbers += [_DTYPES.index(tensor.dtype), len(shape), *shape, *[0] * (_MOST_DIMS - len(shape))]
    return torch.tensor(numbers, dtype=torch.int64)
