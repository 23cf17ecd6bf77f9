"""The part of a page that tells what the model is worth: scores, published numbers, items, failures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

from omniloom.report.anchors import ANCHORS, Anchor
from omniloom.report.charts import NOTHING, counted, number
from omniloom.report.comparison import shown_model
from omniloom.report.curves import over_steps, skipped_steps
from omniloom.report.gallery import Card, usual_answers, verdicts
from omniloom.report.records import ItemRecord, ResultRecord, RunRecord

_STEPS_NAMED = 12
_IDS_NAMED = 8
_FAULTS = {
    "missing": "without an answer",
    "empty": "with an empty answer",
    "doubled": "answered twice alike",
    "conflicting": "answered twice, differently",
    "unknown": "answers to no item",
}
_POLICIES = {"wrong": "count as wrong", "leave-out": "are left out of the score"}


def results_table(results: Sequence[ResultRecord]) -> str:
    """All results, a row each."""
    rows = "".join(
        f"<tr><td>{escape(shown_model(result))}</td><td>{escape(result.title)}</td>"
        f'<td class="n"><b>{number(_first(result))}</b></td><td>{_completeness(result)}</td>'
        f"<td>{escape(result.metric)}</td><td>{escape(result.variant)}</td>"
        f'<td class="n">{result.counts["answered"]:,} of {"the first " if part_of(result) else ""}'
        f"{result.counts['expected']:,}</td></tr>"
        for result in results
    )
    return (
        '<div class="scroll"><table><tr><th>model</th><th>benchmark</th><th class="n">score</th><th></th>'
        f'<th>metric</th><th>rule</th><th class="n">answered</th></tr>{rows}</table></div>'
    )


def result_cards(results: Sequence[ResultRecord]) -> str:
    """Each result with all that it hangs on."""
    return f'<div class="grid2 loose">{"".join(map(_result_card, results))}</div>'


def anchors_table(results: Sequence[ResultRecord]) -> str:
    """Published numbers, beside the scores of this page where the benchmark is the same."""
    rows = "".join(_anchor_row(anchor, results) for anchor in ANCHORS)
    return (
        '<div class="scroll"><table><tr><th>benchmark</th><th>model</th><th class="n">published</th>'
        '<th class="n">this page</th><th>comparable</th><th>not comparable</th><th>what it took</th></tr>'
        f"{rows}</table></div>"
    )


def gallery(items: Sequence[ItemRecord], cards: Sequence[Card]) -> str:
    """Some items, and which answers are usual."""
    told = Counter(verdicts(items))
    counts = ", ".join(f"{told[name]:,} {name}" for name in ("right", "partly right", "wrong", "scored") if told[name])
    usual = "".join(
        f'<tr><td>{escape(text) or "<i>nothing</i>"}</td><td class="n">{count:,}</td><td class="n">{number(worth)}</td>'
        f'<td class="n">{true:,}</td></tr>'
        for text, count, worth, true in usual_answers(items)
    )
    return (
        f'<p class="lead">{len(items):,} items: {escape(counts)}. Shown are {len(cards):,}: each kind '
        "equally often as far as there are so many, evenly spread over the file; nobody picked them.</p>"
        f'<div class="gallery">{"".join(map(_item_card, cards))}</div>'
        "<h3>The answers that are given most</h3>"
        '<p class="small">One answer that is given far more often than it is true means that the model guesses.</p>'
        '<div class="scroll"><table><tr><th>answer</th><th class="n">given</th><th class="n">mean score when given</th>'
        f'<th class="n">true for</th></tr>{usual}</table></div>'
    )


def failures(runs: Sequence[RunRecord], results: Sequence[ResultRecord], cards: Sequence[Card]) -> list[str]:
    """All that went wrong, a line each, as text."""
    found = [line for run in runs for line in _run_failures(run)]
    for result in results:
        if not result.complete:
            found.append(f"{result.title}: INCOMPLETE, the score is not one of the whole benchmark.")
        for name, words in _FAULTS.items():
            if result.counts[name]:
                some = ", ".join(result.ids.get(name, ())[:_IDS_NAMED])
                found.append(
                    f"{result.title}: {result.counts[name]:,} {words}" + (f", such as {some}." if some else ".")
                )
    return found + [f"item {card.item.id}: image {fault}" for card in cards for fault in card.faults]


def _run_failures(run: RunRecord) -> list[str]:
    found = []
    skipped = skipped_steps(run)
    if skipped:
        named = ", ".join(f"{step:,}" for step in skipped[:_STEPS_NAMED]) + (
            " …" if len(skipped) > _STEPS_NAMED else ""
        )
        found.append(f"{run.name}: {counted(len(skipped), 'step')} changed no weights: {named}")
    finite = len(over_steps(run, "loss"))
    if finite < len(run.steps):
        found.append(f"{run.name}: {counted(len(run.steps) - finite, 'step')} without a finite loss.")
    if run.planned_steps is not None and run.steps[-1] < run.planned_steps:
        found.append(f"{run.name}: stands at step {run.steps[-1]:,} of {run.planned_steps:,}.")
    gaps = [(a, b) for a, b in pairwise(run.steps) if b != a + 1]
    if gaps or run.steps[0] != 1:
        where = f"after step {gaps[0][0]:,}" if gaps else f"before step {run.steps[0]:,}"
        found.append(f"{run.name}: steps are not recorded {where}; curves over tokens start too low there.")
    if run.cut_line:
        found.append(f"{run.name}: the last line of its steps is cut off, as a kill leaves it, and is left out.")
    return found


def _first(result: ResultRecord) -> float:
    return next(iter(result.scores.values()))


def _completeness(result: ResultRecord) -> str:
    if result.complete:
        kind, words = ("plain", "a part") if part_of(result) else ("right", "complete")
        return f'<span class="badge {kind}">{words}</span>'
    return '<span class="badge incomplete">INCOMPLETE</span>'


def _result_card(result: ResultRecord) -> str:
    name, *others = result.scores
    counts = result.counts
    faults = "".join(f"<dt>{words}</dt><dd>{counts[key]:,}</dd>" for key, words in _FAULTS.items() if counts[key])
    facts = {
        "rule": result.variant,
        "checked against": result.checked_against,
        "items": f"{counts['expected']:,} expected, {counts['answered']:,} answered, {counts['scored']:,} scored",
    }
    if part_of(result):
        facts["items"] += f"; {part_of(result)}"
    if counts["missing"]:
        policy = str(result.about.get("missing_policy"))
        facts["items without an answer"] = _POLICIES.get(policy, policy)
    for key, words in (
        ("model_fingerprint", "weights' SHA-256"),
        ("prompt_example", "first prompt" if result.about.get("prompts_were_asked", True) else "prompt, as put here"),
        ("ground_truth", "truth"),
        ("ground_truth_sha256", "its SHA-256"),
    ):
        if result.about.get(key):
            facts[words] = str(result.about[key]).strip()
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items())
    more = "".join(f"<dt>{escape(key)}</dt><dd>{number(result.scores[key])}</dd>" for key in others)
    quoted = result.metric if name in result.metric else f"{name}: {result.metric}"
    unverified = result.checked_against == "unverified"
    warning = '<p class="small fault">The rule is unverified: no official output was at hand.</p>' if unverified else ""
    bars = "".join(_bars(kind, groups, percent="percent" in result.metric) for kind, groups in result.groups.items())
    return (
        f'<article class="card{"" if result.complete else " broken"}"><h3>{escape(shown_model(result))}</h3>'
        f'<p>{_completeness(result)} <span class="small">{escape(result.title)}, {escape(str(result.path))}</span></p>'
        f'<div class="score">{number(_first(result))}</div><p class="small">{escape(quoted)}</p>'
        f"{warning}<dl>{more}{rows}{faults}</dl>{bars}</article>"
    )


def _bars(kind: str, groups: Mapping[str, float], *, percent: bool) -> str:
    finite = [value for value in groups.values() if math.isfinite(value)]
    top = max([100.0 if percent else 0.0, *finite]) or 1.0
    rows = "".join(
        f'<span>{escape(name)}</span><i style="width:{_share(value, top):.1f}%"></i><b>{number(value)}</b>'
        for name, value in groups.items()
    )
    return f'<p class="small">by {escape(kind)}</p><div class="bars">{rows}</div>'


def _share(value: float, top: float) -> float:
    return 100 * min(1.0, max(0.0, value / top)) if math.isfinite(value) else 0.0


def _anchor_row(anchor: Anchor, results: Sequence[ResultRecord]) -> str:
    would = f", which {escape(anchor.by.recipes)} would" if anchor.by.recipes else ""
    own = [
        f"{number(_first(result))} ({escape(result.variant)}{_other_items(anchor, result)}"
        f"{'' if result.complete else ', INCOMPLETE'})"
        for result in results
        if result.task == anchor.task
    ]
    return (
        f"<tr><td>{escape(anchor.shown)}</td><td>{escape(anchor.by.model)}</td>"
        f'<td class="n">{"about " if anchor.about else ""}{anchor.score:g}</td>'
        f'<td class="n">{"<br>".join(own) or NOTHING}</td>'
        f"<td>{escape(anchor.equal)}</td><td>{escape(anchor.differs)}</td>"
        f"<td>{escape(anchor.by.cost)} ({escape(anchor.by.source)}); not reproduced here{would}</td></tr>"
    )


def _other_items(anchor: Anchor, result: ResultRecord) -> str:
    """How many items were scored, where the published number is one of more or fewer."""
    expected = result.counts["expected"]
    return f", {expected:,} items" if part_of(result) or anchor.items not in (None, expected) else ""


def part_of(result: ResultRecord) -> str:
    """That the first items of a benchmark were scored alone; nothing where all were."""
    return "" if result.about.get("limit") is None else "the first ones alone: not a score of the benchmark"


def _item_card(card: Card) -> str:
    item = card.item
    pictures = "".join(f'<img alt="image of item {escape(item.id)}" src="{uri}">' for uri in card.pictures)
    figure = f"<figure>{pictures}</figure>" if pictures else ""
    faults = "".join(f'<p class="fault">{escape(fault)}</p>' for fault in card.faults)
    kind = card.verdict.split()[0]
    worth = "" if card.verdict in {"right", "wrong"} else f" {number(item.score)}"
    truth = " / ".join(dict.fromkeys(item.answers))
    asked = f"<p><b>{escape(item.question)}</b></p>" if item.question else ""
    return (
        f'<article class="card">{figure}{faults}{asked}'
        f"<dl><dt>answer</dt><dd>{escape(item.text) or '<i>nothing</i>'}</dd>"
        f'<dt>truth</dt><dd>{escape(truth)}</dd></dl><p><span class="badge {kind}">{card.verdict}{worth}</span> '
        f'<span class="small">item {escape(item.id)}</span></p>'
        "</article>"
    )
