"""A report as one HTML page that needs nothing else: no script, no network, all text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from omniloom._version import __version__
from omniloom.errors import ConfigError
from omniloom.report import run_sections, score_sections
from omniloom.report.charts import counted
from omniloom.report.comparison import comparisons
from omniloom.report.gallery import cards
from omniloom.report.records import ItemRecord, ResultRecord, RunRecord
from omniloom.report.reproduction import as_html
from omniloom.report.style import RUN_COLOURS, style

# Nothing is fetched and no script runs, even if a text slipped through.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def report_page(
    runs: Sequence[RunRecord],
    *,
    results: Sequence[ResultRecord] = (),
    items: Sequence[ItemRecord] = (),
    images: Path | None = None,
    most_items: int = 24,
    title: str | None = None,
) -> str:
    """Make the page.

    Args:
        runs: at most eight, each with a colour of its own.
        results: scores.
        items: of one of the results.
        images: folder of the items' images.
        most_items: items that are shown.
        title: its heading; ``None``: made of the names of the runs.

    Raises:
        ConfigError: there is nothing to report, or there are more runs than colours.
    """
    if not runs and not results:
        raise ConfigError("There is nothing to report: the folder of a run, or a result, is expected.")
    if len(runs) > len(RUN_COLOURS):
        raise ConfigError(f"{len(runs)} runs found; at most {len(RUN_COLOURS)} are told apart. Make several reports.")
    shown = cards(items, images=images, most=most_items)
    faults = score_sections.failures(runs, results, shown)
    sections = [("overview", "What happened", _overview(runs, results, faults))]
    if runs:
        sections.append(("training", "Training", f"{_TRAINING}{run_sections.charts(runs)}"))
    if results:
        sections.append(("scores", "Scores", f"{_SCORES}{score_sections.result_cards(results)}"))
    if items:
        sections.append(("items", "Items", score_sections.gallery(items, shown)))
    sections.append(
        ("published", "Published numbers", f"{_PUBLISHED}{score_sections.anchors_table(results)}{as_html()}")
    )
    if runs:
        sections.append(("settings", "Settings", f"{_SETTINGS}{run_sections.recipes(runs)}"))
    sections.append(("failures", "Failures", _failures(faults)))
    names = ", ".join(run.name for run in runs) or ", ".join(dict.fromkeys(result.title for result in results))
    return _whole(title or f"Report: {names}", sections)


_TRAINING = (
    '<p class="lead">Loss is the mean of &minus;ln p over the labelled tokens of a global batch: 0 is perfect, ln V a '
    "guess among V tokens. Rest the pointer on a chart for its values.</p>"
)
_SCORES = (
    '<p class="lead">A score is worth what it hangs on: the rule, the items it counts, and what the rule was checked '
    "against. A score marked INCOMPLETE is not one of the whole benchmark.</p>"
)
_PUBLISHED = (
    '<p class="lead">None of these numbers was reproduced here. They say what models of that size and training reach; '
    "a score of this page may be held against one only where both columns about comparing allow it.</p>"
)
_SETTINGS = '<p class="lead">The recipe with every setting that was in force, given or default.</p>'


def _overview(runs: Sequence[RunRecord], results: Sequence[ResultRecord], faults: Sequence[str]) -> str:
    told = []
    if runs:
        told.append(f"{counted(len(runs), 'run')} of training")
    if results:
        told.append(counted(len(results), "score"))
    state = f'<a href="#failures">{counted(len(faults), "thing")} to know of</a>' if faults else "nothing failed"
    lead = f'<p class="lead">{" and ".join(told)}; {state}.</p>'
    scores = f"{comparisons(results)}{score_sections.results_table(results)}" if results else ""
    return f"{lead}{run_sections.overview(runs) if runs else ''}{scores}"


def _failures(faults: Sequence[str]) -> str:
    if not faults:
        return "<p>None: no step was left out, every run is at its end, every item has one answer.</p>"
    return f"<ul>{''.join(f'<li>{escape(fault)}</li>' for fault in faults)}</ul>"


def _whole(title: str, sections: Sequence[tuple[str, str, str]]) -> str:
    links = "".join(f'<a href="#{name}">{heading}</a>' for name, heading, _ in sections)
    body = "\n".join(f'<section id="{name}"><h2>{heading}</h2>{text}</section>' for name, heading, text in sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>{style()}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="small">made by omniloom {escape(__version__)}</p>\n'
        f"<nav>{links}</nav>\n{body}\n</body>\n</html>\n"
    )
