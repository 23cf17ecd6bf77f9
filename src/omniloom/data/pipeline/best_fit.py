"""A packer for those who write none: fills packs as full as their capacities allow, sample by sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omniloom.data.pipeline.selection import Selection
from omniloom.errors import ConfigError, SampleError

Cost = int | Mapping[str, int]
"""What a sample takes of each capacity; a bare number is of the first one."""

_GREEDY_TRIES = 8


@dataclass(frozen=True)
class BestFitPacker:
    """Chooses packs out of a window of samples.

    The sample that has waited longest starts a pack. Of those that came next, the set is added that fills the first
    capacity best (an exact subset sum over ``reach`` samples, long ones first, so that short ones are left to close
    gaps). Where that set would break another capacity, the best of some greedy fillings is taken instead.

    Samples are chosen only while there is enough to choose from; the rest wait for the next window, first in line.
    So packs are full, and no sample waits longer than the samples before it last.

    Attributes:
        capacity: name to the most that a pack may hold, such as ``{"tokens": 4096, "images": 16}``; the first one is
            filled. A bare number is one of ``tokens``.
        reach: samples that are looked at for a pack.
        spare: packs' worth of samples that are kept to choose from.
    """

    capacity: int | Mapping[str, int]
    reach: int = 64
    spare: int = 4

    def __post_init__(self) -> None:
        capacity = {"tokens": self.capacity} if isinstance(self.capacity, int) else dict(self.capacity)
        if not capacity or any(not isinstance(most, int) or most < 1 for most in capacity.values()):
            raise ConfigError(
                f"BestFitPacker: capacity {self.capacity!r} found; names with numbers of 1 or more expected"
            )
        if self.reach < 1 or self.spare < 0:
            raise ConfigError(f"BestFitPacker: reach {self.reach}, spare {self.spare} found; at least 1 and 0 expected")
        object.__setattr__(self, "capacity", capacity)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the capacities; the first one is filled."""
        return tuple(self._capacities)

    def __str__(self) -> str:
        capacities = ", ".join(f"{name} {most}" for name, most in self._capacities.items())
        return f"best fit of {capacities}; reach {self.reach}, spare {self.spare}"

    @property
    def _capacities(self) -> Mapping[str, int]:
        return self.capacity  # type: ignore[return-value]

    def select(self, samples: Sequence[Any], costs: Sequence[Cost | Exception], *, last: bool = False) -> Selection:
        """Sort out a window.

        Args:
            samples: the window; those that have waited longest come first.
            costs: what each of them takes; in place of a cost, the error for which there is none.
            last: nothing more will come: all samples go into packs.

        Returns:
            the packs, and the samples that wait. Samples that fit into no pack are left out as ``oversize``.
        """
        whole = tuple(self._capacities.values())
        waiting: list[int] = []
        oversize: list[Any] = []
        failed: list[tuple[Any, Exception]] = []
        table: list[tuple[int, ...]] = []
        for number, said in enumerate(costs):
            cost = self._cost(said)
            if isinstance(cost, Exception):
                failed.append((samples[number], cost))
                cost = ()
            elif _fits(cost, whole):
                waiting.append(number)
            else:
                oversize.append(samples[number])
            table.append(cost)
        totals = _sum([table[i] for i in waiting], len(whole))
        packs = []
        while waiting and (last or self._enough(totals, len(waiting), len(samples))):
            chosen = self._pack(waiting, table, whole)
            packs.append([samples[i] for i in chosen])
            taken = set(chosen)
            waiting = [i for i in waiting if i not in taken]
            totals = _less(totals, _sum([table[i] for i in chosen], len(whole)))
        left_out = {"oversize": oversize} if oversize else {}
        return Selection(packs, [samples[i] for i in waiting], left_out, failed)

    def _cost(self, said: Cost | Exception) -> tuple[int, ...] | Exception:
        capacities = self._capacities
        if isinstance(said, Exception):
            return said
        if isinstance(said, int):
            cost: tuple[int, ...] = (said, *(0,) * (len(capacities) - 1))
        else:
            if not said.keys() <= capacities.keys():
                unknown = [name for name in said if name not in capacities]
                return ConfigError(f"the cost of a sample names {unknown}; the capacities are {list(capacities)}")
            cost = tuple([int(said.get(name, 0)) for name in capacities])
        if min(cost) < 0:
            shown = dict(zip(capacities, cost, strict=True))
            return SampleError(f"the cost of a sample is {shown}; numbers of 0 or more expected", reason="cost")
        return cost

    def _enough(self, totals: tuple[int, ...], waiting: int, window: int) -> bool:
        """Whether there is so much to choose from that a pack can be chosen well, and half a window stays."""
        if 2 * waiting <= window and window > self.reach:
            return False
        packs = 1 + self.spare
        return any(total >= packs * most for total, most in zip(totals, self._capacities.values(), strict=True))

    def _pack(self, waiting: list[int], table: list[tuple[int, ...]], whole: tuple[int, ...]) -> list[int]:
        """The samples of the next pack, by number: the one that has waited longest and those that fill up best."""
        oldest = waiting[0]
        room = _less(whole, table[oldest])
        near = waiting[1 : self.reach + 1]
        for column, most in enumerate(room):
            near = [i for i in near if table[i][column] <= most]
        near.sort(key=lambda i: -table[i][0])  # stable: of equal length, first come, first served
        best = _fullest(near, [table[i][0] for i in near], room[0])
        if len(room) > 1 and not _fits(_sum([table[i] for i in best], len(whole)), room):
            tries = [_greedy(near[skip:], table, room) for skip in range(min(_GREEDY_TRIES, len(near)))]
            best = max(tries, key=lambda chosen: self._fill([table[i] for i in chosen], room), default=[])
        return [oldest, *sorted(best)]

    def _fill(self, chosen: list[tuple[int, ...]], room: tuple[int, ...]) -> tuple[float, int]:
        """How full a choice makes what is left of a pack: by the capacity that ends first, then by the first one."""
        used = _sum(chosen, len(room))
        return max(part / (most or 1) for part, most in zip(used, room, strict=True)), used[0]


def _fullest(items: list[int], lengths: list[int], room: int) -> list[int]:
    """The items whose lengths come nearest to ``room`` from below; early ones (long ones) where there is a choice.

    Bit ``n`` of an integer says that a sum of ``n`` can be reached, so that adding an item is a shift.
    """
    within = (1 << (room + 1)) - 1
    reached = [1]  # by the items from the end on
    for length in reversed(lengths):
        reached.append(reached[-1] | (reached[-1] << length & within))
    left = reached.pop().bit_length() - 1
    chosen = []
    for item, length in zip(items, lengths, strict=True):
        rest = reached.pop()
        if length <= left and rest >> (left - length) & 1:
            chosen.append(item)
            left -= length
    return chosen


def _greedy(items: list[int], table: list[tuple[int, ...]], room: tuple[int, ...]) -> list[int]:
    chosen = []
    for item in items:
        if _fits(table[item], room):
            chosen.append(item)
            room = _less(room, table[item])
    return chosen


def _fits(cost: tuple[int, ...], room: tuple[int, ...]) -> bool:
    return all(one <= most for one, most in zip(cost, room, strict=True))


def _less(room: tuple[int, ...], cost: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(most - one for most, one in zip(room, cost, strict=True))


def _sum(costs: list[tuple[int, ...]], width: int) -> tuple[int, ...]:
    return tuple(map(sum, zip(*costs, strict=True))) if costs else (0,) * width
