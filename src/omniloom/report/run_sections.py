"""The part of a page that tells of training: what happened in words, curves, settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from typing import Any

from omniloom.report.charts import NOTHING, Curve, counted, line_chart, number
from omniloom.report.curves import (
    Points,
    mean_of_ends,
    memory_mib,
    over_steps,
    over_tokens,
    pack_fill,
    skipped_steps,
    smoothed,
    smoothing_steps,
    thinned,
    wait_share,
)
from omniloom.report.data_set_sections import data_set_charts, data_set_table
from omniloom.report.records import RunRecord
from omniloom.report.style import RUN_COLOURS

_SCORE = "score/"


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
    return words + (f". Left out: {counted(skipped, 'step')}." if skipped else ". No step was left out.")


def setup(run: RunRecord) -> str:
    """What was trained on what, in words, as far as the recipe tells."""
    model, data, loop, parallel = (run.settings(part) for part in ("model", "data", "loop", "parallel"))
    words = f"Model {model.get('folder', 'not said')}"
    if model.get("start"):
        words += f" with the weights of {model['start']}"
    fresh = model.get("fresh")
    if isinstance(fresh, list) and fresh:
        words += f" ({', '.join(map(str, fresh))} with fresh weights)"
    parts = {str(part): settings for part, settings in run.settings("parts").items()}
    frozen = [
        part for part, settings in parts.items() if isinstance(settings, Mapping) and settings.get("train") is False
    ]
    words += f", {', '.join(frozen)} frozen" if frozen else ""
    packed = isinstance(data.get("pack_tokens"), int)
    batch = data.get("batch_size", 1)
    unit = counted(batch, "pack" if packed else "sample") if isinstance(batch, int) else "batches not said"
    unit += f" of {data['pack_tokens']:,} tokens" if packed else ""
    words += f"; data {data.get('train', 'not said')}, template {data.get('template', 'not said')}"
    words += f"; {unit} a micro-batch, {loop.get('micro_batches', 1)} a step and rank"
    words += f"; {parallel.get('precision', 'precision not said')}, seed {run.recipe.get('seed', 'not said')}."
    return words


def duration(seconds: float) -> str:
    """A time for people: ``45 s``, ``7 min 5 s``, ``3 h 20 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.3g} s"


def charts(runs: Sequence[RunRecord]) -> str:
    """All curves, with a legend."""
    drawn = "".join(_drawn(chart, runs) for chart in _CHARTS)
    drawn += "".join(map(data_set_charts, runs)) + "".join(map(_benchmark_chart, runs))
    return f'{legend(runs)}<div class="grid2">{drawn}</div>{"".join(map(data_set_table, runs))}'


def _drawn(chart: _Chart, runs: Sequence[RunRecord]) -> str:
    curves = [curve for index, run in enumerate(runs) for curve in chart.curves(run, index)]
    if chart.where_told and not any(curve.points for curve in curves):
        return ""
    return line_chart(
        curves, title=chart.title, x_name=chart.x_name, y_name=chart.y_name, note=chart.note, log=chart.log
    )


def _benchmark_chart(run: RunRecord) -> str:
    """Scores on benchmarks while the run went; nothing where there are none."""
    names = [name for name in run.columns if name.startswith(_SCORE)][: len(RUN_COLOURS)]
    curves = [
        Curve(label=name.removeprefix(_SCORE), colour=colour, points=over_steps(run, name), style="dots")
        for colour, name in enumerate(names)
    ]
    title, note = f"Benchmarks while training, {run.name}", "of their first items, each in its own unit"
    return line_chart(curves, title=title, x_name="step", y_name="score", note=note, named=True) if curves else ""


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
    memory = max((held for _, held in memory_mib(run)), default=0.0)
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
    figures.append((f"{memory:,.0f} MiB" if memory else NOTHING, "peak memory, first rank"))
    boxes = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in figures)
    note = run.recipe.get("note")
    said = f'<p class="small">{escape(str(note))}</p>' if note else ""
    return (
        f'<article class="card"><h3 class="mark{index}">{escape(run.name)}</h3>'
        f'<p class="small">{escape(str(run.folder))}</p>'
        f'{said}<p>{escape(sentence(run))}</p><p class="small">{escape(setup(run))}</p>'
        f'<div class="figures">{boxes}</div></article>'
    )


