"""The part of a page that tells what a run learned of each data set of its mix."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from omniloom.report.charts import NOTHING, Curve, line_chart, number
from omniloom.report.curves import mean_of_ends, over_steps, smoothed, smoothing_steps, thinned
from omniloom.report.records import RunRecord
from omniloom.report.style import RUN_COLOURS

_TRAINING, _HELD_OUT, _TOKENS = "loss/", "validation_loss/", "learned_tokens/"


def data_set_names(run: RunRecord) -> list[str]:
    """Names of the data sets whose losses a run tells apart, those of training first."""
    told = (name.removeprefix(kind) for kind in (_TRAINING, _HELD_OUT) for name in run.columns if name.startswith(kind))
    return list(dict.fromkeys(told))


def data_set_charts(run: RunRecord) -> str:
    """The losses of each data set over the steps; nothing where there is one data set.

    As many as there are colours are drawn; the table has them all.
    """
    names = data_set_names(run)
    if not names:
        return ""
    drawn = names[: len(RUN_COLOURS)]
    left = f"; {len(names) - len(drawn)} more are in the table alone" if len(names) > len(drawn) else ""
    return line_chart(
        [curve for colour, name in enumerate(drawn) for curve in _curves(run, name, colour)],
        title=f"Loss by data set, {run.name}",
        x_name="step",
        y_name="nats a token",
        note=f"smoothed; dashed: held-out data{left}",
        log=True,
        named=True,
    )


def data_set_table(run: RunRecord) -> str:
    """What was learned of each data set, a row each: labelled tokens, and losses at both ends."""
    names = data_set_names(run)
    if not names:
        return ""
    whole = sum(value for _, value in over_steps(run, "learned_tokens"))
    rows = "".join(_row(run, name, whole) for name in names)
    return (
        f'<p class="small">Data sets of {escape(run.name)}</p><div class="scroll"><table><tr><th>data set</th>'
        '<th class="n">labelled tokens</th><th class="n">share</th><th class="n">loss at the beginning</th>'
        f'<th class="n">at the end</th><th class="n">held-out at the end</th></tr>{rows}</table></div>'
    )


def _curves(run: RunRecord, name: str, colour: int) -> list[Curve]:
    points = over_steps(run, _TRAINING + name)
    line = smoothed(points, steps=smoothing_steps(len(points)))
    held_out = thinned(over_steps(run, _HELD_OUT + name))
    return [
        Curve(label=name, colour=colour, points=thinned(points), style="faint"),
        Curve(label=name, colour=colour, points=line),
        Curve(label=f"{name}, held-out" if points else name, colour=colour, points=held_out, style="dots"),
    ]


def _row(run: RunRecord, name: str, whole: float) -> str:
    tokens: Sequence[float] = [value for _, value in over_steps(run, _TOKENS + name)]
    training, held_out = over_steps(run, _TRAINING + name), over_steps(run, _HELD_OUT + name)
    ends = [number(value) for value in mean_of_ends(training)] if training else [NOTHING, NOTHING]
    share = f"{100 * sum(tokens) / whole:.1f}%" if tokens and whole else NOTHING
    cells = (
        number(sum(tokens)) if tokens else NOTHING,
        share,
        *ends,
        number(held_out[-1][1]) if held_out else NOTHING,
    )
    return f"<tr><td>{escape(name)}</td>" + "".join(f'<td class="n">{cell}</td>' for cell in cells) + "</tr>"
