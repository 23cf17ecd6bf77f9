"""One core's work on JPEG bytes in memory: decoded, resized, cut into tiles; by omniloom or by Pillow (``--out``).

Both sides end with uint8 tensors, channels first, of the same shapes: 336 x 336 for CLIP; three by two tiles of
448 x 448 and a thumbnail; 224 x 224 from an image that was decoded at half its size.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import torch
from jpeg_tiles import CLIP, COLUMNS, ROWS, TILE, cut, jpegs
from meter import arguments, report, throughput
from PIL import Image

from omniloom import decode_image, resize_image
from omniloom.data.media.image_options import ImageOptions

SMALL = 224
SHRINK = ImageOptions(shrink_to=(SMALL, SMALL))
options = arguments("data", "mode", "out", "window_seconds")
torch.set_num_threads(1)


def planes(pixels: numpy.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(2, 0, 1)


def pillow(jpeg: bytes) -> Image.Image:
    return Image.open(io.BytesIO(jpeg)).convert("RGB")


def resized(image: Image.Image, height: int, width: int) -> torch.Tensor:
    small = image.resize((width, height), Image.Resampling.BICUBIC)
    return planes(numpy.array(small)).contiguous()


def tiles_by_omniloom(jpeg: bytes) -> list[torch.Tensor]:
    image = planes(decode_image(jpeg))
    return [*cut(resize_image(image, (ROWS * TILE, COLUMNS * TILE))), resize_image(image, (TILE, TILE))]


def tiles_by_pillow(jpeg: bytes) -> list[torch.Tensor]:
    image = pillow(jpeg)
    return [*cut(resized(image, ROWS * TILE, COLUMNS * TILE)), resized(image, TILE, TILE)]


WORK: dict[tuple[str, str], Callable[[bytes], object]] = {
    ("decode", "omniloom"): lambda jpeg: planes(decode_image(jpeg)).contiguous(),
    ("decode", "pillow"): lambda jpeg: planes(numpy.array(pillow(jpeg))).contiguous(),
    ("resize", "omniloom"): lambda jpeg: resize_image(planes(decode_image(jpeg)), (CLIP, CLIP)),
    ("resize", "pillow"): lambda jpeg: resized(pillow(jpeg), CLIP, CLIP),
    ("shrink", "omniloom"): lambda jpeg: resize_image(planes(decode_image(jpeg, options=SHRINK)), (SMALL, SMALL)),
    ("shrink", "pillow"): lambda jpeg: resized(drafted(jpeg), SMALL, SMALL),
    ("tile", "omniloom"): tiles_by_omniloom,
    ("tile", "pillow"): tiles_by_pillow,
}


def drafted(jpeg: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(jpeg))
    image.draft("RGB", (SMALL, SMALL))
    return image


def difference(sources: list[bytes]) -> dict[str, float]:
    """How far 224 x 224 pixels from a shrunk decoding are from those of a full one, in levels."""
    gaps = []
    for jpeg in sources:
        full = resize_image(planes(decode_image(jpeg)), (SMALL, SMALL)).int()
        gaps.append((WORK["shrink", "omniloom"](jpeg).int() - full).abs())
    levels = torch.stack(gaps).float()
    return {"mean": levels.mean().item(), "largest": levels.max().item(), "percentile_99": levels.flatten().kthvalue(
        int(levels.numel() * 0.99)).values.item()}  # fmt: skip


def done(sources: list[bytes]) -> Iterator[object]:
    work = WORK[options.mode, options.out]
    while True:
        for jpeg in sources:
            yield work(jpeg)


found = jpegs(Path(options.data))
if options.mode == "difference":
    report(shrunk_pixels_off_by_levels=difference(found[:50]))
else:
    report(**throughput(done(found), size=lambda _: 1, warm_up_batches=20, window_seconds=options.window_seconds))
