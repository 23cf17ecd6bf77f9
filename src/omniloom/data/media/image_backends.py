"""Who decodes JPEG: a table of backends that have to agree (tests/golden/test_image_colors.py).

Each takes the file and the mode (``RGB`` or ``L``) and gives uint8 (height, width[, 3]) as stored, not turned. JPEGs of
four colours go to simplejpeg, or to Pillow where that is chosen: torchvision does not undo Adobe's inverted inks. All
refuse a file that ends early; damage in the middle, of which libjpeg only warns, is told by simplejpeg alone.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image

from omniloom.data.media.image_options import Pixels
from omniloom.errors import ConfigError

_SIMPLEJPEG_COLORS = {"RGB": "RGB", "L": "GRAY"}


class CutShortError(ValueError):
    """The file ends before the image does."""


@dataclass(frozen=True, slots=True)
class JpegBackend:
    """A decoder of JPEG.

    Attributes:
        name: what options call it.
        modules: packages that have to be installed; none of omniloom's extras for the optional ones.
        decode: (file, mode, smallest (height, width) wanted or ``None``) to pixels. Raises CutShortError for files
            that end early, ValueError for other damage that it sees.
        needs_cuda: it runs on a CUDA device.
    """

    name: str
    modules: tuple[str, ...]
    decode: Callable[[bytes, str, tuple[int, int] | None], Pixels]
    needs_cuda: bool = False


def _by_simplejpeg(data: bytes, mode: str, shrink_to: tuple[int, int] | None) -> Pixels:
    """libjpeg-turbo without the GIL. What libjpeg only warns of, which Pillow does not tell, is an error."""
    pixels = _strict(data, _SIMPLEJPEG_COLORS[mode], shrink_to)
    return pixels if mode == "RGB" else pixels[..., 0]


def four_colors(data: bytes, mode: str, shrink_to: tuple[int, int] | None) -> Pixels:
    """Pixels of a CMYK or YCCK JPEG. Its inks are taken as inverted, as Adobe writes them and Pillow reads them too.

    Light of an ink and of black multiply: red = cyan' x black' / 255, where 255 means no ink.
    """
    inks = _strict(data, "CMYK", shrink_to).astype(np.uint16)
    colors = ((inks[..., :3] * inks[..., 3:] + 127) // 255).astype(np.uint8)
    return colors if mode == "RGB" else np.asarray(Image.fromarray(colors).convert(mode))


def _strict(data: bytes, colors: str, shrink_to: tuple[int, int] | None) -> Pixels:
    try:
        smallest = {} if shrink_to is None else _halved(data, shrink_to)
        pixels: Pixels = simplejpeg.decode_jpeg(data, colorspace=colors, **smallest)
    except ValueError as error:
        raise _told(error) from error
    return pixels


def _halved(data: bytes, shrink_to: tuple[int, int]) -> dict[str, int]:
    """The size at a half, a quarter or an eighth that is still large enough; the scales between are slower than 1."""
    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    for factor in (8, 4, 2):
        size = -(-height // factor), -(-width // factor)
        if size[0] >= shrink_to[0] and size[1] >= shrink_to[1]:
            return {"min_height": size[0], "min_width": size[1]}
    return {}


def _by_pillow(data: bytes, mode: str, shrink_to: tuple[int, int] | None) -> Pixels:
    from omniloom.data.media.image_pillow import open_jpeg  # noqa: PLC0415 - its options come from here

    try:
        with open_jpeg(data) as image:
            if shrink_to is not None:
                image.draft(None, (shrink_to[1], shrink_to[0]))
            return np.asarray(image.convert(mode))
    except OSError as error:
        raise _told(error) from error


def _by_torchvision(data: bytes, mode: str, shrink_to: tuple[int, int] | None) -> Pixels:
    """libjpeg-turbo as torchvision links it; it does not scale while decoding."""
    return _torchvision(data, mode, device="cpu")


def _by_nvjpeg(data: bytes, mode: str, shrink_to: tuple[int, int] | None) -> Pixels:
    """NVIDIA's decoder on the current CUDA device; the pixels come back to the host."""
    return _torchvision(data, mode, device="cuda")


def _torchvision(data: bytes, mode: str, *, device: str) -> Pixels:
    import torch  # noqa: PLC0415 - the loader works without torch until a tensor is wanted
    from torchvision.io import ImageReadMode, decode_jpeg  # noqa: PLC0415 - optional

    source = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    try:
        wanted = ImageReadMode.RGB if mode == "RGB" else ImageReadMode.GRAY
        planes = decode_jpeg(source, mode=wanted, device=device).cpu()
    except RuntimeError as error:
        raise _told(error) from error
    pixels: Any = planes.permute(1, 2, 0).contiguous().numpy() if mode == "RGB" else planes[0].numpy()
    return pixels  # type: ignore[no-any-return]


BACKENDS: dict[str, JpegBackend] = {
    backend.name: backend
    for backend in (
        JpegBackend("simplejpeg", ("simplejpeg",), _by_simplejpeg),
        JpegBackend("pillow", ("PIL",), _by_pillow),
        JpegBackend("torchvision", ("torchvision",), _by_torchvision),
        JpegBackend("nvjpeg", ("torchvision",), _by_nvjpeg, needs_cuda=True),
    )
}


@functools.cache
def jpeg_backend(name: str) -> JpegBackend:
    """The backend of that name.

    Raises:
        ConfigError: there is none, its packages are not installed, or it needs a CUDA device that is not there.
    """
    if name not in BACKENDS:
        raise ConfigError(f"image backend {name!r} found; expected one of {', '.join(map(repr, BACKENDS))}")
    missing = [module for module in BACKENDS[name].modules if importlib.util.find_spec(module) is None]
    if missing:
        raise ConfigError(f"the image backend {name!r} needs {', '.join(missing)}. Install it, or use 'simplejpeg'.")
    if BACKENDS[name].needs_cuda and not _has_cuda():
        raise ConfigError(f"the image backend {name!r} needs a CUDA device and there is none. Use 'simplejpeg'.")
    return BACKENDS[name]


def _has_cuda() -> bool:
    import torch  # noqa: PLC0415 - the loader works without torch until a tensor is wanted

    return torch.cuda.is_available()


def _told(error: Exception) -> ValueError:
    text = str(error)
    early = "premature end of jpeg file" in text.lower() or "truncated" in text.lower()
    return CutShortError(text) if early else ValueError(text)
