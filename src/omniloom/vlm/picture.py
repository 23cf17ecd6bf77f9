"""Images as samples hold them (bytes, lazily decoded, arrays, tensors, Pillow's): their size, and their pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from omniloom.data.media.image import decode_image, image_size
from omniloom.data.media.lazy import Lazy, resolve
from omniloom.errors import SampleError

CHANNEL_COUNTS = (1, 3, 4)


def picture_size(value: Any) -> tuple[int, int]:
    """(width, height) in pixels of an image, from its header where it is not decoded yet.

    Raises:
        SampleError: it is no image.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return image_size(bytes(value))
    if isinstance(value, Lazy):
        return value.size()
    if isinstance(value, Image.Image):
        return value.size
    if hasattr(value, "shape"):
        height, width = _sides(value)
        return width, height
    raise SampleError(f"a {type(value).__name__} is no image", reason="not-an-image")


def open_picture(value: Any) -> Image.Image:
    """The image as Pillow's, in RGB.

    Args:
        value: content of an image file, a `Lazy`, an image of Pillow, or an array or tensor of uint8 (0 to 255) or
            floats (0 to 1), with channels first or last.

    Raises:
        SampleError: it is no image, or cannot be decoded.
    """
    value = resolve(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return Image.fromarray(decode_image(bytes(value)))
    if isinstance(value, Image.Image):
        return value if value.mode == "RGB" else _flattened(value)
    if not hasattr(value, "shape"):
        raise SampleError(f"a {type(value).__name__} is no image", reason="not-an-image")
    pixels = np.asarray(value)
    if pixels.ndim == 3 and pixels.shape[0] in CHANNEL_COUNTS and _sides(value) == pixels.shape[1:]:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.dtype != np.uint8:
        pixels = np.clip(pixels * 255.0 + 0.5, 0, 255).astype(np.uint8)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return image if image.mode == "RGB" else _flattened(image)


def _sides(value: Any) -> tuple[int, int]:
    """(height, width) of an array or tensor; channels first where both ends could be channels."""
    shape = tuple(int(extent) for extent in value.shape)
    if len(shape) == 2:
        return shape[0], shape[1]
    if len(shape) == 3 and shape[0] in CHANNEL_COUNTS:
        return shape[1], shape[2]
    if len(shape) == 3 and shape[2] in CHANNEL_COUNTS:
        return shape[0], shape[1]
    raise SampleError(f"an array of shape {shape} is no image: 1, 3 or 4 channels expected", reason="not-an-image")


def _flattened(image: Image.Image) -> Image.Image:
    """RGB, transparency laid on white: as decoding a file does it."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    layered = image.convert("RGBA")
    ground = Image.new("RGBA", layered.size, "white")
    ground.alpha_composite(layered)
    return ground.convert("RGB")
