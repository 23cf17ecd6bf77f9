"""Text records as JSONL, Parquet, Arrow and plain files: samples a second, shuffled."""

from __future__ import annotations

from typing import Any

from data_sources import FILES_AT_MOST, ROW_GROUP, sources
from harness import Context, alternate, row, say, show_row, values, warm_page_cache

NAME = "sources"
BATCH_SIZE, SHUFFLE = 64, 1_000


def run(context: Context) -> dict[str, Any]:
    """Measure each kind without workers and with two."""
    records = 5_000 if context.quick else 200_000
    rows = []
    for kind, path in sources(context.data_dir, records=records).items():
        warm_page_cache(path if path.is_dir() else path.parent)
        for workers in (0, 2):
            settings = {
                "data": path, "mode": kind, "workers": workers, "batch_size": BATCH_SIZE, "shuffle": SHUFFLE,
                "window_seconds": context.window_seconds,
            }  # fmt: skip
            programs = [context.program("omniloom", "sources_omniloom", **settings)]
            if kind == "JSONL":
                programs.append(context.program("energon", "sources_energon", **settings))
            if workers == 0:
                programs.append(context.program("floor", "sources_floor", **settings))
            readings = alternate(programs, rounds=context.pairs)
            ratios = {"energon": None} if kind == "JSONL" else None
            rows.append(row(f"{kind}, {workers} workers", values(readings, "samples_per_second"), bars=ratios))
            show_row(rows[-1], "samples/s")
    say("")
    return {
        "title": "Sources",
        "unit": "samples/s",
        "better": "higher",
        "settings": f"the {records:,} records of the text benchmark, batch {BATCH_SIZE}, shuffle buffer {SHUFFLE:,}; "
        f"Parquet in row groups of {ROW_GROUP:,}; {min(records, FILES_AT_MOST):,} plain files; Arrow as "
        "`save_to_disk` of Hugging Face writes it",
        "floor": "JSONL: json.loads of each line in order; Parquet: each row group decoded in order, its rows made "
        "Python values; Arrow: rows of a shuffled `datasets.Dataset` one by one; files: opened and read, shuffled",
        "rows": rows,
    }
