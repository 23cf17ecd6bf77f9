"""Known colours through every backend and format: within 4 levels where the format loses something, else exact.

The expected values are the colours that went in, not what any decoder gave.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image, features
from tests.unit.image_files import encoded, photograph, ycck

from omniloom.data.media.image import decode_image
from omniloom.data.media.image_backends import BACKENDS, jpeg_backend
from omniloom.data.media.image_options import ImageOptions
from omniloom.errors import ConfigError, SampleError

COLORS = [(200, 30, 40), (10, 220, 60), (40, 50, 230), (0, 0, 0), (255, 255, 255), (128, 128, 128), (250, 200, 10)]


def _backend(name: str) -> Any:
    reason = _why_not(name)
    return pytest.param(name, marks=pytest.mark.skipif(reason is not None, reason=reason or "it runs"))


def _why_not(name: str) -> str | None:
    """Why a backend cannot run here; ``None``: it can."""
    try:
        jpeg_backend(name)
    except ConfigError as error:
        return str(error)
    return None


def _off(pixels: Any, color: tuple[int, ...]) -> int:
    return int(np.abs(pixels.astype(int) - np.array(color)).max())


@pytest.mark.parametrize("backend", [_backend(name) for name in BACKENDS])
@pytest.mark.parametrize("color", COLORS)
@pytest.mark.parametrize("settings", [{"subsampling": 0}, {"subsampling": 2}, {"progressive": True}])
def test_jpeg(backend: str, color: tuple[int, int, int], settings: dict[str, Any]) -> None:
    jpeg = encoded(Image.new("RGB", (64, 48), color), quality=95, **settings)
    pixels = decode_image(jpeg, options=ImageOptions(backend=backend))
    assert (pixels.shape, pixels.dtype) == ((48, 64, 3), np.uint8)
    assert _off(pixels, color) <= 4


@pytest.mark.parametrize("backend", [_backend(name) for name in BACKENDS])
def test_jpeg_of_four_colors(backend: str) -> None:  # C20
    options = ImageOptions(backend=backend)
    cmyk = encoded(Image.new("RGB", (64, 64), (200, 30, 40)).convert("CMYK"), quality=95)
    for jpeg in (cmyk, ycck(200, 30, 40)):
        pixels = decode_image(jpeg, options=options)
        assert pixels.shape == (64, 64, 3)
        assert _off(pixels, (200, 30, 40)) <= 4


@pytest.mark.parametrize("backend", [_backend(name) for name in BACKENDS])
def test_jpeg_of_one_color(backend: str) -> None:
    jpeg = encoded(Image.new("L", (32, 32), 77), quality=95)
    options = ImageOptions(backend=backend)
    assert _off(decode_image(jpeg, options=options), (77, 77, 77)) <= 1
    assert _off(decode_image(jpeg, mode="L", options=options), (77,)) <= 1


def test_backends_agree_on_a_photograph() -> None:
    jpeg = encoded(photograph(), quality=90)
    found = [
        decode_image(jpeg, options=ImageOptions(backend=name)).astype(int)
        for name in BACKENDS
        if _why_not(name) is None
    ]
    assert len(found) >= 2
    assert all(np.abs(other - found[0]).max() <= 4 for other in found[1:])


@pytest.mark.parametrize("backend", [_backend(name) for name in BACKENDS])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_no_backend_takes_a_file_that_ends_early(backend: str, share: float) -> None:
    jpeg = encoded(photograph(), quality=90)
    with pytest.raises(SampleError) as error:
        decode_image(jpeg[: int(len(jpeg) * share)], options=ImageOptions(backend=backend))
    assert error.value.reason == "truncated-image"


def test_a_backend_without_its_device_is_told() -> None:
    reason = _why_not("nvjpeg")
    if reason is None:
        pytest.skip("there is a CUDA device")
    assert "needs" in reason
    assert "simplejpeg" in reason


@pytest.mark.parametrize(
    ("form", "settings", "off"),
    [
        ("PNG", {}, 0),
        ("BMP", {}, 0),
        ("TIFF", {}, 0),
        ("TIFF", {"compression": "tiff_lzw"}, 0),
        ("PPM", {}, 0),
        ("TGA", {}, 0),
        ("GIF", {}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("WEBP", {"quality": 95}, 4),
        ("JPEG2000", {}, 0),
        ("AVIF", {"quality": 95}, 4),
        ("HEIF", {"quality": 95}, 4),
        ("JXL", {"lossless": True}, 0),
        ("PDF", {"quality": 95}, 4),
    ],
)
@pytest.mark.parametrize("color", COLORS)
def test_other_formats(form: str, settings: dict[str, Any], off: int, color: tuple[int, int, int]) -> None:
    if form == "HEIF":
        pytest.importorskip("pillow_heif", reason="extra 'heif'").register_heif_opener()
    if form == "JXL":
        pytest.importorskip("pillow_jxl", reason="extra 'jxl'")
    if form == "PDF":
        pytest.importorskip("pypdfium2", reason="extra 'pdf'")
    if form == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    pixels = decode_image(encoded(Image.new("RGB", (64, 48), color), form, **settings))
    scale = 2 if form == "PDF" else 1  # drawn at 144 dots per inch, 72 of which Pillow writes
    assert pixels.shape == (48 * scale, 64 * scale, 3)
    inner = pixels[2:-2, 2:-2]  # at the border of a page the pixels mix with the paper
    assert _off(inner, color) <= off
