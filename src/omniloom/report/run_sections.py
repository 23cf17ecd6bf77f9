"""The part of a page that tells of training: what happened in words, curves, settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from omniloom.report.charts import NOTHING, Curve, line_chart, number
from omniloom.report.curves import (
    Points,
    mean_of_ends,
    over_steps,
    over_tokens,
    skipped_steps,
    smoothed,
    smoothing_steps,
    thinned,
    wait_share,
)
from omniloom.report.records import RunRecord

_MIB = 1 << 20


def overview(runs: Sequence[RunRecord]) -> str:
    """A card for each run: a sentence, and the figures that one asks for first."""
    return f'<div class="grid2">{"".join(_card(run, index) for index, run in enumerate(runs))}</div>'


def sentence(run: RunRecord) -> str:
    """What the run did, in words."""
    planned, last = run.planned_steps, run.steps[-1]
    whole = f" of {planned:,}" if planned is not None else ""
    words = f"Took {last:,}{whole} steps"
    if planned is not None and last < planned:
        words += " and is not at its end"
    seconds = sum(value or 0.0 for value in run.column("step_seconds"))
    if seconds:
        words += f", in {duration(seconds)} of stepping"
    loss = over_steps(run, "loss")
    if loss:
        first, final = mean_of_ends(loss)
        words += f". The training loss went from {number(first)} to {number(final)} nats a token"
    held_out = over_steps(run, "validation_loss")
    if held_out:
        best_step, best = min(held_out, key=lambda point: point[1])
        words += f"; on held-out data it was {number(held_out[-1][1])} at the end"
        words += f" and lowest, {number(best)}, at step {best_step:,.0f}" if best < held_out[-1][1] else ", its lowest"
    skipped = len(skipped_steps(run))
    return words + (f". {skipped:,} steps were left out." if skipped else ". No step was left out.")


def duration(seconds: float) -> str:
    """A time for people: ``45 s``, ``7 min 5 s``, ``3 h 20 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.3g} s"


def charts(runs: Sequence[RunRecord]) -> str:
    """All curves, with a legend."""
    drawn = [
        line_chart(_losses(runs, tokens=False), title="Loss over steps", x_name="step", y_name="nats a token",
                   note=f"smoothed over {_smoothing_words(runs)} steps; single steps behind"),
        line_chart(_losses(runs, tokens=True), title="Loss over tokens", x_name="labelled tokens seen, all ranks",
                   y_name="nats a token", note="the same, for runs with batches of different sizes"),
    ]  # fmt: skip
    for title, column, unit, note in (
        ("Learning rate", "learning_rate", "rate", "of the step; parts may have a multiple of it"),
        ("Gradient norm", "gradient_norm", "norm", "before clipping"),
        ("Tokens a second", "tokens_per_second", "tokens / s", "of one rank, image features and all"),
        ("Images a second", "images_per_second", "images / s", "of one rank"),
    ):
        curves = [curve for n, run in enumerate(runs) for curve in _curves(run.name, n, over_steps(run, column))]
        if column == "learning_rate":
            curves = [curve for curve in curves if curve.style == "faint"]
            curves = [Curve(label=curve.label, colour=curve.colour, points=curve.points) for curve in curves]
        drawn.append(line_chart(curves, title=title, x_name="step", y_name=unit, note=note))
    waits = [curve for n, run in enumerate(runs) for curve in _curves(run.name, n, wait_share(run))]
    drawn.append(
        line_chart(waits, title="Waiting for data", x_name="step", y_name="% of the step", note="near zero is well fed")
    )
    skips = [
        Curve(label=run.name, colour=n, points=thinned(_counted(run)))
        for n, run in enumerate(runs)
        if "skipped_steps" in run.columns
    ]
    drawn.append(
        line_chart(skips, title="Steps left out", x_name="step", y_name="steps so far",
                   note="loss or gradient norm was no finite number, or the norm too great")
    )  # fmt: skip
    return f'{legend(runs)}<div class="grid2">{"".join(drawn)}</div>'


def legend(runs: Sequence[RunRecord]) -> str:
    """Which colour is which run, and which line is what."""
    colours = "".join(
        f'<span><i class="mark{n}" style="border-color:currentColor"></i>{escape(run.name)}</span>'
        for n, run in enumerate(runs)
    )
    kinds = (
        '<span><i></i>smoothed</span><span><i class="faint"></i>single steps</span>'
        '<span><i class="dots"></i>held-out data</span>'
    )
    return f'<p class="legend">{colours}{kinds}</p>'


