"""How long a training waits for data whose step takes nine tenths of the loader's own rate."""

from __future__ import annotations

from typing import Any

from harness import Context, alternate, row, show_row, values
from images import prepared_images

NAME = "data_wait"
WORKERS, BATCH_SIZE, PERCENT = 2, 8, 90
BAR_PERCENT = 2.0


def run(context: Context) -> dict[str, Any]:
    """The share of its time that a simulated training waits; the bar is the project's own."""
    program = context.program(
        "omniloom",
        "data_wait_omniloom",
        data=prepared_images(context),
        workers=WORKERS,
        batch_size=BATCH_SIZE,
        percent=PERCENT,
        warm_up_batches=10,
        window_seconds=2 * context.window_seconds,
    )
    readings = alternate([program], rounds=context.pairs)
    found = values(readings, "waited_percent")["omniloom"]
    rows = [row(f"waiting, % of the time ({WORKERS} workers)", {"omniloom": found}, at_most=BAR_PERCENT)]
    show_row(rows[-1], "%")
    rows.append(row("the loader alone, images/s", values(readings, "alone_per_second")))
    show_row(rows[-1], "images/s")
    return {
        "title": "Waiting for data",
        "unit": "",
        "better": "lower",
        "settings": f"photographs padded to 336 x 336 for CLIP with captions as tokens, batch {BATCH_SIZE}; the "
        f"loader's own rate is measured first, then each batch is slept over for {10_000 / PERCENT:.0f} % of the time "
        f"that it takes alone; bar: {BAR_PERCENT:g} % of the time waiting",
        "rows": rows,
    }
