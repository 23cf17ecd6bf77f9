"""The floor under image loading: simplejpeg (and torch's antialiased bicubic) on bytes in memory, one core."""

from collections.abc import Iterator
from pathlib import Path
from tarfile import open as open_tar

import simplejpeg
import torch
from meter import arguments, report, throughput

options = arguments("data", "mode", "window_seconds")
torch.set_num_threads(1)


def jpegs(limit: int = 200) -> list[bytes]:
    found: list[bytes] = []
    for path in sorted(Path(options.data).glob("*.tar")):
        with open_tar(path) as tar:
            for member in tar:
                if member.name.endswith(".jpg"):
                    found.append(tar.extractfile(member).read())
                if len(found) == limit:
                    return found
    return found


def images(sources: list[bytes]) -> Iterator[torch.Tensor]:
    while True:
        for jpeg in sources:
            pixels = torch.from_numpy(simplejpeg.decode_jpeg(jpeg, colorspace="RGB"))
            if options.mode == "resize":
                planes = pixels.permute(2, 0, 1).unsqueeze(0)
                pixels = torch.nn.functional.interpolate(planes, size=(336, 336), mode="bicubic", antialias=True)
            yield pixels


report(**throughput(images(jpegs()), size=lambda _: 1, warm_up_batches=20, window_seconds=options.window_seconds))
