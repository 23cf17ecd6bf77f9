"""Image files made by hand, chunk by chunk, so that what they hold does not depend on the code under test."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image


def chunk(name: bytes, content: bytes, *, checksum: int | None = None) -> bytes:
    """A PNG chunk."""
    crc = zlib.crc32(name + content) if checksum is None else checksum
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", crc)


def packed_zeros(size_bytes: int) -> bytes:
    """So many zeros as zlib packs them, made without having them all in memory: peaks are measured later."""
    packer = zlib.compressobj(9)
    pieces = [packer.compress(bytes(min(1 << 16, size_bytes - start))) for start in range(0, size_bytes, 1 << 16)]
    return b"".join([*pieces, packer.flush()])


def png(
    width: int,
    height: int,
    *,
    bits: int,
    color: int,
    rows: bytes,
    before: bytes = b"",
    end: bytes | None = None,
    packed: bytes | None = None,
) -> bytes:
    """A PNG of raw rows, each of which begins with its filter byte; or of rows that are packed already."""
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    body = chunk(b"IHDR", header) + before + chunk(b"IDAT", packed or zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + body + (chunk(b"IEND", b"") if end is None else end)


def photograph(width: int = 256, height: int = 256, *, seed: int = 0) -> Image.Image:
    """Noise over slow waves: no part of it is grey or the same as another."""
    draw = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 70 * np.sin(x / (9 + 3 * k)) + 40 * np.cos(y / (7 + 2 * k)) for k in range(3)]
    pixels = np.stack(waves, axis=-1) + draw.normal(0, 6, (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, form: str = "JPEG", **settings: Any) -> bytes:
    """The image as a file."""
    stream = io.BytesIO()
    image.save(stream, form, **settings)
    return stream.getvalue()


def with_app1(jpeg: bytes, content: bytes) -> bytes:
    """A JPEG with an APP1 segment after its first marker."""
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content + jpeg[2:]


def exif(orientation: int, *, order: str = "<") -> bytes:
    """An EXIF block that says nothing but the orientation."""
    mark = b"II" if order == "<" else b"MM"
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return mark + struct.pack(order + "HIH", 42, 8, 1) + entry + struct.pack(order + "I", 0)


def ycck(red: int, green: int, blue: int) -> bytes:
    """A YCCK JPEG as Adobe writes it: luma and chroma of the negated colours, and a full fourth plane (C20)."""
    negated = Image.new("RGB", (64, 64), (255 - red, 255 - green, 255 - blue)).convert("YCbCr")
    planes = [255 - np.asarray(plane) for plane in negated.split()] + [np.zeros((64, 64), np.uint8)]
    merged = Image.merge("CMYK", [Image.fromarray(plane) for plane in planes])
    jpeg = bytearray(encoded(merged, quality=95, subsampling=0))
    jpeg[jpeg.index(b"Adobe") + 11] = 2
    return bytes(jpeg)
