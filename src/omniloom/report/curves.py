"""From the values of steps to curves that can be drawn: smoothed, counted up, thinned."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import fsum, prod

from omniloom.report.records import RunRecord

Points = Sequence[tuple[float, float]]
"""(x, y), x rising."""

_MOST_POINTS = 400
_SMOOTHED_SHARE = 0.04
_SHORTEST = 1e-9  # seconds of a step


def smoothing_steps(count: int) -> int:
    """Over how many steps a curve of ``count`` of them is smoothed: a 25th, at least 1, at most 200."""
    return max(1, min(200, round(count * _SMOOTHED_SHARE)))


def smoothed(points: Points, *, steps: int, most: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """Means over the ``steps`` values around a value, so that the curve does not lag behind, at evenly spaced places.

    Near the ends the stretch is shorter and still has the value in its middle; with one step nothing is smoothed.

    Args:
        points: of every step.
        steps: see above; at least 1. An even number counts as the next odd one.
        most: places of the curve; with no more points than that, each is one.
    """
    last = len(points) - 1
    places = range(last + 1) if last < most else [index * last // (most - 1) for index in range(most)]
    curve = []
    for index in places:
        reach = min(steps // 2, index, last - index)
        stretch = points[index - reach : index + reach + 1]
        curve.append((points[index][0], fsum(y for _, y in stretch) / len(stretch)))
    return curve


def thinned(points: Points, *, most: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """At most ``most`` points; of each stretch the lowest and the highest stay, so that spikes are seen."""
    if len(points) <= most:
        return list(points)
    stretches = most // 2
    kept = []
    for index in range(stretches):
        stretch = points[index * len(points) // stretches : (index + 1) * len(points) // stretches]
        ends = {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
        kept.extend(sorted(ends))
    return kept


def over_steps(run: RunRecord, name: str) -> list[tuple[float, float]]:
    """Values of a name over the number of the step; steps without one are left out."""
    return [(float(step), y) for step, y in zip(run.steps, run.column(name), strict=True) if y is not None]


def over_tokens(run: RunRecord, name: str) -> list[tuple[float, float]]:
    """Values of a name over the labelled tokens that all ranks had learned from by the end of the step."""
    seen = accumulate(tokens or 0.0 for tokens in run.column("learned_tokens"))
    return [(x, y) for x, y in zip(seen, run.column(name), strict=True) if y is not None]


def wait_share(run: RunRecord) -> list[tuple[float, float]]:
    """Percent of each step's time that was spent waiting for data."""
    rows = zip(run.steps, run.column("data_wait_seconds"), run.column("step_seconds"), strict=True)
    return [
        (float(step), 100 * wait / whole)
        for step, wait, whole in rows
        if wait is not None and whole and whole > _SHORTEST
    ]


def pack_fill(run: RunRecord) -> list[tuple[float, float]]:
    """Percent of each step's packs that is filled with tokens, on the first rank; nothing where samples are not packed.

    Of runs that do not tell it, it follows from their recipe: a step has ``data.pack_tokens`` x ``data.batch_size`` x
    ``loop.micro_batches`` places.
    """
    told = over_steps(run, "fill")
    if told:
        return [(step, 100 * share) for step, share in told]
    data, loop = run.settings("data"), run.settings("loop")
    sizes = (data.get("pack_tokens"), data.get("batch_size", 1), loop.get("micro_batches", 1))
    numbers = [size for size in sizes if isinstance(size, int) and 0 < size < 1 << 53]
    if len(numbers) < len(sizes):
        return []
    rows = zip(run.steps, run.column("tokens_per_second"), run.column("step_seconds"), strict=True)
    return [(float(step), 100 * rate * whole / prod(numbers)) for step, rate, whole in rows if rate and whole]


def memory_mib(run: RunRecord) -> list[tuple[float, float]]:
    """The most memory so far, in MiB, as the first rank tells."""
    return [(step, held / (1 << 20)) for step, held in over_steps(run, "peak_memory_bytes")]


def skipped_steps(run: RunRecord) -> list[int]:
    """Steps that changed no weights: loss or gradient norm was no finite number, or the norm too great."""
    return [step for step, skips in zip(run.steps, run.column("skipped_steps"), strict=True) if skips]


def mean_of_ends(points: Points) -> tuple[float, float]:
    """The means of the first and of the last twentieth of the values, at least one each."""
    values = [y for _, y in points]
    count = max(1, len(values) // 20)
    return sum(values[:count]) / count, sum(values[-count:]) / count
