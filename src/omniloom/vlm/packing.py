"""Which samples share a sequence."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omniloom.data.pipeline.best_fit import BestFitPacker, Cost
from omniloom.data.pipeline.selection import Selection


def best_fit(lengths: Sequence[int], *, capacity: int) -> list[list[int]]:
    """Packs by greedy best fit: the longest sample that still fits, again and again.

    Megatron's rule, with the same packs in the same order.

    Args:
        lengths: length of each sample.
        capacity: length of a pack at most. A sample that is longer gets a pack of its own; truncation has to see to it
            that there is none.

    Returns:
        Positions of samples in each pack.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    left = [lengths[position] for position in order]
    packs: list[list[int]] = []
    while order:
        pack: list[int] = []
        room = capacity
        while True:
            index = bisect_right(left, room) - 1
            if index < 0:
                break
            room -= left.pop(index)
            pack.append(order.pop(index))
        if not pack:
            left.pop()
            pack.append(order.pop())
        packs.append(pack)
    return packs


@dataclass(frozen=True)
class MegatronPacker(BestFitPacker):
    """Packs a whole window by `best_fit`, as Megatron's encoder does: nothing waits for the next window."""

    def select(self, samples: Sequence[Any], costs: Sequence[Cost | Exception], *, last: bool = False) -> Selection:
        """Sort out a window. Arguments as for `BestFitPacker.select`."""
        name = self.names[0]
        capacity = self.capacity if isinstance(self.capacity, int) else self.capacity[name]
        lengths = {}
        failed: list[tuple[Any, Exception]] = []
        for position, cost in enumerate(costs):
            if isinstance(cost, Exception):
                failed.append((samples[position], cost))
            else:
                lengths[position] = cost if isinstance(cost, int) else cost[name]
        fitting = [position for position, length in lengths.items() if length <= capacity]
        packs = best_fit([lengths[position] for position in fitting], capacity=capacity)
        oversize = [samples[position] for position in lengths if lengths[position] > capacity]
        return Selection(
            [[samples[fitting[index]] for index in pack] for pack in packs],
            left_out={"oversize": oversize} if oversize else {},
            failed=failed,
        )
