"""Which way up an image is meant to be seen: EXIF orientation, its pixels and its points.

The eight values are those of the EXIF and TIFF 6.0 specifications: how the stored rows and columns are to be turned.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

UPRIGHT = 1
ORIENTATION_TAG = 0x0112
_XMP = re.compile(rb"tiff:Orientation(?:\s*=\s*[\"']|>)\s*([1-8])\b")
_VALUE_SIZES = {1: "B", 3: "H", 4: "I"}

# How each value is undone: (swap rows and columns first, mirror top to bottom, mirror left to right).
_TURNS: dict[int, tuple[bool, bool, bool]] = {
    1: (False, False, False),
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}


class DamagedMetadataError(ValueError):
    """The EXIF block is not what its own header says; the pixels are not touched by that."""


def exif_orientation(block: bytes) -> int | None:
    r"""The orientation in an EXIF block: a TIFF header and its first directory.

    Args:
        block: the bytes after ``Exif\0\0`` in a JPEG, or the content of an ``eXIf`` or ``EXIF`` chunk.

    Returns:
        1 to 8; ``None`` where the block says nothing of it. Values that do not exist (0, 9) count as upright.

    Raises:
        DamagedMetadataError: the block cannot be read.
    """
    block = block.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None:
        raise DamagedMetadataError("EXIF begins neither with II nor with MM")
    try:
        version, start = struct.unpack_from(order + "HI", block, 2)
        (entries,) = struct.unpack_from(order + "H", block, start)
        if version != 42:
            raise DamagedMetadataError(f"EXIF has the TIFF version {version}, not 42")
        for number in range(entries):
            tag, value_type, _ = struct.unpack_from(order + "HHI", block, start + 2 + 12 * number)
            if tag == ORIENTATION_TAG:
                (value,) = struct.unpack_from(
                    order + _VALUE_SIZES.get(value_type, "H"), block, start + 10 + 12 * number
                )
                return value if value in _TURNS else UPRIGHT
    except struct.error as error:
        raise DamagedMetadataError(f"EXIF of {len(block)} bytes ends early") from error
    return None


def xmp_orientation(packet: bytes) -> int | None:
    """The orientation in an XMP packet, which need not be sound XML or UTF-8; ``None`` where there is none."""
    match = _XMP.search(packet)
    return int(match[1]) if match else None


def swaps_sides(orientation: int) -> bool:
    """Whether width and height change places."""
    return _TURNS[orientation][0]


def orient_pixels(pixels: npt.NDArray[Any], orientation: int) -> npt.NDArray[Any]:
    """Pixels (height, width[, channels]) turned the way they are meant to be seen; contiguous."""
    if orientation == UPRIGHT:
        return pixels
    swap, top_bottom, left_right = _TURNS[orientation]
    turned = pixels.swapaxes(0, 1) if swap else pixels
    if top_bottom:
        turned = turned[::-1]
    if left_right:
        turned = turned[:, ::-1]
    return np.ascontiguousarray(turned)


def orient_points(points: npt.ArrayLike, orientation: int, *, size: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Points of a stored image where they lie in the image that is seen: boxes and key points turn with the pixels.

    Args:
        points: (..., 2), x and y in pixels from the stored image's upper left corner.
        orientation: 1 to 8.
        size: (width, height) of the stored image in pixels.

    Returns:
        float64 of the same shape, in pixels of the turned image. Corners of a box may change their order.
    """
    found = np.array(points, dtype=np.float64)
    swap, top_bottom, left_right = _TURNS[orientation]
    width, height = size
    if swap:
        found = found[..., ::-1].copy()
        width, height = height, width
    if top_bottom:
        found[..., 1] = height - found[..., 1]
    if left_right:
        found[..., 0] = width - found[..., 0]
    return found
