"""Charts as SVG text. What the pointer rests on is told by the browser's own tooltips, so no script is needed."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from omniloom.report.curves import Points

Style = Literal["line", "faint", "dots"]

NOTHING = "\N{EN DASH}"
"""Where there is no value."""

_WIDTH, _HEIGHT = 560, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 10, 40
_STRIPS = 56
_SMALLEST = 1e-200  # what differs by less is drawn as equal
_LOG_RATIO = 50  # a greater ratio of the highest to the lowest value is drawn by powers of ten


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line of a chart.

    Attributes:
        label: for the tooltip.
        colour: number of the run, from 0.
        points: x rising.
        style: ``line``; ``faint``: behind the others and without a tooltip; ``dots``: dashed, with its points marked.
    """

    label: str
    colour: int
    points: Points
    style: Style = "line"


@dataclass(frozen=True)
class Axis:
    """From values to places.

    Attributes:
        low, high: of the values.
        start, end: their places in the drawing.
        log: powers of ten are evenly spaced.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value is drawn."""
        low, high, here = (
            (math.log10(v) for v in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        )
        return self.start + (self.end - self.start) * (here - low) / (high - low)

    def ticks(self) -> list[float]:
        """Round values within the axis: about five, or the powers of ten with 2 and 5 where those are few."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1,) if len(powers) > 3 else (1, 2, 5)
            every = -(-len(powers) // 6)
            ticks = [digit * 10.0**power for power in powers[::every] for digit in steps]
        else:
            rough = (self.high - self.low) / 5
            size = 10.0 ** math.floor(math.log10(rough))
            step = next(size * digit for digit in (1, 2, 5, 10) if size * digit >= rough * 0.999)
            first = math.ceil(self.low / step - 1e-9)
            ticks = [step * (first + n) for n in range(12)]
        slack = 1e-9 * (self.high - self.low)
        return [tick for tick in ticks if self.low - slack <= tick <= self.high + slack]


def line_chart(
    curves: Sequence[Curve],
    *,
    title: str,
    x_name: str,
    y_name: str,
    note: str = "",
    log: bool = False,
    named: bool = False,
) -> str:
    """A figure with a line for each curve; one that says so where no curve has a point.

    Args:
        curves: what is drawn; faint ones come first.
        title: above it.
        x_name, y_name: of the axes, with units.
        note: beside the title.
        log: values that differ by more than fifty times are drawn by powers of ten.
        named: tell the curves' labels in their colours beside the title, where colours are not those of runs.
    """
    curves = sorted((curve for curve in curves if curve.points), key=lambda curve: curve.style != "faint")
    told = [each for each in curves if named and each.style != "faint"]
    names = "".join(f'<em class="mark{each.colour}">{escape(each.label)}</em>' for each in told)
    head = f"<figcaption><b>{escape(title)}</b> <span>{escape(note)}</span>{names}</figcaption>"
    if not curves:
        return f'<figure class="chart">{head}<p class="none">not recorded</p></figure>'
    x_axis = _axis([x for curve in curves for x, _ in curve.points], start=_LEFT, end=_WIDTH - _RIGHT, tight=True)
    y_axis = _axis([y for curve in curves for _, y in curve.points], start=_HEIGHT - _BOTTOM, end=_TOP, log=log)
    drawn = "".join(_curve(curve, x_axis, y_axis) for curve in curves)
    grid = _grid(x_axis, y_axis, x_name=x_name, y_name=y_name + (" (log)" if y_axis.log else ""))
    strips = _strips([curve for curve in curves if curve.style != "faint"], x_axis, x_name)
    return (
        f'<figure class="chart">{head}<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}: {escape(y_name)} over {escape(x_name)}">{grid}{drawn}{strips}</svg></figure>'
    )


def number(value: float) -> str:
    """A number for people: four digits, or with thousands told apart."""
    if not math.isfinite(value):
        return NOTHING
    if abs(value) >= 1_000 or value == round(value):
        return f"{value:,.0f}" if abs(value) < 1e7 else short(value)
    return f"{value:.4g}"


def counted(count: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def short(value: float) -> str:
    """A number for an axis: ``1.5M``, ``20k``, ``0.25``."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.4g}{letter}"
    return f"{value:.4g}"


def _axis(values: Sequence[float], *, start: float, end: float, tight: bool = False, log: bool = False) -> Axis:
    low, high = min(values), max(values)
    if log and low > _SMALLEST and high / low > _LOG_RATIO:
        return Axis(low, high * 1.1, start, end, log=True)
    if not tight and 0 <= low < 0.5 * high:  # near zero: show it
        low = 0.0
    largest = max(abs(high), abs(low))
    if high - low <= max(1e-12 * largest, _SMALLEST):
        room = largest * 0.05
        return Axis(low - room, high + (room if room > _SMALLEST else 1.0), start, end)
    return Axis(low, high if tight else high + 0.04 * (high - low), start, end)


def _curve(curve: Curve, x_axis: Axis, y_axis: Axis) -> str:
    places = [(x_axis.place(x), y_axis.place(y)) for x, y in curve.points]
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in places)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    shown = dots if curve.style == "dots" or len(places) == 1 else ""
    return f'<g class="curve {curve.style} run{curve.colour}"><polyline points="{path}"/>{shown}</g>'


def _grid(x_axis: Axis, y_axis: Axis, *, x_name: str, y_name: str) -> str:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    rows = "".join(
        f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{short(tick)}</text>'
        for tick in y_axis.ticks()
        for y in [y_axis.place(tick)]
    )
    columns = "".join(
        f'<text x="{x_axis.place(tick):.1f}" y="{bottom + 15}" text-anchor="middle">{short(tick)}</text>'
        for tick in x_axis.ticks()
    )
    middle = (_TOP + bottom) / 2
    names = (
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(x_name)}</text>'
        f'<text x="11" y="{middle}" text-anchor="middle" transform="rotate(-90 11 {middle})">{escape(y_name)}</text>'
    )
    return f'<g class="grid">{rows}{columns}{names}</g>'


def _strips(curves: Sequence[Curve], x_axis: Axis, x_name: str) -> str:
    """Invisible columns, each with a tooltip of the values there."""
    width = (x_axis.end - x_axis.start) / _STRIPS
    drawn = []
    for index in range(_STRIPS):
        share = (x_axis.high - x_axis.low) / _STRIPS
        low, high = x_axis.low + share * index, x_axis.low + share * (index + 1)
        found = [(curve, point) for curve in curves if (point := _nearest(curve.points, low, high)) is not None]
        if found:
            lines = [f"{curve.label}: {number(y)}" for curve, (_, y) in found]
            text = escape("\n".join([f"{x_name} {number(found[0][1][0])}", *lines]))
            drawn.append(
                f'<rect x="{x_axis.start + width * index:.1f}" y="{_TOP}" width="{width:.1f}" '
                f'height="{_HEIGHT - _BOTTOM - _TOP}"><title>{text}</title></rect>'
            )
    return f'<g class="strips">{"".join(drawn)}</g>'


def _nearest(points: Points, low: float, high: float) -> tuple[float, float] | None:
    """The point nearest to the middle of a stretch of x, within it."""
    middle = (low + high) / 2
    index = bisect_left(points, (middle,))
    near = min(points[max(0, index - 1) : index + 1], key=lambda point: abs(point[0] - middle))
    return near if low <= near[0] <= high else None
