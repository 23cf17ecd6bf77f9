"""Small text records: samples a second with 0, 1 and 2 workers."""

from __future__ import annotations

from typing import Any

from data_text import text_dataset
from harness import Context, alternate, row, say, show_row, values, warm_page_cache
from peers import ensure_prepared

NAME = "text"
BATCH_SIZE, SHUFFLE, RUN_LENGTH = 64, 1_000, 100
BARS = {"energon": 10.0, "webdataset": 1.5}


def run(context: Context) -> dict[str, Any]:
    """Measure; see the title for what."""
    records = 20_000 if context.quick else 200_000
    folder = text_dataset(context.data_dir, records=records)
    ensure_prepared(context, folder, sample_type="TextSample", field_map={"text": "txt"})
    warm_page_cache(folder)
    settings = {"data": folder, "batch_size": BATCH_SIZE, "shuffle": SHUFFLE, "window_seconds": context.window_seconds}
    rows = []
    for workers in (0, 1, 2):
        loader = {**settings, "workers": workers, "run_length": RUN_LENGTH, "warm_up_batches": 50}
        programs = [context.program(side, f"text_{side}", **loader) for side in ("omniloom", "energon", "webdataset")]
        if workers == 0:
            programs.append(context.program("floor", "text_floor", **settings))
        readings = alternate(programs, rounds=context.pairs)
        rows.append(row(f"{workers} workers", values(readings, "samples_per_second"), bars=BARS))
        show_row(rows[-1], "samples/s")
    say("")
    return {
        "title": "Small text records",
        "unit": "samples/s",
        "better": "higher",
        "settings": f"{records:,} records of about 400 bytes in plain tars, batch {BATCH_SIZE}, "
        f"shuffle buffer {SHUFFLE:,}, "
        f"runs of {RUN_LENGTH} neighbours; window {context.window_seconds:g} s after 50 batches",
        "floor": "one os.pread a sample of the indexed span, nothing else, one core",
        "rows": rows,
    }
