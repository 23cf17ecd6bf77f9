"""Scores of one benchmark side by side: models, controls that see less, and what others published."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from omniloom.report.anchors import ANCHORS
from omniloom.report.charts import NOTHING, number
from omniloom.report.records import ResultRecord


def comparisons(results: Sequence[ResultRecord]) -> str:
    """A figure for each benchmark that has several scores on this page, or a score and a published one.

    Only scores by one rule and version of it, metric and file of right answers, over as many of its items, stand in
    one figure.
    """
    groups: dict[tuple[str | int, ...], list[ResultRecord]] = {}
    for result in results:
        truth, version = (str(result.about.get(name)) for name in ("ground_truth_sha256", "metric_version"))
        rule = (result.task, result.variant, version, next(iter(result.scores)))
        groups.setdefault((*rule, truth, result.counts["expected"]), []).append(result)
    figures = [_figure(each) for each in groups.values()]
    return "".join(figure for figure in figures if figure)


def shown_model(result: ResultRecord) -> str:
    """Whose score it is, as far as the file says."""
    return str(result.about.get("model") or f"model not said ({result.path.name})")


def _figure(results: Sequence[ResultRecord]) -> str:
    first = results[0]
    own = [(shown_model(each), next(iter(each.scores.values())), each.complete) for each in results]
    published = [
        (f"{anchor.by.model}, published", anchor.score)
        for anchor in ANCHORS
        if (anchor.task, anchor.items) == (first.task, first.counts["expected"])
    ]
    if len(own) + len(published) < 2:
        return ""
    values = [value for _, value, _ in own if math.isfinite(value)] + [value for _, value in published]
    top = max([100.0 if "percent" in first.metric else 0.0, *values]) or 1.0
    rows = "".join(_row(name + ("" if whole else ", INCOMPLETE"), value, top, "") for name, value, whole in own)
    rows += "".join(_row(name, value, top, "published") for name, value in published)
    return (
        f'<figure class="chart compared"><figcaption><b>{escape(first.title)}</b> '
        f"<span>{escape(first.metric)}; {first.counts['scored']:,} items</span></figcaption>"
        f'<div class="bars">{rows}</div></figure>'
    )


def _row(name: str, value: float, top: float, kind: str) -> str:
    if not math.isfinite(value):
        return f"<span>{escape(name)}</span><i></i><b>{NOTHING}</b>"
    width = 100 * min(1.0, max(0.0, value / top))
    return f'<span>{escape(name)}</span><i class="{kind}" style="width:{width:.1f}%"></i><b>{number(value)}</b>'
