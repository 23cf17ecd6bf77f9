"""Renders docs/benchmarks.md from the raw figures: `python benchmarks/report.py [results.json] [--check]`.

Every number of that page comes from here, so none can grow stale by hand.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "results.json", HERE.parent / "docs" / "benchmarks.md"
PEERS = ("energon", "webdataset", "transformers", "transformers, grouped", "nanoVLM", "pillow", "torchvision", "spdl")


def render(results: Mapping[str, Any]) -> str:
    """The whole page as Markdown."""
    parts = ["# Benchmarks", _preface(results)]
    parts += [_benchmark(result) for result in results["benchmarks"].values()]
    return "\n\n".join(parts) + "\n"


def _preface(results: Mapping[str, Any]) -> str:
    machine, versions = results["machine"], results["versions"]
    lines = [
        f"Measured on {machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"{machine['system']}.",
        "Each program is a process of its own; programs run one at a time and in turn (A B A B ...), "
        f"{results['pairs']} times each. A figure is a median, the range behind it the lowest and the highest. "
        "A ratio is taken pair by pair; above 1 omniloom is better.",
        "; ".join(
            f"{side}: " + ", ".join(f"{name} {version}" for name, version in found.items())
            for side, found in versions.items()
        )
        + ".",
        "All sides read the same tars through a warm page cache and deliver the same samples. "
        "This page is written by `benchmarks/report.py` from `benchmarks/results.json`; `make bench` measures anew.",
    ]
    if results["quick"]:
        lines.insert(0, "**A quick run: it shows that the programs work, and measures nothing.**")
    elif results["pairs"] < 5:
        lines.insert(0, "**Provisional: fewer than 5 pairs, on a machine that was doing other work.**")
    return "\n\n".join(lines)


def _benchmark(result: Mapping[str, Any]) -> str:
    parts = [f"## {result['title']}", result["settings"][0].upper() + result["settings"][1:] + "."]
    for table in result.get("tables", [result]):
        if "tables" in result:
            parts.append(f"### {table['title']}")
        parts.append(_table(table))
    if result.get("floor"):
        parts.append(f"Floor: {result['floor']}. With threads or several workers a share can pass 100%.")
    parts += [f"- {name.replace('_', ' ')}: {_fact(value)}" for name, value in result.get("facts", {}).items()]
    if "measured" in result:
        date, others = result["measured"]["date"], result["measured"]["others_share"]
        parts.append(f"Measured on {date}; other programs took {others:.1%} of the processors' time meanwhile.")
    return "\n\n".join(parts)


def _table(table: Mapping[str, Any]) -> str:
    rows = table["rows"]
    sides = [side for side in ("omniloom", *PEERS, "floor") if any(side in entry["figures"] for entry in rows)]
    peers = [side for side in PEERS if side in sides]
    floored = "floor" in sides
    head = [
        f"{table['unit']}",
        *sides,
        *(f"ratio to {peer} (bar)" for peer in peers),
        *(["share of floor"] if floored else []),
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    floor = next((entry["figures"]["floor"] for entry in rows if entry["figures"].get("floor")), None)
    for entry in rows:
        floor = entry["figures"].get("floor") or floor
        cells = [entry["case"], *(_spread(entry["figures"].get(side)) for side in sides)]
        cells += [_ratio(entry, peer, better=table["better"]) for peer in peers]
        if floored:
            held_to = None if entry.get("without_floor") else floor
            cells.append(_share(entry["figures"].get("omniloom"), held_to, better=table["better"]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def _spread(figures: Sequence[float] | None) -> str:
    if not figures:
        return ""
    middle = _number(statistics.median(figures))
    return middle if len(figures) == 1 else f"{middle} ({_number(min(figures))}-{_number(max(figures))})"


def _ratio(entry: Mapping[str, Any], peer: str, *, better: str) -> str:
    ours, theirs = entry["figures"].get("omniloom"), entry["figures"].get(peer)
    if not ours or not theirs:
        return ""
    ratios = [b / a if better == "lower" else a / b for a, b in zip(ours, theirs, strict=True) if a and b]
    bar = entry["bars"].get(peer)
    missed = bar is not None and bool(ratios) and statistics.median(ratios) < bar
    return _spread(ratios) + (f" ({bar:g}{', missed' if missed else ''})" if bar is not None else "")


def _share(ours: Sequence[float] | None, floor: Sequence[float] | None, *, better: str) -> str:
    if not ours or not floor:
        return ""
    a, b = statistics.median(ours), statistics.median(floor)
    return f"{a / b:.1%}" if better == "higher" else f"{b / a:.1%}"


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {_fact(one)}" for name, one in value.items())
    if isinstance(value, list):
        return "; ".join(_fact(one) for one in value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "not measured"}[value]
    return _number(value) if isinstance(value, int | float) else str(value)


def main() -> int:
    """Write the page, or with --check say whether it is what the figures give."""
    named = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    page = render(json.loads(Path(named[0] if named else RESULTS).read_text()))
    if "--check" in sys.argv:
        return 0 if PAGE.exists() and PAGE.read_text() == page else 1
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
