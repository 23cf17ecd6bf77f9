"""What kind of picture some bytes are, by their first bytes, whatever the file is called."""

from __future__ import annotations

# Part name, and where its mark stands: (byte offset, bytes). All marks of a row must be there.
_MARKS: tuple[tuple[str, tuple[tuple[int, bytes], ...]], ...] = (
    ("jpg", ((0, b"\xff\xd8\xff"),)),
    ("png", ((0, b"\x89PNG\r\n\x1a\n"),)),
    ("gif", ((0, b"GIF87a"),)),
    ("gif", ((0, b"GIF89a"),)),
    ("webp", ((0, b"RIFF"), (8, b"WEBP"))),
    ("bmp", ((0, b"BM"),)),
    ("tif", ((0, b"II*\0"),)),
    ("tif", ((0, b"MM\0*"),)),
    ("tif", ((0, b"II+\0"),)),
    ("jp2", ((0, b"\0\0\0\x0cjP  \r\n\x87\n"),)),
    ("jp2", ((0, b"\xff\x4f\xff\x51"),)),
    ("avif", ((4, b"ftypavif"),)),
    ("avif", ((4, b"ftypavis"),)),
    ("heic", ((4, b"ftypheic"),)),
    ("heic", ((4, b"ftypheix"),)),
    ("heic", ((4, b"ftypmif1"),)),
    ("jxl", ((0, b"\xff\x0a"),)),
    ("jxl", ((0, b"\0\0\0\x0cJXL \r\n\x87\n"),)),
    ("ppm", ((0, b"P6"),)),
    ("pgm", ((0, b"P5"),)),
)

# File name extensions that mean the same as a part name; an extension outside this table claims nothing.
_EXTENSIONS: dict[str, str] = {
    "jpg": "jpg", "jpeg": "jpg", "jpe": "jpg", "jfif": "jpg", "png": "png", "apng": "png", "gif": "gif", "webp": "webp",
    "bmp": "bmp", "dib": "bmp", "tif": "tif", "tiff": "tif", "jp2": "jp2", "j2k": "jp2", "jpx": "jp2", "avif": "avif",
    "heic": "heic", "heif": "heic", "jxl": "jxl", "ppm": "ppm", "pgm": "pgm",
}  # fmt: skip

_VIDEO_MARKS: tuple[tuple[str, tuple[tuple[int, bytes], ...]], ...] = (
    ("mp4", ((4, b"ftyp"),)),
    ("mkv", ((0, b"\x1a\x45\xdf\xa3"),)),
    ("avi", ((0, b"RIFF"), (8, b"AVI "))),
    ("mpg", ((0, b"\x00\x00\x01\xba"),)),
    ("flv", ((0, b"FLV\x01"),)),
)

IMAGE_PARTS: frozenset[str] = frozenset(name for name, _ in _MARKS)


def image_part(data: bytes) -> str | None:
    """Part name for these bytes, such as ``jpg`` or ``png``; ``None`` when they are no known kind of picture."""
    for name, marks in _MARKS:
        if all(data.startswith(mark, offset) for offset, mark in marks):
            return name
    return None


def media_part(data: bytes) -> str | None:
    """Part name for the bytes of a picture or a video, such as ``jpg`` or ``mp4``; ``None`` when they are neither."""
    found = image_part(data)
    if found is None:
        found = next((name for name, marks in _VIDEO_MARKS if all(data.startswith(m, at) for at, m in marks)), None)
    return found


def claimed_part(file_name: str) -> str | None:
    """Part name that the extension of ``file_name`` claims; ``None`` when it claims no known kind of picture."""
    _, dot, extension = file_name.rpartition(".")
    return _EXTENSIONS.get(extension.lower()) if dot else None


def describe(data: bytes) -> str:
    """What bytes that are no picture look like, for a message."""
    start = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not data:
        return "an empty file"
    if start.startswith((b"<!doctype html", b"<html")):
        return "an HTML page"
    if start.startswith(b"<svg") or (start.startswith(b"<?xml") and b"<svg" in start):
        return "an SVG drawing"
    return f"bytes that start with {data[:8].hex(' ')}"
