"""Kinds of pictures by content, against files that Pillow writes."""

from __future__ import annotations

import io

import pytest
from PIL import Image, features

from omniloom.data.convert.image_type import IMAGE_PARTS, claimed_part, describe, image_part


@pytest.mark.parametrize(
    ("pillow_format", "part"),
    [
        ("JPEG", "jpg"), ("PNG", "png"), ("GIF", "gif"), ("WEBP", "webp"), ("BMP", "bmp"), ("TIFF", "tif"),
        ("JPEG2000", "jp2"), ("AVIF", "avif"), ("PPM", "ppm"),
    ],
)  # fmt: skip
def test_what_pillow_writes_is_recognised(pillow_format: str, part: str) -> None:
    needs = {"WEBP": "webp", "JPEG2000": "jpg_2000", "AVIF": "avif"}.get(pillow_format)
    if needs and not features.check(needs):
        pytest.skip(f"this Pillow has no {needs}")
    stream = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 40)).save(stream, pillow_format)
    assert image_part(stream.getvalue()) == part
    assert part in IMAGE_PARTS


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (b"", "an empty file"),
        (b"\n <!DOCTYPE html><html>", "an HTML page"),
        (b"<?xml version='1.0'?><svg xmlns='x'/>", "an SVG drawing"),
        (b"<svg/>", "an SVG drawing"),
        (b"hello", "bytes that start with 68 65 6c 6c 6f"),
    ],
)
def test_what_is_no_picture_is_described(data: bytes, seen: str) -> None:
    assert image_part(data) is None
    assert describe(data) == seen


@pytest.mark.parametrize(
    ("name", "part"),
    [("a/b.JPEG", "jpg"), ("x.tiff", "tif"), ("x.png", "png"), ("noext", None), ("x.dat", None), ("a.jpg/b", None)],
)
def test_what_an_extension_claims(name: str, part: str | None) -> None:
    assert claimed_part(name) == part
