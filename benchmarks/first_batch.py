"""Time to the first batch of decoded images and peak memory, with a shuffle buffer of 2,000."""

from __future__ import annotations

from typing import Any

from data_images import image_facts
from harness import Context, alternate, row, show_row, values
from images import BATCH_SIZE, RUN_LENGTH, prepared_images

NAME = "first_batch"
SHUFFLE = 2_000
MORE_BATCHES = 20
TIME_BARS = {0: 20.0, 1: 5.0, 2: 5.0}
MEMORY_BAR = 3.0


def run(context: Context) -> dict[str, Any]:
    """Time runs are not watched; memory is sampled in runs of their own, over the first batches."""
    folder = prepared_images(context)
    shuffle = 100 if context.quick else SHUFFLE
    times, memory = [], []
    for workers in (0, 1, 2):
        settings = {
            "data": folder,
            "workers": workers,
            "batch_size": BATCH_SIZE,
            "shuffle": shuffle,
            "run_length": RUN_LENGTH,
        }
        sides = ("omniloom", "energon")
        programs = [context.program(side, f"first_batch_{side}", more_batches=0, **settings) for side in sides]
        readings = alternate(programs, rounds=context.pairs)
        times.append(
            row(f"{workers} workers", values(readings, "first_batch_seconds"), bars={"energon": TIME_BARS[workers]})
        )
        show_row(times[-1], "s")
        programs = [
            context.program(side, f"first_batch_{side}", more_batches=MORE_BATCHES, **settings) for side in sides
        ]
        readings = alternate(programs, rounds=max(1, context.pairs // 2), watch_memory=True)
        peaks = {side: [peak / 1e6 for peak in ones] for side, ones in values(readings, "peak_pss_bytes").items()}
        memory.append(row(f"{workers} workers", peaks, bars={"energon": MEMORY_BAR}))
        show_row(memory[-1], "MB")
    return {
        "title": "First batch and memory",
        "settings": f"{image_facts(folder)['samples']:,} photographs as above, decoded to uint8, batch {BATCH_SIZE}, "
        f"shuffle buffer {shuffle:,}; the clock runs from get_loader to the first batch, "
        "the start of workers included, in a process that has imported torch; "
        f"memory is the highest sum of the proportional set sizes of all processes, "
        f"from start to {MORE_BATCHES} batches later",
        "tables": [
            {"title": "Time to the first batch", "unit": "s", "better": "lower", "rows": times},
            {"title": "Peak memory", "unit": "MB", "better": "lower", "rows": memory},
        ],
    }