def _flattened(tree: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flattened(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value if isinstance(value, str) and value else json.dumps(value, default=str)


def _counted(run: RunRecord) -> list[tuple[float, float]]:
    """Steps left out so far; nothing where the run does not tell."""
    skips = over_steps(run, "skipped_steps")
    return [(step, float(count)) for (step, _), count in zip(skips, accumulate(bool(y) for _, y in skips), strict=True)]


def _losses(run: RunRecord, colour: int, over: Callable[[RunRecord, str], Points]) -> list[Curve]:
    held_out = thinned(over(run, "validation_loss"))
    return [
        *_smooth(run.name, colour, over(run, "loss")),
        Curve(label=f"{run.name}, held-out", colour=colour, points=held_out, style="dots"),
    ]


def _smooth(name: str, colour: int, points: Points) -> list[Curve]:
    """The smoothed curve, and the single values behind it."""
    line = smoothed(points, steps=smoothing_steps(len(points)))
    return [
        Curve(label=name, colour=colour, points=thinned(points), style="faint"),
        Curve(label=name, colour=colour, points=line),
    ]


def _plain(run: RunRecord, colour: int, points: Points) -> list[Curve]:
    return [Curve(label=run.name, colour=colour, points=thinned(points))]


@dataclass(frozen=True, kw_only=True)
class _Chart:
    """One chart of the page; ``curves`` are those of a run with its colour.

    With ``where_told`` it is left out where no run has a point of it, as where the peak of a device is not known.
    """

    title: str
    y_name: str
    curves: Callable[[RunRecord, int], Sequence[Curve]]
    note: str = ""
    x_name: str = "step"
    log: bool = False
    where_told: bool = False


_CHARTS = (
    _Chart(
        title="Loss over steps", y_name="nats a token", log=True,
        curves=lambda run, colour: _losses(run, colour, over_steps),
        note="smoothed, with the single steps behind",
    ),
    _Chart(
        title="Loss over tokens", y_name="nats a token", log=True, x_name="labelled tokens seen, all ranks",
        curves=lambda run, colour: _losses(run, colour, over_tokens),
        note="the same; fair to runs with batches of other sizes",
    ),
    _Chart(
        title="Learning rate", y_name="rate", note="parts may have a multiple of it",
        curves=lambda run, colour: _plain(run, colour, over_steps(run, "learning_rate")),
    ),
    _Chart(
        title="Gradient norm", y_name="norm", log=True, note="before clipping",
        curves=lambda run, colour: _smooth(run.name, colour, over_steps(run, "gradient_norm")),
    ),
    _Chart(
        title="Tokens a second", y_name="tokens / s", note="of one rank, image features and all",
        curves=lambda run, colour: _smooth(run.name, colour, over_steps(run, "tokens_per_second")),
    ),
    _Chart(
        title="Images a second", y_name="images / s", note="of one rank; each tile counts",
        curves=lambda run, colour: _smooth(run.name, colour, over_steps(run, "images_per_second")),
    ),
    _Chart(
        title="MFU", y_name="% of the peak", note="what the model asks for, of what the device could do",
        where_told=True,
        curves=lambda run, colour: _smooth(run.name, colour, [(x, 100 * y) for x, y in over_steps(run, "mfu")]),
    ),
    _Chart(
        title="Waiting for data", y_name="% of the step", note="near zero: the data keeps up",
        curves=lambda run, colour: _smooth(run.name, colour, wait_share(run)),
    ),
    _Chart(
        title="Fill of packs", y_name="% of the places", note="places that hold a token",
        curves=lambda run, colour: _smooth(run.name, colour, pack_fill(run)),
    ),
    _Chart(
        title="Peak memory", y_name="MiB", note="of the first rank: its accelerator, or its process on a CPU",
        curves=lambda run, colour: _plain(run, colour, memory_mib(run)),
    ),
    _Chart(
        title="Steps left out", y_name="steps so far", note="loss or gradient norm not finite, or norm too great",
        curves=lambda run, colour: _plain(run, colour, _counted(run)),
    ),
)  # fmt: skip
