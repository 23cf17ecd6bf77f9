"""What ``subflavors: {augmentation: true}`` means for images: their light and colours change, nothing else.

No pixel is moved. So boxes, texts, and what an answer says of left and right stay true, and so does the tile plan
that was made of the image's size. The changes are drawn from `random`, which the pipeline seeds from the sample's key:
the same sample is changed alike on any rank and after any restart.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from PIL import Image, ImageEnhance

from omniloom.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How far light and colours may change.

    Attributes:
        brightness: factor from ``1 - brightness`` to ``1 + brightness``.
        contrast: the same for contrast.
        saturation: the same for saturation.
    """

    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.2

    def __post_init__(self) -> None:
        values = self.brightness, self.contrast, self.saturation
        if not all(0 <= value < 1 for value in values):
            raise ConfigError(f"augmentation of {values}; each from 0 to below 1 expected")

    def apply(self, image: Image.Image) -> Image.Image:
        """A changed copy of an RGB image of the same size."""
        for enhancer, extent in (
            (ImageEnhance.Brightness, self.brightness),
            (ImageEnhance.Contrast, self.contrast),
            (ImageEnhance.Color, self.saturation),
        ):
            factor = random.uniform(1 - extent, 1 + extent)
            image = enhancer(image).enhance(factor)
        return image
