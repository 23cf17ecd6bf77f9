"""JPEG photographs: images a second, decoded to uint8, and decoded and resized to 336 x 336."""

from __future__ import annotations

from typing import Any

from data_images import image_dataset, image_facts
from harness import Context, alternate, row, run_once, show_row, values, warm_page_cache
from peers import ensure_prepared

NAME = "images"
BATCH_SIZE, SHUFFLE, RUN_LENGTH = 16, 1_000, 100
MODES = {"decode": ("decoded to uint8", 2.0), "resize": ("decoded, resized to 336 x 336", 2.5)}


def prepared_images(context: Context) -> Any:
    """The image data set, made, indexed, and read once."""
    folder = image_dataset(context.data_dir, images=200 if context.quick else 2_000)
    ensure_prepared(context, folder, sample_type="CaptioningSample", field_map={"image": "jpg", "caption": "txt"})
    warm_page_cache(folder)
    return folder


def run(context: Context) -> dict[str, Any]:
    """Measure throughput of both modes, and how far the pixels are from Pillow's."""
    folder = prepared_images(context)
    facts = image_facts(folder)
    shuffle = 100 if context.quick else SHUFFLE
    rows = []
    for mode, (title, bar) in MODES.items():
        for workers in (0, 1, 2):
            settings = {"data": folder, "mode": mode, "window_seconds": context.window_seconds}
            loader = {
                **settings,
                "workers": workers,
                "batch_size": BATCH_SIZE,
                "shuffle": shuffle,
                "run_length": RUN_LENGTH,
            }
            programs = [
                context.program(side, f"images_{side}", warm_up_batches=10, **loader)
                for side in ("omniloom", "energon")
            ]
            if workers == 0:
                programs.append(context.program("floor", "images_floor", **settings))
            readings = alternate(programs, rounds=context.pairs)
            rows.append(
                row(f"{title}, {workers} workers", values(readings, "samples_per_second"), bars={"energon": bar})
            )
            show_row(rows[-1], "images/s")
    pixels = context.program("omniloom", "images_pixels", data=folder, images=100)
    return {
        "title": "JPEG photographs",
        "unit": "images/s",
        "better": "higher",
        "settings": f"{facts['samples']:,} JPEG photographs of {facts['width']} x {facts['height']}, "
        f"{facts['mean_jpeg_bytes'] / 1_000:.0f} kB on average, cut from {facts['source']}; batch {BATCH_SIZE}, "
        f"shuffle buffer {shuffle:,}, runs of {RUN_LENGTH} neighbours; "
        f"window {context.window_seconds:g} s after 10 batches",
        "floor": "simplejpeg (and torch's antialiased bicubic) on bytes in memory, one thread",
        "rows": rows,
        "facts": run_once(pixels) if pixels else {},
    }
