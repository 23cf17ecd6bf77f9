"""Which way up images are seen (C23): EXIF, XMP, damaged metadata, and points that turn with the pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from omniloom.data.media.image import decode_image, image_size
from omniloom.data.media.image_options import ImageOptions
from omniloom.data.media.image_orientation import orient_points
from tests.unit.image_files import encoded, exif, with_app1

WIDE = Image.new("RGB", (40, 20), (0, 0, 0))
WIDE.paste((255, 255, 255), (0, 0, 8, 8))  # the stored image's upper left corner is white
WIDE_JPEG = encoded(WIDE, quality=95, subsampling=0)
XMP = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta><rdf:Description tiff:Orientation="%d"/>\xff\xfe</x:xmpmeta>'
# Where the white corner is seen, by EXIF's own table of the eight values.
CORNERS = {1: "top left", 2: "top right", 3: "bottom right", 4: "bottom left", 5: "top left", 6: "top right",
           7: "bottom right", 8: "bottom left"}  # fmt: skip


def _corner(pixels: Any) -> str:
    rows, columns = np.nonzero(pixels[..., 0] > 128)
    height, width = pixels.shape[:2]
    return f"{'top' if rows.mean() < height / 2 else 'bottom'} {'left' if columns.mean() < width / 2 else 'right'}"


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_orientation(orientation: int, order: str) -> None:
    data = with_app1(WIDE_JPEG, b"Exif\0\0" + exif(orientation, order=order))
    pixels = decode_image(data)
    assert pixels.shape == ((40, 20, 3) if orientation >= 5 else (20, 40, 3))
    assert _corner(pixels) == CORNERS[orientation]
    assert image_size(data) == (pixels.shape[1], pixels.shape[0])
    assert _corner(decode_image(data, options=ImageOptions(orient=False))) == "top left"
    assert image_size(data, orient=False) == (40, 20)


@pytest.mark.parametrize("form", ["PNG", "WEBP", "TIFF", "AVIF"])
def test_orientation_in_other_formats(form: str) -> None:
    block = Image.Exif()
    block[0x0112] = 6
    data = encoded(WIDE, form, exif=block)
    assert decode_image(data).shape == (40, 20, 3)
    assert _corner(decode_image(data)) == CORNERS[6]
    assert image_size(data) == (20, 40)


@pytest.mark.parametrize("orientation", [0, 9])
def test_orientations_that_do_not_exist(orientation: int) -> None:
    assert decode_image(with_app1(WIDE_JPEG, b"Exif\0\0" + exif(orientation))).shape == (20, 40, 3)


@pytest.mark.parametrize(
    "block", [b"Exif\0\0" + exif(6)[:11], b"Exif\0\0garbage", b"Exif\0\0" + exif(6)[:2] + b"\xff" * 9]
)
def test_damaged_metadata_costs_a_warning_and_no_image(block: bytes) -> None:
    with pytest.warns(UserWarning, match="metadata of an image is damaged") as told:
        pixels = decode_image(with_app1(WIDE_JPEG, block))
    assert (pixels.shape, len(told)) == ((20, 40, 3), 1)


def test_orientation_only_in_xmp_that_is_not_utf8() -> None:
    assert decode_image(with_app1(WIDE_JPEG, XMP % 6)).shape == (40, 20, 3)
    both = with_app1(with_app1(WIDE_JPEG, XMP % 6), b"Exif\0\0" + exif(1))
    assert decode_image(both).shape == (20, 40, 3)  # EXIF goes first


@pytest.mark.parametrize("orientation", range(1, 9))
def test_points_turn_with_the_pixels(orientation: int) -> None:
    data = with_app1(WIDE_JPEG, b"Exif\0\0" + exif(orientation))
    pixels = decode_image(data)
    box = orient_points([[0, 0], [8, 8]], orientation, size=(40, 20))
    left, right = sorted(box[:, 0].astype(int))
    top, bottom = sorted(box[:, 1].astype(int))
    inside = np.zeros(pixels.shape[:2], bool)
    inside[top:bottom, left:right] = True
    assert (pixels[inside] > 128).all()
    assert (pixels[~inside] < 128).all()
