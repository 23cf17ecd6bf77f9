"""Weights that change along a run: piecewise linear in the samples or tokens that the job has drawn."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from omniloom.errors import ConfigError

MOST_WEIGHT = 1e100
"""So large may a weight be, that no sum of them leaves floating point."""


@dataclass(frozen=True)
class Curve:
    """A weight as a function of the position in the run; constant before the first point and after the last.

    Attributes:
        points: (position, weight), positions ascending; samples or tokens of the whole job.
        steps: keep each weight until the next point, rather than go there in a straight line.
    """

    points: tuple[tuple[float, float], ...]
    steps: bool = False

    def __post_init__(self) -> None:
        positions = [position for position, _ in self.points]
        if not positions or positions != sorted(set(positions)) or positions[0] < 0:
            raise ConfigError(f"weight schedule: positions {positions} found; expected ascending numbers from 0 on")
        for _, weight in self.points:
            if not 0 <= weight <= MOST_WEIGHT:
                raise ConfigError(f"weight {weight} found; a number from 0 to {MOST_WEIGHT:g} expected")

    @classmethod
    def constant(cls, weight: float) -> Curve:
        """A weight that does not change."""
        return cls(((0.0, float(weight)),))

    @property
    def moves(self) -> bool:
        """Whether it ever changes."""
        return len({weight for _, weight in self.points}) > 1

    def at(self, position: float) -> float:
        """The weight at a position."""
        after = bisect_right(self.points, (position, float("inf")))
        if after == 0:
            return self.points[0][1]
        start, weight = self.points[after - 1]
        if self.steps or after == len(self.points):
            return weight
        stop, next_weight = self.points[after]
        return weight + (next_weight - weight) * (position - start) / (stop - start)


@dataclass(frozen=True)
class Share:
    """A part's share among its neighbours, each with a weight that may change.

    Attributes:
        part: weight of the part.
        neighbours: weights of all parts, its own included.
    """

    part: Curve
    neighbours: tuple[Curve, ...]

    def at(self, position: float, known: dict[int, float] | None = None) -> float:
        """The share at a position, from 0 to 1; 0 where all weights are 0.

        Args:
            position: samples or tokens that the job has drawn.
            known: weights, and sums of neighbours' weights, that were worked out for this position before, by
                identity; what is missing is added. A hundred neighbours then cost a hundred curves, not ten thousand.
        """
        known = {} if known is None else known
        total = known.get(id(self.neighbours))
        if total is None:
            weights = [curve.at(position) for curve in self.neighbours]
            known.update(zip(map(id, self.neighbours), weights, strict=True))
            total = known[id(self.neighbours)] = sum(weights)
        part = known.get(id(self.part))
        return (self.part.at(position) if part is None else part) / total if total else 0.0

    @property
    def moves(self) -> bool:
        """Whether it may ever change."""
        return any(curve.moves for curve in self.neighbours)
