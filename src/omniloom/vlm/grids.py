"""Which grid of tiles an image is cut into. Only numbers: the size of an image, from its header, is enough.

Sizes are (width, height), grids (columns, rows). The three rules are InternVL's and NVLM's closest aspect ratio,
Megatron's area-weighted variant of it, and the best resolution of LLaVA-NeXT.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from omniloom.errors import ConfigError

Grid = tuple[int, int]
Size = tuple[int, int]

AREA_FACTOR_LIMIT = 0.6
"""Beyond this share, more pixels than the image has do not count for a grid in the area-weighted rule."""


@cache
def tile_grids(max_tiles: int, min_tiles: int = 1) -> tuple[Grid, ...]:
    """All grids of ``min_tiles`` to ``max_tiles`` tiles, those with fewer tiles first, then those with fewer columns.

    Raises:
        ConfigError: ``max_tiles`` is below ``min_tiles`` or 1.
    """
    if not 1 <= min_tiles <= max_tiles:
        raise ConfigError(f"min_tiles={min_tiles}, max_tiles={max_tiles}; 1 <= min_tiles <= max_tiles expected")
    sides = range(1, max_tiles + 1)
    grids = [(columns, rows) for columns in sides for rows in sides if min_tiles <= columns * rows <= max_tiles]
    return tuple(sorted(grids, key=lambda grid: (grid[0] * grid[1], grid[0])))


def closest_grid(size: Size, *, grids: Sequence[Grid], tile_pixels: int) -> Grid:
    """The grid whose aspect ratio is closest to the image's.

    Of two that are equally close, the later one is taken if the image has more than half of its pixels.

    Args:
        size: (width, height) of the image in pixels.
        grids: what there is to choose from, in order.
        tile_pixels: side of a tile.
    """
    width, height = size
    aspect, area = width / height, width * height
    best, best_distance = grids[0], math.inf
    for columns, rows in grids:
        distance = abs(aspect - columns / rows)
        has_pixels = area > 0.5 * tile_pixels * tile_pixels * columns * rows
        if distance < best_distance or (distance == best_distance and has_pixels):
            best, best_distance = (columns, rows), distance
    return best


def area_weighted_grid(size: Size, *, grids: Sequence[Grid], tile_pixels: int) -> Grid:
    """The grid that fits the image best in shape and in area: a tall order of tiles for few pixels does not pay.

    Args:
        size: (width, height) of the image in pixels.
        grids: what there is to choose from, in order; the earliest of equals is taken.
        tile_pixels: side of a tile.
    """
    width, height = size
    aspect, area = width / height, width * height

    def score(grid: Grid) -> float:
        columns, rows = grid
        target = columns / rows
        share = min(columns * rows * tile_pixels * tile_pixels / area, AREA_FACTOR_LIMIT)
        return share * min(target / aspect, aspect / target)

    return max(grids, key=score)  # the first of equals


def best_resolution(size: Size, *, resolutions: Sequence[Size]) -> Size:
    """LLaVA-NeXT's choice: most of the image's own pixels used, then least of the canvas wasted.

    Args:
        size: (width, height) of the image in pixels.
        resolutions: (width, height) of the canvases to choose from, in order.
    """
    width, height = size

    def rank(canvas: Size) -> tuple[int, int]:
        scale = min(canvas[0] / width, canvas[1] / height)
        fitted = int(width * scale) * int(height * scale)
        effective = min(fitted, width * height)
        return effective, effective - canvas[0] * canvas[1]

    return max(resolutions, key=rank)


def fitted_size(size: Size, *, canvas: Size) -> Size:
    """(width, height) of an image that is scaled to touch two sides of a canvas.

    Args:
        size: (width, height) of the image.
        canvas: (width, height) to fit into.
    """
    width, height = size
    across, down = canvas[0] / width, canvas[1] / height
    if across < down:
        return canvas[0], min(math.ceil(height * across), canvas[1])
    return min(math.ceil(width * down), canvas[0]), canvas[1]
