"""From an image to the normalised tiles that a vision tower sees, planned by size and made when they are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from omniloom.errors import ConfigError, SampleError
from omniloom.vlm.augmentation import Augmentation
from omniloom.vlm.layouts import FEWER_TILES, DynamicTiles, Layout, Squash, TilePlan
from omniloom.vlm.picture import open_picture, picture_size
from omniloom.vlm.statistics import PixelStatistics, pixel_statistics
from omniloom.vlm.tile_features import TileFeatures

Tiles = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class ImageProcessor:
    """What is done to images before a vision tower sees them.

    Attributes:
        tile_pixels: side of a tile.
        tile_tokens: tokens that the model makes of a tile, see `tile_tokens`.
        tower: whose pixel statistics are used, or the statistics.
        layout: how an image becomes tiles.
        augmentation: what is done to images of samples whose subflavors say ``augmentation: true``.
    """

    tile_pixels: int
    tile_tokens: int
    tower: str | PixelStatistics = "clip"
    layout: Layout = field(default_factory=Squash)
    augmentation: Augmentation = field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        if self.tile_pixels < 1 or self.tile_tokens < 1:
            raise ConfigError(f"tile_pixels={self.tile_pixels}, tile_tokens={self.tile_tokens}; at least 1 expected")
        _ = self.statistics  # an unknown tower is told now

    @property
    def statistics(self) -> PixelStatistics:
        """Mean and deviation of the tower's pixels."""
        return self.tower if isinstance(self.tower, PixelStatistics) else pixel_statistics(self.tower)

    def plan(self, image: Any, *, max_tiles: int | None = None) -> TilePlan:
        """The tiles that an image becomes. Reads no more than its header.

        Raises:
            SampleError: it is no image; ``bad-features``: it is features of which a tile has another number of tokens.
        """
        if isinstance(image, TileFeatures):
            tiles, tokens, _ = image.values.shape
            if tokens != self.tile_tokens:
                raise SampleError(
                    f"features of tiles with {tokens} tokens each found; the model's {self.tile_tokens} expected",
                    reason="bad-features",
                )
            return TilePlan((tiles, 1))
        return self.layout.plan(picture_size(image), tile_pixels=self.tile_pixels, max_tiles=max_tiles)

    def plan_within(self, images: Sequence[Any], *, max_tokens: int) -> list[TilePlan]:
        """The tiles of several images that share a budget of tokens; fewer tiles each where they would not fit.

        Args:
            images: the images.
            max_tokens: what they may take together. Where even one tile each takes more, that is what comes back.
        """
        limit = self.layout.max_tiles if isinstance(self.layout, DynamicTiles) else None
        plans = [self.plan(image) for image in images]
        while sum(plan.tiles for plan in plans) * self.tile_tokens > max_tokens and limit is not None and limit > 1:
            limit = FEWER_TILES.get(limit, limit - 1)
            plans = [self.plan(image, max_tiles=limit) for image in images]
        return plans

    def pixels(self, image: Any, plan: TilePlan, *, augment: bool = False) -> Tiles:
        """The tiles of an image.

        Args:
            image: see `open_picture`; or `TileFeatures`, which stay as they are.
            plan: what `plan` gave.
            augment: whether to change colours at random.

        Returns:
            float32 (tiles, 3, tile_pixels, tile_pixels), normalised; or (tiles, tokens, features).

        Raises:
            SampleError: it cannot be decoded.
        """
        if isinstance(image, TileFeatures):
            return image.values.astype(np.float32)
        opened = open_picture(image)
        if augment:
            opened = self.augmentation.apply(opened)
        return self.normalize(self.layout.cut(opened, plan, tile_pixels=self.tile_pixels))

    def frames(self, frames: Sequence[Any]) -> Tiles:
        """Frames of a video, one tile each.

        Args:
            frames: as images in `pixels`.

        Returns:
            float32 (frames, 3, tile_pixels, tile_pixels), normalised.
        """
        single: Layout = Squash() if isinstance(self.layout, DynamicTiles) else self.layout
        plan = TilePlan()
        tiles = [single.cut(open_picture(frame), plan, tile_pixels=self.tile_pixels)[0] for frame in frames]
        return self.normalize(tiles)

    def normalize(self, tiles: Sequence[Image.Image]) -> Tiles:
        """Tiles of 8-bit pixels with the tower's mean and deviation, channels first."""
        stacked = np.stack([np.asarray(tile) for tile in tiles]).transpose(0, 3, 1, 2)
        mean, deviation = (np.asarray(three, np.float32) for three in self.statistics)
        scale = (1 / (255 * deviation))[:, None, None]
        normalised: Tiles = np.multiply(stacked, scale, dtype=np.float32)
        normalised -= (mean / deviation)[:, None, None]
        return normalised


def tile_tokens(*, tile_pixels: int, patch_pixels: int, class_tokens: int = 0, pixel_shuffle: bool = False) -> int:
    """Tokens that a model makes of a tile.

    Args:
        tile_pixels: side of a tile.
        patch_pixels: side of a patch.
        class_tokens: class and register tokens that are kept.
        pixel_shuffle: whether four neighbours become one token.
    """
    tokens = (tile_pixels // patch_pixels) ** 2 + class_tokens
    return tokens // 4 if pixel_shuffle else tokens
