"""What is done with images that are not plain: one description for the decoder, lint and everybody else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from omniloom.data.media.probe import ImageHeader
from omniloom.errors import ConfigError, SampleError

Pixels = npt.NDArray[np.uint8]
Mode = Literal["RGB", "L", "RGBA"]

MAX_PIXELS = 89_478_485
"""A quarter of a gibibyte of RGB; also where Pillow begins to warn of decompression bombs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOptions:
    """How images are decoded.

    Attributes:
        orient: turn the pixels as EXIF (or, without it, XMP) says; ``False`` leaves them as they are stored, except
            in TIFF, HEIF and JPEG XL, whose decoders always turn them.
        background: (red, green, blue), 0 to 255, on which transparent pixels are laid in the modes RGB and L.
        max_pixels: width times height at most, judged by the header before a pixel is made; more is ``too-large``.
        min_fraction: which part of an image that is cut short has to be there, 0 to 1. 1 refuses every such image;
            below that, JPEG and PNG images are taken, what is missing left grey (JPEG) or black (PNG). The fraction is
            that of the rows, and in a progressive JPEG that of the passes over the rows.
        frame: which frame of an animation, or page of a TIFF or PDF: a number from 0, ``middle``, or ``refuse``,
            which refuses images of more than one.
        shrink_to: (height, width) in pixels below which an image is not wanted to fall: a JPEG may be decoded at a
            half, a quarter or an eighth of its size as long as it is not smaller on either side. For images that are
            shrunk afterwards; quicker, and not quite the same pixels (docs/reliability.md). ``None``: never.
        backend: which decoder takes JPEG: a name of ``image_backends.BACKENDS``.
    """

    orient: bool = True
    background: tuple[int, int, int] = (255, 255, 255)
    max_pixels: int = MAX_PIXELS
    min_fraction: float = 1.0
    frame: int | Literal["middle", "refuse"] = 0
    shrink_to: tuple[int, int] | None = None
    backend: str = "simplejpeg"

    def __post_init__(self) -> None:
        if len(self.background) != 3 or not all(0 <= level <= 255 for level in self.background):
            raise ConfigError(f"background={self.background!r} found; expected three levels from 0 to 255")
        if self.max_pixels < 1:
            raise ConfigError(f"max_pixels={self.max_pixels} found; expected at least 1")
        if not 0 <= self.min_fraction <= 1:
            raise ConfigError(f"min_fraction={self.min_fraction} found; expected a number from 0 to 1")
        if self.frame not in ("middle", "refuse") and (isinstance(self.frame, str) or self.frame < 0):
            raise ConfigError(f"frame={self.frame!r} found; expected a number from 0, 'middle' or 'refuse'")
        if self.shrink_to is not None and min(self.shrink_to) < 1:
            raise ConfigError(f"shrink_to={self.shrink_to} found; expected (height, width) in pixels")


def check_pixels(header: ImageHeader, options: ImageOptions) -> None:
    """Refuse an image that has too many pixels, by its header. Raises SampleError ``too-large``."""
    if header.width * header.height > options.max_pixels:
        raise SampleError(
            f"the {header.kind.name} image says it has {header.width:,} x {header.height:,} pixels, more than "
            f"max_pixels={options.max_pixels:,}. Leave the sample out, shrink the image, or raise the limit.",
            reason="too-large",
        )


def truncated(kind: str, data: bytes, fraction: float | None, least: float) -> SampleError:
    """The refusal of an image that is cut short."""
    there = "" if fraction is None else f"; {fraction:.0%} of it is there, min_fraction={least:g} is wanted"
    return SampleError(
        f"the {kind} image of {len(data):,} bytes is cut short{there}. Get the whole file, or leave the sample out.",
        reason="truncated-image",
    )
