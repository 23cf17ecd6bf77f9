"""What kind of picture some bytes are, by their first bytes, whatever the file is called.

An array of NumPy stands for a picture, too: it holds what a vision tower has made of one.
"""

from __future__ import annotations

from omniloom.data.media.image_kinds import KINDS, sniff_image

_PICTURES = [kind for kind in KINDS if kind.magics and kind.name != "PDF"]

# File name extensions that mean the same as a part name; an extension outside this table claims nothing.
_EXTENSIONS = {extension: kind.extensions[0] for kind in _PICTURES for extension in kind.extensions}

_VIDEO_MARKS: tuple[tuple[str, tuple[tuple[int, bytes], ...]], ...] = (
    ("mp4", ((4, b"ftyp"),)),
    ("mkv", ((0, b"\x1a\x45\xdf\xa3"),)),
    ("avi", ((0, b"RIFF"), (8, b"AVI "))),
    ("mpg", ((0, b"\x00\x00\x01\xba"),)),
    ("flv", ((0, b"FLV\x01"),)),
)

FEATURES_PART = "features.npy"
"""Name of the part that holds the features of an image, in place of the image."""
_NUMPY = b"\x93NUMPY"

IMAGE_PARTS: frozenset[str] = frozenset(kind.extensions[0] for kind in _PICTURES)


def image_part(data: bytes) -> str | None:
    """Part name for these bytes, such as ``jpg`` or ``png``; ``None`` when they are no known kind of picture."""
    kind = sniff_image(data)
    return kind.extensions[0] if kind in _PICTURES else None


def media_part(data: bytes) -> str | None:
    """Part name for the bytes of a picture, a video or features; ``None`` when they are none of these."""
    found = image_part(data)
    if found is None and data.startswith(_NUMPY):
        return FEATURES_PART
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
