"""One loader for all ranks of a group: its first rank loads, the others are sent each batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, distributed

from omniloom.errors import OmniloomError
from omniloom.parallel.wire import HEADER_NUMBERS, SentBatch, bytes_told, header_of, payload_of, tensors_of

_BATCH, _END, _FAILED = 0, 1, 2
_FOLLOWS = "follows"


class FeedError(OmniloomError, RuntimeError):
    """The rank that loads for others could not."""


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
                self._broadcast(_told(_FAILED), group)
                raise
            if batch is None:
                self._broadcast(_told(_END), group)
                return
            tensors = tensors_of(batch)
            self._broadcast(_told(_BATCH, header_of(tensors)), group)
            self._broadcast(payload_of(tensors), group)
            yield batch

    def _receive(self) -> SentBatch | None:
        """A batch, or ``None`` at the end. Raises FeedError where the first rank could not load."""
        group = self._group
        told = self._broadcast(_told(_BATCH), group)
        status, header = int(told[0]), told[1:]
        if status == _FAILED:
            raise FeedError("the first rank of this group could not load a batch; its own error says why.")
        if status == _END:
            return None
        payload = torch.empty(bytes_told(header), dtype=torch.uint8)
        return SentBatch.of(header, self._broadcast(payload, group))

    def _broadcast(self, tensor: Tensor, group: distributed.ProcessGroup | None) -> Tensor:
        """The first rank's tensor, on the host."""
        there = tensor.to(self._device)
        first = distributed.get_process_group_ranks(group)[0]
        distributed.broadcast(there, src=first, group=group)
        return there.cpu()


def _told(status: int, header: Tensor | None = None) -> Tensor:
    """A status, and the header of a batch; int64."""
    numbers = torch.zeros(HEADER_NUMBERS, dtype=torch.int64) if header is None else header
    return torch.cat([torch.tensor([status]), numbers])
