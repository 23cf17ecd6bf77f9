"""The table of Energon's tests in docs/energon.md, and what of each is known beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

BEGIN, END = "<!-- energon-suite: begin -->", "<!-- energon-suite: end -->"

INTERNALS: dict[str, str] = {}
"""Tests of how Energon is built, or of its literal order: what they pin."""

DIFFERS: dict[str, str] = {}
"""Tests of behaviour that is another one here on purpose: which, and why."""


def write(page: Path, results: Mapping[str, tuple[str, str]]) -> None:
    """Put the table between the marks of the page."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{page}: the marks {BEGIN} and {END} are missing")
    page.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}")


def table(results: Mapping[str, tuple[str, str]]) -> str:
    """Counts, and one table a file: each test, its kind, its state, the reason."""
    behaviour = [name for name in results if name not in INTERNALS]
    passed = sum(state == "passes" for state, _ in results.values())
    behaving = sum(results[name][0] == "passes" for name in behaviour)
    lines = [
        f"**{passed} of {len(results)} tests pass**: {behaving} of the {len(behaviour)} of behaviour, and "
        f"{passed - behaving} of the {len(results) - len(behaviour)} of internals."
    ]
    for file, names in groupby(results, lambda name: name.partition(".")[0]):
        lines += ["", f"**{file}**", "", "| test | kind | state | reason |", "|---|---|---|---|"]
        lines += [row(name, *results[name]) for name in names]
    return "\n".join(lines)


def row(name: str, state: str, why: str) -> str:
    """The row of a test."""
    kind = "internals" if name in INTERNALS else "behaviour"
    reason = "" if state == "passes" else INTERNALS.get(name) or DIFFERS.get(name) or why
    return f"| {name.rpartition('.')[2]} | {kind} | {state} | {reason} |".replace("  |", " |")
