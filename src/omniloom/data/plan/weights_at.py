"""The weights of many leaves at a position of the run, worked out together.

As `Leaf.weight_at`, number by number: arithmetic is element by element, and sums are exact (`math.fsum`), so that the
weights, and with them the order of samples, are the same on every machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import fsum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from omniloom.data.plan.weights import Curve

if TYPE_CHECKING:
    from omniloom.data.plan.plan import Leaf

Float64 = npt.NDArray[np.float64]


class WeightsAt:
    """Weights of leaves by position.

    Args:
        leaves: the leaves.
    """

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self._fixed = np.array([leaf.weight for leaf in leaves])
        ways = [leaf.shares for leaf in leaves]
        self._many = max(map(len, ways), default=0)
        curves: dict[int, Curve] = {}
        groups: dict[int, tuple[Curve, ...]] = {}
        for share in (share for leaf in ways for way in leaf for share in way):
            curves |= {id(curve): curve for curve in (share.part, *share.neighbours)}
            groups[id(share.neighbours)] = share.neighbours
        self._curves = list(curves.values())
        self._moves = any(curve.moves for curve in self._curves)
        place = {one: number for number, one in enumerate(curves)}
        self._groups = [[place[id(curve)] for curve in group] for group in groups.values()]
        group_place = {one: number for number, one in enumerate(groups)}
        # For each way and depth: which curve and which group the share of each leaf is of; none is the share 1.
        depth = max((len(way) for leaf in ways for way in leaf), default=0)
        self._shares = np.full((self._many, depth, 2, len(leaves)), -1)
        for number, leaf in enumerate(ways):
            for which, way in enumerate(leaf):
                for level, share in enumerate(way):
                    self._shares[which, level, :, number] = place[id(share.part)], group_place[id(share.neighbours)]
        self._has_way = np.array([[which < max(1, len(leaf)) for leaf in ways] for which in range(max(1, self._many))])
        self._breaks = sorted({position for curve in self._curves for position, _ in curve.points})
        self._segment = -1
        self._known: tuple[float, list[float]] | None = None

    def at(self, position: float) -> list[float]:
        """Weights of all leaves when the job has drawn so many samples (or tokens)."""
        if self._known is not None and (not self._moves or self._known[0] == position):
            return self._known[1]
        values = self._values(position)
        listed = values.tolist()
        sums = [fsum(listed[i] for i in group) for group in self._groups]
        values = np.append(values, 1.0)  # at -1: of no curve and no group
        totals = np.array([*sums, 1.0])
        weights = np.zeros(len(self._fixed))
        for which in range(max(1, self._many)):
            way = self._fixed
            for curve, group in self._shares[which] if self._many else ():
                total = totals[group]
                way = way * np.divide(values[curve], total, out=np.zeros(len(way)), where=total != 0)
            weights = weights + np.where(self._has_way[which], way, 0.0)
        self._known = position, weights.tolist()
        return self._known[1]

    def _values(self, position: float) -> Float64:
        """Values of all curves. Between two points of any of them, each is a straight line."""
        segment = bisect_right(self._breaks, position)
        if segment != self._segment:
            self._segment = segment
            lines = [_line(curve, position) for curve in self._curves]
            self._start, self._span, self._low, self._rise = np.array(lines).reshape(-1, 4).T
        values: Float64 = self._low + self._rise * (position - self._start) / self._span
        return values


def _line(curve: Curve, position: float) -> tuple[float, float, float, float]:
    """Start, length, value at the start, and rise of the straight line that a curve is around a position."""
    after = bisect_right(curve.points, (position, float("inf")))
    if after == 0 or after == len(curve.points) or curve.steps:
        return 0.0, 1.0, curve.points[max(0, after - 1)][1], 0.0
    (start, low), (stop, high) = curve.points[after - 1], curve.points[after]
    return start, stop - start, low, high - low
