"""One core's work on JPEG bytes in memory by torchvision or SPDL (``--out``); the shapes are those of image_work.py.

SPDL scales within FFmpeg, whose bicubic differs from that of Pillow and torch by some levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from jpeg_tiles import CLIP, COLUMNS, ROWS, TILE, cut, jpegs
from meter import arguments, report, throughput

options = arguments("data", "mode", "out", "window_seconds")
torch.set_num_threads(1)


def torchvision_work() -> dict[str, Callable[[bytes], object]]:
    from torchvision.io import ImageReadMode, decode_jpeg  # noqa: PLC0415 - one of the two is installed
    from torchvision.transforms.v2 import InterpolationMode  # noqa: PLC0415 - one of the two is installed
    from torchvision.transforms.v2.functional import resize  # noqa: PLC0415 - one of the two is installed

    def decoded(jpeg: bytes) -> torch.Tensor:
        return decode_jpeg(torch.frombuffer(bytearray(jpeg), dtype=torch.uint8), mode=ImageReadMode.RGB)

    def sized(image: torch.Tensor, height: int, width: int) -> torch.Tensor:
        return resize(image, [height, width], interpolation=InterpolationMode.BICUBIC, antialias=True).contiguous()

    def tiles(jpeg: bytes) -> list[torch.Tensor]:
        image = decoded(jpeg)
        return [*cut(sized(image, ROWS * TILE, COLUMNS * TILE)), sized(image, TILE, TILE)]

    return {
        "decode": lambda jpeg: decoded(jpeg).contiguous(),
        "resize": lambda jpeg: sized(decoded(jpeg), CLIP, CLIP),
        "tile": tiles,
    }


def spdl_work() -> dict[str, Callable[[bytes], object]]:
    import spdl.io  # noqa: PLC0415 - one of the two is installed

    def loaded(jpeg: bytes, size: tuple[int, int] | None) -> torch.Tensor:
        frames = spdl.io.decode_packets(spdl.io.demux_image(jpeg), filter_desc=scaling(size))
        pixels = spdl.io.to_torch(spdl.io.convert_frames(frames))
        return pixels.permute(2, 0, 1).contiguous()

    def scaling(size: tuple[int, int] | None) -> str:
        if size is None:
            return "format=pix_fmts=rgb24"
        return f"scale=width={size[1]}:height={size[0]}:flags=bicubic,format=pix_fmts=rgb24"

    def tiles(jpeg: bytes) -> list[torch.Tensor]:
        return [*cut(loaded(jpeg, (ROWS * TILE, COLUMNS * TILE))), loaded(jpeg, (TILE, TILE))]

    return {
        "decode": lambda jpeg: loaded(jpeg, None),
        "resize": lambda jpeg: loaded(jpeg, (CLIP, CLIP)),
        "tile": tiles,
    }


def done(sources: list[bytes]) -> Iterator[object]:
    work = {"torchvision": torchvision_work, "spdl": spdl_work}[options.out]()[options.mode]
    while True:
        for jpeg in sources:
            yield work(jpeg)


report(
    **throughput(
        done(jpegs(Path(options.data))), size=lambda _: 1, warm_up_batches=20, window_seconds=options.window_seconds
    )
)
