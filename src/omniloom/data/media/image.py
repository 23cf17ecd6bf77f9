"""Images: bytes to arrays of 8-bit pixels.

JPEG goes to libjpeg-turbo (simplejpeg), everything else to Pillow; both give the same pixels.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image, UnidentifiedImageError

from omniloom.errors import SampleError

Pixels = npt.NDArray[np.uint8]

_JPEG = b"\xff\xd8\xff"
_COLORS = {"RGB": "RGB", "L": "GRAY"}
_CHANNELS = {"RGB": 3, "L": 1, "RGBA": 4}


def decode_image(data: bytes, *, mode: str = "RGB") -> Pixels:
    """The pixels of an image file.

    Args:
        data: content of the file.
        mode: ``RGB``, ``L`` or ``RGBA``.

    Returns:
        (height, width, channels) for RGB and RGBA, (height, width) for L; 0 to 255.

    Raises:
        SampleError: empty (``empty-member``), no image (``not-an-image``), cut short or damaged (``corrupt-image``).
    """
    if not data:
        raise SampleError("the image has no bytes", reason="empty-member")
    if data[:3] == _JPEG and mode in _COLORS:
        pixels = _decode_jpeg(data, mode)
        if pixels is not None:
            return pixels
    return _decode_other(data, mode)


def _decode_jpeg(data: bytes, mode: str) -> Pixels | None:
    """Pixels of an ordinary JPEG; ``None`` for kinds that are left to Pillow (four colours)."""
    try:
        _, _, colorspace, _ = simplejpeg.decode_jpeg_header(data)
        if colorspace in ("CMYK", "YCCK"):
            return None
        pixels: Pixels = simplejpeg.decode_jpeg(data, colorspace=_COLORS[mode])
    except ValueError as error:
        raise SampleError(f"damaged JPEG of {len(data)} bytes: {error}", reason="corrupt-image") from error
    return pixels if mode == "RGB" else pixels[..., 0]


def _decode_other(data: bytes, mode: str) -> Pixels:
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image.convert(mode))
    except UnidentifiedImageError as error:
        raise SampleError(
            f"{len(data)} bytes that begin with {data[:8]!r} are no known image format", reason="not-an-image"
        ) from error
    except Image.DecompressionBombError as error:
        raise SampleError(str(error), reason="too-large") from error
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise SampleError(f"damaged image of {len(data)} bytes: {error}", reason="corrupt-image") from error


def image_size(data: bytes) -> tuple[int, int]:
    """(width, height) in pixels, from the header alone.

    Raises:
        SampleError: it is no image.
    """
    if data[:3] == _JPEG:
        try:
            height, width, _, _ = simplejpeg.decode_jpeg_header(data)
        except ValueError as error:
            raise SampleError(f"damaged JPEG of {len(data)} bytes: {error}", reason="corrupt-image") from error
        return width, height
    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.size
    except (OSError, ValueError, SyntaxError) as error:
        raise SampleError(f"{len(data)} bytes are no image: {error}", reason="not-an-image") from error


def resize_image(image: Any, size: tuple[int, int]) -> Any:
    """A uint8 image tensor (channels, height, width) at another size: bicubic with antialiasing, as Pillow's.

    Args:
        image: uint8 tensor (channels, height, width).
        size: (height, width) in pixels.
    """
    from torch.nn import functional  # noqa: PLC0415 - the module is imported without torch

    resized = functional.interpolate(image[None], size=size, mode="bicubic", antialias=True, align_corners=False)
    return resized[0]
