"""How an image becomes square tiles for a vision tower: one frozen layout for each of the ways that models use.

A layout has two halves. ``plan`` needs the image's size alone and says how many tiles there will be, so that tokens are
counted before a pixel is decoded. ``cut`` makes the tiles. Resizing is Pillow's bicubic with antialiasing, as in the
reference processors, so pixels agree with theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from PIL import Image

from omniloom.errors import ConfigError
from omniloom.vlm.grids import Grid, Size, area_weighted_grid, best_resolution, closest_grid, fitted_size, tile_grids

_BICUBIC = Image.Resampling.BICUBIC
# A page of a web site, 1,000 pixels by 60,000, is a few megabytes; a square of its height, and what resizing to the
# width of a tile makes of a line of pixels, are many gigabytes.
_MOST_SIDES = 200  # short sides of an image whose middle is all that is seen
_MOST_SIDE_PIXELS = 8_000
_LEAST_FACTOR = 4  # so many times the tile: what is lost by two steps of making smaller is below a level
# Fewer tiles to try where an image would take too many tokens, as in Megatron's encoder.
FEWER_TILES: dict[int, int] = {12: 8, 8: 6, 6: 4, 4: 2, 2: 1}


class TilePlan(NamedTuple):
    """The tiles that an image becomes.

    Attributes:
        grid: (columns, rows) of tiles.
        thumbnail: whether a small copy of the whole image is one more tile.
    """

    grid: Grid = (1, 1)
    thumbnail: bool = False

    @property
    def tiles(self) -> int:
        """Number of tiles, thumbnail included."""
        return self.grid[0] * self.grid[1] + self.thumbnail


class Layout(Protocol):
    """A way to make square tiles of an image."""

    def plan(self, size: Size, *, tile_pixels: int, max_tiles: int | None = None) -> TilePlan:
        """The tiles of an image of this size; ``max_tiles``: fewer than the layout's own limit."""

    def cut(self, image: Image.Image, plan: TilePlan, *, tile_pixels: int) -> list[Image.Image]:
        """The tiles, square RGB images of ``tile_pixels``."""


@dataclass(frozen=True)
class Squash:
    """The whole image in one tile, its aspect ratio given up (SigLIP, and Megatron without tiling)."""

    def plan(self, size: Size, *, tile_pixels: int, max_tiles: int | None = None) -> TilePlan:
        """One tile."""
        return TilePlan()

    def cut(self, image: Image.Image, plan: TilePlan, *, tile_pixels: int) -> list[Image.Image]:
        """The resized image."""
        return [_resized(image, (tile_pixels, tile_pixels))]


@dataclass(frozen=True)
class PadToSquare:
    """One tile: the image in the middle of a square (LLaVA-1.5).

    Attributes:
        colour: of the border; LLaVA takes the mean pixel of CLIP.
    """

    colour: tuple[int, int, int] = (122, 116, 104)

    def plan(self, size: Size, *, tile_pixels: int, max_tiles: int | None = None) -> TilePlan:
        """One tile."""
        return TilePlan()

    def cut(self, image: Image.Image, plan: TilePlan, *, tile_pixels: int) -> list[Image.Image]:
        """The padded, then resized image."""
        least = tile_pixels * _LEAST_FACTOR
        return [_resized(padded(_reduced(image, least=least), colour=self.colour), (tile_pixels, tile_pixels))]


@dataclass(frozen=True)
class CentreCrop:
    """One tile: the shorter side resized to the tile's, the middle of the longer one kept (CLIP)."""

    def plan(self, size: Size, *, tile_pixels: int, max_tiles: int | None = None) -> TilePlan:
        """One tile."""
        return TilePlan()

    def cut(self, image: Image.Image, plan: TilePlan, *, tile_pixels: int) -> list[Image.Image]:
        """The resized, then cropped image."""
        image = _middle(image, most_sides=_MOST_SIDES)
        width, height = image.size
        if width <= height:
            size = tile_pixels, int(tile_pixels * height / width)
        else:
            size = int(tile_pixels * width / height), tile_pixels
        left, top = (size[0] - tile_pixels) // 2, (size[1] - tile_pixels) // 2
        return [_resized(image, size).crop((left, top, left + tile_pixels, top + tile_pixels))]


