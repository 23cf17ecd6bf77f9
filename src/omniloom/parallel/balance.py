"""Equal work for all ranks: the micro-batches of a step in an order, and on ranks, such that those that come together
cost alike. Which packs a step holds stays as it is, and so does its loss.

Ranks wait for each other in every micro-batch, so a step takes as long as the costliest of each round, added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed

from omniloom.parallel.collectives import Group
from omniloom.parallel.wire import (
    HEADER_NUMBERS,
    SentBatch,
    bytes_told,
    header_of,
    payload_of,
    payload_size,
    tensors_of,
)

LEAST_GAIN = 0.01
"""Packs stay where they are unless the step becomes shorter by this share."""


class Place(NamedTuple):
    """Where a pack is: which rank has it, and as which of its packs."""

    rank: int
    number: int


def imbalance(costs: Sequence[Sequence[float]]) -> float:
    """How much longer a step takes than it would with equal costs; 1 is the best there is.

    Args:
        costs: by rank, of its packs in the order of rounds.
    """
    together = sum(map(sum, costs)) / len(costs)
    return sum(map(max, zip(*costs, strict=True))) / together if together else 1.0


def in_order_of_cost(costs: Sequence[Sequence[float]]) -> list[list[Place]]:
    """The packs of each rank by falling cost: the least that rounds can take while packs stay on their ranks."""
    return [
        [Place(rank, number) for number in sorted(range(len(own)), key=lambda number: (-own[number], number))]
        for rank, own in enumerate(costs)
    ]


def dealt_over_ranks(costs: Sequence[Sequence[float]]) -> list[list[Place]]:
    """The packs of all ranks by falling cost, a round at a time; in a round the costliest goes where least has gone.

    A pack that costs what its neighbour in the round does stays on its own rank where that is one of the two.
    """
    ranks = len(costs)
    every = [Place(rank, number) for rank, own in enumerate(costs) for number in range(len(own))]
    every.sort(key=lambda place: (-costs[place.rank][place.number], place.number, place.rank))
    dealt: list[list[Place]] = [[] for _ in range(ranks)]
    totals = [0.0] * ranks
    for first in range(0, len(every), ranks):
        takers = sorted(range(ranks), key=lambda rank: (totals[rank], rank))
        chosen = dict(zip(takers, every[first : first + ranks], strict=True))
        _stay_where_it_costs_nothing(chosen, costs)
        for rank, place in chosen.items():
            dealt[rank].append(place)
            totals[rank] += costs[place.rank][place.number]
    return dealt


def _stay_where_it_costs_nothing(chosen: dict[int, Place], costs: Sequence[Sequence[float]]) -> None:
    for rank in list(chosen):
        place = chosen[rank]
        other = chosen[place.rank]
        if costs[place.rank][place.number] == costs[other.rank][other.number]:
            chosen[rank], chosen[place.rank] = other, chosen[rank]


class BalancedLoader:
    """The packs of a loader, a step at a time, in an order that lets ranks wait less. It goes on for ever.

    Args:
        loader: of this rank; where a pass ends, the next begins.
        micro_batches: packs of each rank in a step.
        cost: of a pack, in any unit; equal on all ranks for equal packs.
        group: the ranks that load.
        across_ranks: packs are exchanged as well.

    Attributes:
        told: of the last step: ``imbalance_before`` and ``imbalance_after``, and ``exchanged_bytes`` over all ranks.
    """

    def __init__(
        self, loader: Any, *, micro_batches: int, cost: Callable[[Any], float], group: Group, across_ranks: bool
    ) -> None:
        self._loader, self._count, self._cost = loader, micro_batches, cost
        self._group, self._across = group, across_ranks
        self.told: Mapping[str, float] = {}

    def __iter__(self) -> Iterator[Any]:
        batches = self._for_ever()
        while True:
            step = list(islice(batches, self._count))
            if len(step) < self._count:
                return
            yield from self._balanced(step)

    def save_state_rank(self) -> Any:
        """The loader's state."""
        return self._loader.save_state_rank()

    def restore_state_rank(self, states: Any) -> None:
        """Put the loader in a saved place."""
        self._loader.restore_state_rank(states)

    def close(self) -> None:
        """Close the loader, where it can be closed."""
        if hasattr(self._loader, "close"):
            self._loader.close()

    def _for_ever(self) -> Iterator[Any]:
        while True:
            empty = True
            for batch in self._loader:
                empty = False
                yield batch
            if empty:
                return

    def _balanced(self, step: list[Any]) -> list[Any]:
        rank, ranks = distributed.get_rank(self._group), distributed.get_world_size(self._group)
        own = [[self._cost(batch), float(payload_size(batch))] for batch in step]
        every = torch.empty(ranks, self._count, 2, dtype=torch.float64)
        distributed.all_gather(list(every.unbind()), torch.tensor(own, dtype=torch.float64), group=self._group)
        costs: list[list[float]] = every[..., 0].tolist()
        before, order = imbalance(costs), in_order_of_cost(costs)
        after = imbalance(_by(order, costs))
        moved = 0.0
        if self._across:
            dealt = dealt_over_ranks(costs)
            shorter = imbalance(_by(dealt, costs))
            if shorter < after * (1 - LEAST_GAIN):
                order, after = dealt, shorter
                sizes: list[list[float]] = every[..., 1].tolist()
                moved = sum(
                    sizes[place.rank][place.number]
                    for to, places in enumerate(order)
                    for place in places
                    if place.rank != to
                )
        self.told = {"imbalance_before": before, "imbalance_after": after, "exchanged_bytes": int(moved)}
        if moved:
            return exchanged(step, order, group=self._group)
        return [step[place.number] for place in order[rank]]


def exchanged(step: Sequence[Any], order: Sequence[Sequence[Place]], *, group: Group) -> list[Any]:
    """The packs that an order gives this rank; what it has not comes from the ranks that have it. All ranks call it."""
    rank, ranks = distributed.get_rank(group), distributed.get_world_size(group)
    leaving = [[place.number for place in order[to] if place.rank == rank and to != rank] for to in range(ranks)]
    coming = [[place for place in order[rank] if place.rank == source and source != rank] for source in range(ranks)]
    headers = [header_of(tensors_of(step[number])) for numbers in leaving for number in numbers]
    payloads = [payload_of(tensors_of(step[number])) for numbers in leaving for number in numbers]
    told = _sent(
        torch.cat([torch.zeros(0, dtype=torch.int64), *headers]),
        [len(numbers) * HEADER_NUMBERS for numbers in leaving],
        [len(places) * HEADER_NUMBERS for places in coming],
        group,
    ).view(-1, HEADER_NUMBERS)
    sizes = [bytes_told(header) for header in told]
    arriving = iter(sizes)
    came_sizes = [sum(next(arriving) for _ in places) for places in coming]
    leaving_sizes = [sum(payload_size(step[number]) for number in numbers) for numbers in leaving]
    payload = _sent(torch.cat([torch.zeros(0, dtype=torch.uint8), *payloads]), leaving_sizes, came_sizes, group)
    parts = torch.split(payload, sizes)
    came = dict(zip((place for places in coming for place in places), zip(told, parts, strict=True), strict=True))
    return [step[place.number] if place.rank == rank else SentBatch.of(*came[place]) for place in order[rank]]


def _sent(given: Tensor, leaving: list[int], coming: list[int], group: Group) -> Tensor:
    arrived = given.new_empty(sum(coming))
    distributed.all_to_all_single(arrived, given, coming, leaving, group=group)
    return arrived


def _by(order: Sequence[Sequence[Place]], costs: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[costs[place.rank][place.number] for place in places] for places in order]
