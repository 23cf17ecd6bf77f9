"""Images of every format by Pillow: one frame of them, as 8-bit pixels in the mode that is wanted, not turned."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from omniloom.data.media.image_kinds import UNMARKED_FORMATS, ImageKind, load_plugin
from omniloom.data.media.image_options import ImageOptions, Pixels, truncated
from omniloom.data.media.image_pdf import pdf_pages, render_pdf
from omniloom.data.media.image_png import plain_png
from omniloom.data.media.probe import is_cut
from omniloom.errors import ConfigError, SampleError

_SIXTEEN_BITS = frozenset(("I;16", "I;16L", "I;16B", "I;16N"))
_WHOLE_RANGE = frozenset(("PNG", "PPM"))  # their 32-bit mode holds 0 to 65,535
_WITH_ALPHA = frozenset(("LA", "La", "PA", "RGBA", "RGBa"))


def decode_by_pillow(data: bytes, kind: ImageKind, mode: str, options: ImageOptions) -> Pixels:
    """Pixels of an image file, as stored.

    Args:
        data: content of the file.
        kind: its format.
        mode: ``RGB``, ``L`` or ``RGBA``.
        options: background, frame and limits.

    Returns:
        uint8 (height, width, channels), or (height, width) for L; 0 to 255.

    Raises:
        SampleError: ``truncated-image``, ``corrupt-image``, ``animated-image``, ``no-such-frame``,
            ``unsupported-depth``.
        ConfigError: the format needs an extra that is not installed.
    """
    load_plugin(kind)
    if kind.name == "PDF":
        page = _frame_number(options, pdf_pages(data) if options.frame != 0 else 1, data)
        return np.asarray(_in_mode(render_pdf(data, page=page), kind, mode, options))
    source = plain_png(data) if kind.name == "PNG" else data
    formats = [kind.name] if kind.magics else list(UNMARKED_FORMATS)
    try:
        with Image.open(io.BytesIO(source), formats=formats) as image:
            if options.frame != 0:
                image.seek(_frame_number(options, getattr(image, "n_frames", 1), data))
            return np.asarray(_in_mode(image, kind, mode, options))
    except (SampleError, ConfigError):
        raise
    except MemoryError as error:  # the pixels fit, by `max_pixels`: it is the file that asks for more than it should
        raise SampleError(
            f"the {kind.name} image of {len(data):,} bytes asks for too much memory", reason="memory"
        ) from error
    except Image.DecompressionBombError as error:
        raise SampleError(f"{error} Raise PIL.Image.MAX_IMAGE_PIXELS too.", reason="too-large") from error
    except Exception as error:  # Pillow and its plug-ins raise what they like on damaged input
        if is_cut(kind, data) or (isinstance(error, OSError) and "truncated" in str(error).lower()):
            raise truncated(kind.name, data, None, options.min_fraction) from error
        raise SampleError(
            f"damaged {kind.name} image of {len(data):,} bytes: {error}", reason="corrupt-image"
        ) from error


def open_jpeg(data: bytes) -> Image.Image:
    """A JPEG that is read when its pixels are asked for."""
    return Image.open(io.BytesIO(data), formats=["JPEG"])


def _frame_number(options: ImageOptions, frames: int, data: bytes) -> int:
    if options.frame == "refuse":
        if frames > 1:
            raise SampleError(f"the image of {len(data):,} bytes has {frames} frames or pages", reason="animated-image")
        return 0
    number = frames // 2 if options.frame == "middle" else options.frame
    if number >= frames:
        raise SampleError(
            f"the image has {frames} frames or pages; number {number} (counted from 0) was wanted",
            reason="no-such-frame",
        )
    return number


def _in_mode(image: Image.Image, kind: ImageKind, mode: str, options: ImageOptions) -> Image.Image:
    image.load()
    if image.mode in _SIXTEEN_BITS or image.mode in ("I", "F"):
        image = _eight_bits(image, kind)
    if image.mode in _WITH_ALPHA or "transparency" in image.info:
        layer = image.convert("RGBA")
        if mode == "RGBA":
            return layer
        below = Image.new("RGBA", layer.size, (*options.background, 255))
        return Image.alpha_composite(below, layer).convert(mode)
    return image if image.mode == mode else image.convert(mode)


def _eight_bits(image: Image.Image, kind: ImageKind) -> Image.Image:
    """The upper eight of sixteen bits: what Pillow takes of 16-bit colours, so that greys and colours agree."""
    if image.mode == "F" or (image.mode == "I" and kind.name not in _WHOLE_RANGE):
        raise SampleError(
            f"the {kind.name} image has values of 32 bits, whose black and white are not known. Scale them to 8 or 16.",
            reason="unsupported-depth",
        )
    values: np.ndarray[Any, Any] = np.asarray(image)
    grey = Image.fromarray((values >> 8).astype(np.uint8))
    key = image.info.get("transparency")
    if key is not None:
        grey = grey.convert("LA")
        grey.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8)))
    return grey
