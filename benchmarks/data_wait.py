"""How long a training waits for data whose step takes nine tenths of the loader's own rate."""

from __future__ import annotations

from typing import Any

from harness import Context, alternate, row, show_row, values
from images import prepared_images

NAME = "data_wait"
WORKERS, BATCH_SIZE, PERCENT = 2, 8, 90
MICRO_BATCHES = (1, 8)
BAR_PERCENT = 2.0


def run(context: Context) -> dict[str, Any]:
    """The share of its time that a simulated training waits; the bar is the project's own."""
    rows, alone = [], []
    for micro_batches in MICRO_BATCHES:
        program = context.program(
            "omniloom",
            "data_wait_omniloom",
            data=prepared_images(context),
            workers=WORKERS,
            batch_size=BATCH_SIZE,
            micro_batches=micro_batches,
            percent=PERCENT,
            warm_up_batches=10,
            window_seconds=2 * context.window_seconds * (2 if micro_batches > 1 else 1),
        )
        readings = alternate([program], rounds=context.pairs)
        found = values(readings, "waited_percent")["omniloom"]
        alone += values(readings, "alone_per_second")["omniloom"]
        of_steps = f"steps of {micro_batches} batch{'es' * (micro_batches > 1)}"
        rows.append(row(f"waiting, % of the time, {of_steps}", {"omniloom": found}, at_most=BAR_PERCENT))
        show_row(rows[-1], "%")
    rows.append(row("the loader alone, images/s", {"omniloom": alone}))
    show_row(rows[-1], "images/s")
    return {
        "title": "Waiting for data",
        "unit": "",
        "better": "lower",
        "settings": f"photographs padded to 336 x 336 for CLIP with captions as tokens, batch {BATCH_SIZE}, {WORKERS} "
        "workers, batches made ahead and taken by a thread as the trainer does; the loader's own rate is measured "
        f"first, then a step sleeps for {10_000 / PERCENT:.0f} % of the time that its batches take alone; bar: "
        f"{BAR_PERCENT:g} % of the time waiting",
        "rows": rows,
    }
