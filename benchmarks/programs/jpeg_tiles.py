"""What the programs of image work share: the files, the sizes, and how an image is cut into tiles."""

from __future__ import annotations

import tarfile
from pathlib import Path

import torch

CLIP, TILE, ROWS, COLUMNS = 336, 448, 2, 3


def jpegs(folder: Path, limit: int = 200) -> list[bytes]:
    """The first JPEGs of a folder's shards."""
    found: list[bytes] = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            found += [tar.extractfile(member).read() for member in tar if member.name.endswith(".jpg")]
        if len(found) >= limit:
            break
    return found[:limit]


def cut(image: torch.Tensor) -> list[torch.Tensor]:
    """Rows by columns of tiles of an image, channels first."""
    return [
        image[:, top : top + TILE, left : left + TILE].contiguous()
        for top in range(0, ROWS * TILE, TILE)
        for left in range(0, COLUMNS * TILE, TILE)
    ]
