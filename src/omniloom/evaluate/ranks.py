"""How the ranks of a job share the items of a benchmark: groups of ranks with one model each answer different ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import distributed

from omniloom.model.llava import Llava
from omniloom.parallel.config import ParallelConfig
from omniloom.parallel.layout import lay_out
from omniloom.parallel.tensor import cut_tensors


@dataclass(frozen=True, kw_only=True)
class Share:
    """What this rank does.

    Attributes:
        number: of its share of the items, from 0.
        shares: how many there are.
        writes: whether it writes its share's answers; one rank of each does.
        several: whether there are other ranks at all.
    """

    number: int = 0
    shares: int = 1
    writes: bool = True
    several: bool = False

    @property
    def first(self) -> bool:
        """Whether this is the rank that takes care of the file, and speaks."""
        return self.number == 0 and self.writes

    def from_first(self, value: Any) -> Any:
        """What the first rank gave; all ranks call it, and wait for each other."""
        if not self.several:
            return value
        told = [value]
        distributed.broadcast_object_list(told, src=0)
        return told[0]

    def from_all(self, value: Any) -> list[Any]:
        """What each share's writer gave, by share; all ranks call it."""
        if not self.several:
            return [value]
        told: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(told, (self.number, self.writes, value))
        return [given for _, writes, given in sorted(told, key=lambda one: one[:2]) if writes]


def share_of_rank(*, tensor: int, device: str) -> tuple[Share, Callable[[Llava], None] | None]:
    """What this rank does of a job, and what cuts a model for it: over `tensor` neighbours, with copies on the rest.

    Args:
        tensor: ranks that share one model.
        device: kind of the ranks' devices.

    Returns:
        The share; and a function that cuts a model, with values or on ``meta``, or ``None`` where each rank has all.

    Raises:
        ConfigError: the ranks cannot be divided so.
    """
    ranks = lay_out(ParallelConfig(tensor=tensor), device=device)
    share = Share(
        number=ranks.data_rank, shares=ranks.data_ranks, writes=ranks.loads, several=distributed.is_initialized()
    )
    return share, None if ranks.tensor_mesh is None else partial(cut_tensors, mesh=ranks.tensor_mesh)
