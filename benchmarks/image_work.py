"""What one core does with JPEG bytes in memory: decode, resize for CLIP, cut into tiles.

Beside Pillow, and beside torchvision and SPDL where ``--image-peer-python`` names an interpreter that has them.
"""

from __future__ import annotations

from typing import Any

from data_images import image_facts
from harness import Context, Program, alternate, row, run_once, show_row, values
from images import prepared_images

NAME = "image_work"
IMAGE_PEERS = ("torchvision", "spdl")
MODES = {
    "decode": ("decoded", 1.5),
    "resize": ("decoded, resized to 336 x 336", 2.0),
    "shrink": ("decoded at half size (opt-in), resized to 224 x 224", 1.5),
    "tile": ("decoded, 3 x 2 tiles of 448 x 448 and a thumbnail", 1.2),
}


def run(context: Context) -> dict[str, Any]:
    """Images a second of one core, by omniloom and by Pillow, and what the opt-in decoding changes in the pixels."""
    folder = prepared_images(context)
    facts = image_facts(folder)
    rows = []
    for mode, (title, bar) in MODES.items():
        settings = {"data": folder, "mode": mode, "window_seconds": context.window_seconds}
        ours = context.program("omniloom", "image_work", out="omniloom", **settings)
        theirs = context.program("omniloom", "image_work", out="pillow", **settings)
        peers = (
            []
            if mode == "shrink"
            else [context.program(side, "image_work_peers", out=side, **settings) for side in IMAGE_PEERS]
        )
        readings = alternate([ours, theirs and Program("pillow", theirs.command), *peers], rounds=context.pairs)
        compared = {"pillow": bar, **{side: None for side in IMAGE_PEERS if side in readings}}
        rows.append(row(title, values(readings, "samples_per_second"), bars=compared))
        show_row(rows[-1], "images/s")
    settings = {"data": folder, "mode": "difference", "window_seconds": 1, "out": "omniloom"}
    pixels = context.program("omniloom", "image_work", **settings)
    return {
        "title": "Work on JPEG photographs, one core",
        "unit": "images/s",
        "better": "higher",
        "settings": f"{facts['width']} x {facts['height']} pixels, {facts['mean_jpeg_bytes'] / 1_000:.0f} kB on "
        f"average, bytes in memory; uint8 tensors of the same shapes on both sides; bicubic with antialiasing; "
        f"window {context.window_seconds:g} s",
        "rows": rows,
        "facts": run_once(pixels) if pixels else {},
    }