@dataclass(frozen=True)
class AnyResolution:
    """The image fitted into the best of several canvases, which are cut into tiles; a copy of it whole comes first.

    Attributes:
        canvases: (columns, rows) of tiles of each canvas, in order: of two that suit an image equally, the first is
            taken. The order is that of transformers, whose pairs are (height, width).
    """

    canvases: tuple[Grid, ...] = ((2, 1), (1, 2), (2, 2), (1, 3), (3, 1))

    def plan(self, size: Size, *, tile_pixels: int, max_tiles: int | None = None) -> TilePlan:
        """The tiles of the best canvas and one more."""
        canvases = [c for c in self.canvases if max_tiles is None or c[0] * c[1] < max_tiles]
        if not canvases:
            return TilePlan()
        pixels = [(columns * tile_pixels, rows * tile_pixels) for columns, rows in canvases]
        best = best_resolution(size, resolutions=pixels)
        return TilePlan((best[0] // tile_pixels, best[1] // tile_pixels), thumbnail=True)

    def cut(self, image: Image.Image, plan: TilePlan, *, tile_pixels: int) -> list[Image.Image]:
        """The whole image squashed into a tile, then the tiles of the canvas, row by row."""
        whole = _resized(image, (tile_pixels, tile_pixels))
        if not plan.thumbnail:
            return [whole]
        canvas = plan.grid[0] * tile_pixels, plan.grid[1] * tile_pixels
        size = fitted_size(image.size, canvas=canvas)
        filled = Image.new("RGB", canvas)
        filled.paste(_resized(image, size), ((canvas[0] - size[0]) // 2, (canvas[1] - size[1]) // 2))
        return [whole, *_tiles(filled, plan.grid, tile_pixels)]


@dataclass(frozen=True)
class DynamicTiles:
    """As many tiles as the image's shape asks for (InternVL, NVLM), the thumbnail last.

    Attributes:
        max_tiles: tiles at most, without the thumbnail.
        min_tiles: tiles at least.
        thumbnail: whether an image of several tiles also comes whole.
        choice: ``closest`` aspect ratio, or ``area-weighted``.
    """

    max_tiles: int = 12
    min_tiles: int = 1
    thumbnail: bool = True
    choice: Literal["closest", "area-weighted"] = "closest"

    def __post_init__(self) -> None:
        tile_grids(self.max_tiles, self.min_tiles)
        if self.choice not in _CHOICES:
            raise ConfigError(f"choice={self.choice!r} found; {' or '.join(_CHOICES)} expected")

    def plan(self, size: Size, *, tile_pixels: int, max_tiles: int | None = None) -> TilePlan:
        """The tiles of the chosen grid, and the thumbnail where there are several."""
        limit = min(self.max_tiles, max_tiles) if max_tiles else self.max_tiles
        grids = tile_grids(limit, min(self.min_tiles, limit))
        grid = _CHOICES[self.choice](size, grids=grids, tile_pixels=tile_pixels)
        return self.with_grid(grid)

    def with_grid(self, grid: Grid) -> TilePlan:
        """The plan of a grid that was chosen before, as offline data sets store it."""
        return TilePlan(grid, thumbnail=self.thumbnail and grid[0] * grid[1] > 1)

    def cut(self, image: Image.Image, plan: TilePlan, *, tile_pixels: int) -> list[Image.Image]:
        """The tiles of the image squashed into the grid, row by row, then the thumbnail."""
        size = plan.grid[0] * tile_pixels, plan.grid[1] * tile_pixels
        tiles = _tiles(_resized(image, size), plan.grid, tile_pixels)
        return [*tiles, _resized(image, (tile_pixels, tile_pixels))] if plan.thumbnail else tiles


_CHOICES: dict[str, Callable[..., Grid]] = {"closest": closest_grid, "area-weighted": area_weighted_grid}

LAYOUTS: dict[str, type[Layout]] = {
    "squash": Squash,
    "pad": PadToSquare,
    "crop": CentreCrop,
    "anyres": AnyResolution,
    "tiles": DynamicTiles,
}
"""The layouts under the names that recipes use."""


def _middle(image: Image.Image, *, most_sides: int) -> Image.Image:
    """The middle of an image that is longer than so many of its short sides, none of whose ends would be seen."""
    width, height = image.size
    most = most_sides * min(width, height)
    if max(width, height) <= most:
        return image
    left, top = max(0, (width - most) // 2), max(0, (height - most) // 2)
    return image.crop((left, top, left + min(width, most), top + min(height, most)))


def _reduced(image: Image.Image, *, least: int) -> Image.Image:
    """A long image made smaller by a whole factor, where a square of it would not fit into memory.

    Args:
        image: the image.
        least: sides are not made smaller than this, nor than `_MOST_SIDE_PIXELS`.
    """
    factor = max(image.size) // max(least, _MOST_SIDE_PIXELS)
    return image.reduce(factor) if factor > 1 else image


def padded(image: Image.Image, *, colour: tuple[int, int, int]) -> Image.Image:
    """The image in the middle of a square as large as its longer side."""
    width, height = image.size
    if width == height:
        return image
    side = max(width, height)
    square = Image.new("RGB", (side, side), colour)
    square.paste(image, ((side - width) // 2, (side - height) // 2))
    return square


def _resized(image: Image.Image, size: Size) -> Image.Image:
    return image if image.size == size else image.resize(size, _BICUBIC)


def _tiles(image: Image.Image, grid: Grid, side: int) -> list[Image.Image]:
    columns, rows = grid
    return [
        image.crop((column * side, row * side, (column + 1) * side, (row + 1) * side))
        for row in range(rows)
        for column in range(columns)
    ]
