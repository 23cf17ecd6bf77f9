"""The plan alone: it handles integers and opens no file."""

from __future__ import annotations

import statistics
from typing import Any

from harness import Context, alternate, row, show_row

NAME = "plan"
CASES = {
    "one leaf of 1 million rows": (1, 1_000_000, "weights"),
    "100 leaves of 10 billion rows": (100, 10_000_000_000, "weights"),
    "20 leaves in epochs of 2.5 passes": (20, 10_000_000_000, "epochs"),
    "20 leaves by a schedule": (20, 10_000_000_000, "schedule"),
    "20 leaves by shares of tokens": (20, 10_000_000_000, "tokens"),
    "100 leaves in epochs of 2.5 passes": (100, 10_000_000_000, "epochs"),
    "100 leaves by a schedule": (100, 10_000_000_000, "schedule"),
    "100 leaves by shares of tokens": (100, 10_000_000_000, "tokens"),
}


def run(context: Context) -> dict[str, Any]:
    """Keys a second on one core, time to the first key, memory of the process."""
    rows, facts = [], {}
    for case, (leaves, number, mode) in CASES.items():
        settings = {"leaves": leaves, "rows": number, "mode": mode, "window_seconds": context.window_seconds / 2}
        program = context.program("omniloom", "plan_omniloom", **settings)
        readings = alternate([program], rounds=context.pairs)["omniloom"]
        rows.append(row(case, {"omniloom": [reading["keys_per_second"] for reading in readings]}, at_least=500_000))
        show_row(rows[-1], "keys/s")
        facts[case] = {
            name: statistics.median(reading[name] for reading in readings) for name in ("start_seconds", "peak_rss_mb")
        }
    return {
        "title": "The plan alone",
        "unit": "keys/s",
        "better": "higher",
        "settings": "shuffle buffer 1,000, lane 0 of 96, one core; bars: 500,000 keys/s, a start below 1 s and 200 MB",
        "rows": rows,
        "facts": facts,
    }