def recipes(runs: Sequence[RunRecord]) -> str:
    """The resolved settings, a column for each run; rows that differ are marked and come again at the top."""
    flat = [dict(_flattened(run.recipe)) for run in runs]
    keys = list(dict.fromkeys(key for settings in flat for key in settings))
    differing = [key for key in keys if len({settings.get(key, NOTHING) for settings in flat}) > 1]
    head = "".join(f"<th>{escape(run.name)}</th>" for run in runs)

    def table(rows: Sequence[str]) -> str:
        body = "".join(
            f"<tr{' class=differs' if key in differing else ''}><td>{escape(key)}</td>"
            + "".join(f"<td>{escape(settings.get(key, NOTHING))}</td>" for settings in flat)
            + "</tr>"
            for key in rows
        )
        return f'<div class="scroll"><table class="recipe"><tr><th>setting</th>{head}</tr>{body}</table></div>'

    if len(runs) == 1:
        return table(keys)
    told = f"<p>{len(differing):,} of {len(keys):,} settings differ:</p>{table(differing)}" if differing else ""
    told = told or "<p>The runs have equal settings.</p>"
    return f"{told}<details><summary>All settings</summary>{table(keys)}</details>"


def _card(run: RunRecord, index: int) -> str:
    seconds = sum(value or 0.0 for value in run.column("step_seconds"))
    waited = sum(value or 0.0 for value in run.column("data_wait_seconds"))
    learned = sum(value or 0.0 for value in run.column("learned_tokens"))
    memory = max((value or 0.0 for value in run.column("peak_memory_bytes")), default=0.0)
    rates = sorted(value for _, value in over_steps(run, "tokens_per_second"))
    figures = [
        (
            f"{number(mean_of_ends(over_steps(run, 'loss'))[1])}" if over_steps(run, "loss") else NOTHING,
            "loss at the end",
        )
    ]
    figures.append((number(learned), "labelled tokens learned"))
    figures.append((number(rates[len(rates) // 2]) if rates else NOTHING, "tokens / s a rank, median"))
    figures.append((f"{100 * waited / seconds:.1f}%" if seconds else NOTHING, "of the time waiting for data"))
    figures.append((f"{memory / _MIB:,.0f} MiB" if memory else NOTHING, "peak memory, first rank"))
    boxes = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in figures)
    note = run.recipe.get("note")
    said = f'<p class="small">{escape(str(note))}</p>' if note else ""
    return (
        f'<article class="card"><h3 class="mark{index}">{escape(run.name)}</h3>'
        f'<p class="small">{escape(str(run.folder))}</p>'
        f'{said}<p>{escape(sentence(run))}</p><div class="figures">{boxes}</div></article>'
    )


def _losses(runs: Sequence[RunRecord], *, tokens: bool) -> list[Curve]:
    over = over_tokens if tokens else over_steps
    curves = []
    for index, run in enumerate(runs):
        curves += _curves(run.name, index, over(run, "loss"))
        held_out = thinned(over(run, "validation_loss"))
        curves.append(Curve(label=f"{run.name}, held-out", colour=index, points=held_out, style="dots"))
    return curves


def _curves(name: str, colour: int, points: Points) -> list[Curve]:
    """The smoothed curve, and the single values behind it."""
    line = thinned(smoothed(points, steps=smoothing_steps(len(points))))
    return [
        Curve(label=name, colour=colour, points=thinned(points), style="faint"),
        Curve(label=name, colour=colour, points=line),
    ]


def _counted(run: RunRecord) -> list[tuple[float, float]]:
    skipped, count, points = set(skipped_steps(run)), 0, []
    for step in run.steps:
        count += step in skipped
        points.append((float(step), float(count)))
    return points


def _smoothing_words(runs: Sequence[RunRecord]) -> str:
    counts = sorted({smoothing_steps(len(over_steps(run, "loss"))) for run in runs})
    return " or ".join(map(str, counts))


def _flattened(tree: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flattened(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value if isinstance(value, str) and value else json.dumps(value, default=str)
