"""Images: bytes to arrays of 8-bit pixels, whatever the file's name says it is.

The header is read first (`probe`): format, size, orientation. JPEG goes to libjpeg-turbo or to another backend
(`image_backends`), everything else to Pillow. What is not plain is done as `ImageOptions` says.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from omniloom.data.media.image_backends import CutShortError, four_colors, jpeg_backend
from omniloom.data.media.image_kinds import ImageKind
from omniloom.data.media.image_options import ImageOptions, Pixels, check_pixels, truncated
from omniloom.data.media.image_orientation import UPRIGHT, orient_pixels
from omniloom.data.media.image_partial import partial_jpeg
from omniloom.data.media.image_pillow import decode_by_pillow
from omniloom.data.media.image_png import completed_png
from omniloom.data.media.probe import SOS_MARKER, ImageHeader, image_size, jpeg_segments, probe_image
from omniloom.errors import SampleError

__all__ = ["DEFAULT_OPTIONS", "DecodedImage", "Pixels", "decode_image", "image_size", "read_image", "resize_image"]

DEFAULT_OPTIONS = ImageOptions()


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """An image and what became of it.

    Attributes:
        pixels: uint8 (height, width, channels), or (height, width) for L.
        header: what the file's header says.
        fraction: the part of the image that was in the file; below 1 only where ``min_fraction`` allows it.
    """

    pixels: Pixels
    header: ImageHeader
    fraction: float = 1.0


def decode_image(data: bytes, *, mode: str = "RGB", options: ImageOptions = DEFAULT_OPTIONS) -> Pixels:
    """The pixels of an image file.

    Args:
        data: content of the file.
        mode: ``RGB``, ``L`` or ``RGBA``.
        options: orientation, background, limits, frames, partial files.

    Returns:
        uint8 (height, width, channels) for RGB and RGBA, (height, width) for L; 0 to 255.

    Raises:
        SampleError: with the reason ``empty-member``, ``not-an-image``, ``html``, ``svg``, ``too-large``,
            ``truncated-image``, ``corrupt-image``, ``animated-image``, ``no-such-frame`` or ``unsupported-depth``.
        ConfigError: the format or the backend needs a package that is not installed.
    """
    return read_image(data, mode=mode, options=options).pixels


def read_image(data: bytes, *, mode: str = "RGB", options: ImageOptions = DEFAULT_OPTIONS) -> DecodedImage:
    """The pixels of an image file, its header, and how much of it was there. As `decode_image` otherwise."""
    header = probe_image(data)
    check_pixels(header, options)
    if header.damaged:
        # One text for all files, so that Python tells it once.
        warnings.warn("the metadata of an image is damaged; its pixels are taken as they are stored", stacklevel=3)
    if header.kind.name == "JPEG":
        pixels, fraction = _read_jpeg(data, header, mode, options)
    else:
        pixels, fraction = _read_other(data, header.kind, mode, options)
    if options.orient and header.orientation != UPRIGHT:
        pixels = orient_pixels(pixels, header.orientation)
    return DecodedImage(pixels, header, fraction)


def _read_jpeg(data: bytes, header: ImageHeader, mode: str, options: ImageOptions) -> tuple[Pixels, float]:
    if mode == "RGBA":
        colors, fraction = _read_jpeg(data, header, "RGB", options)
        return np.dstack((colors, np.full(colors.shape[:2], 255, np.uint8))), fraction
    inks = header.channels == 4 and options.backend != "pillow"
    decode = four_colors if inks else jpeg_backend(options.backend).decode
    try:
        return decode(data, mode, options.shrink_to), 1.0
    except CutShortError as error:
        pixels, fraction = _partial(data, header, mode)
        if pixels is None or options.min_fraction == 1 or fraction < options.min_fraction:
            raise truncated("JPEG", data, fraction, options.min_fraction) from error
        return pixels, fraction
    except ValueError as error:
        if all(marker != SOS_MARKER for marker, _, _ in jpeg_segments(data)):
            raise truncated("JPEG", data, 0.0, options.min_fraction) from error
        raise SampleError(f"damaged JPEG of {len(data):,} bytes: {error}", reason="corrupt-image") from error


def _partial(data: bytes, header: ImageHeader, mode: str) -> tuple[Pixels | None, float]:
    """Pixels of a JPEG that is cut short and the fraction that is there; ``None`` and 0 where nothing can be had."""
    if header.channels == 4:
        return None, 0.0
    try:
        return partial_jpeg(data, mode)
    except ValueError:
        return None, 0.0


def _read_other(data: bytes, kind: ImageKind, mode: str, options: ImageOptions) -> tuple[Pixels, float]:
    try:
        return decode_by_pillow(data, kind, mode, options), 1.0
    except SampleError as error:
        if error.reason != "truncated-image" or kind.name != "PNG" or options.min_fraction == 1:
            raise
    whole, fraction = completed_png(data, options)
    return decode_by_pillow(whole, kind, mode, options), fraction


def resize_image(image: Any, size: tuple[int, int]) -> Any:
    """A uint8 image tensor (channels, height, width) at another size: bicubic with antialiasing, as Pillow's.

    Args:
        image: uint8 tensor (channels, height, width).
        size: (height, width) in pixels.
    """
    from torch.nn import functional  # noqa: PLC0415 - the module is imported without torch

    resized = functional.interpolate(image[None], size=size, mode="bicubic", antialias=True, align_corners=False)
    return resized[0]
