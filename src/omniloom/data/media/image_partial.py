"""How much of a JPEG that was cut short is there.

libjpeg fills what is missing with grey and does not say where that begins. So the file is decoded twice, once followed
by bytes of noise: the rows before the first difference are those that the file itself holds. A baseline JPEG holds its
rows one after the other. A progressive one passes over them several times, so there the fraction is that of passes:
those in the file plus the fewest that would still be needed, counted from the coefficients' bits.
"""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import simplejpeg

from omniloom.data.media.image_options import Pixels
from omniloom.data.media.probe import SOF_MARKERS, jpeg_segments

_PROGRESSIVE = frozenset((0xC2, 0xC6, 0xCA, 0xCE))
_SOS = 0xDA
_NOISE = bytes(byte for byte in random.Random(0).randbytes(1 << 16) if byte != 0xFF)
_COEFFICIENTS = 64


def partial_jpeg(data: bytes, mode: str) -> tuple[Pixels, float]:
    """Pixels of a JPEG that is cut short, grey where nothing is known, and the fraction that is there.

    Args:
        data: the file.
        mode: ``RGB`` or ``L``.

    Raises:
        ValueError: it cannot be decoded at all.
    """
    pixels: Pixels = simplejpeg.decode_jpeg(data, colorspace="RGB" if mode == "RGB" else "GRAY", strict=False)
    noisy = data.rstrip(b"\xff") + _NOISE  # half a marker would make a marker of the first byte of noise
    followed = simplejpeg.decode_jpeg(noisy, colorspace="RGB" if mode == "RGB" else "GRAY", strict=False)
    fraction = _same_share((pixels == followed).all(axis=2), _block_rows(data))
    scans = _scans(data)
    if scans and any(marker in _PROGRESSIVE for marker, _, _ in jpeg_segments(data)):
        fraction = (len(scans) - 1 + fraction) / (len(scans) + _passes_missing(scans))
    return pixels if mode == "RGB" else pixels[..., 0], fraction


def _same_share(same: npt.NDArray[np.bool_], block_rows: int) -> float:
    """Which share of the image comes before the first block that differs; blocks go from left to right."""
    height, width = same.shape
    if same.all():
        return 1.0
    # The row above a block that differs may differ too: colours are smoothed over the border.
    whole = (int(np.argmin(same.all(axis=1))) + 1) // block_rows * block_rows
    band = same[whole : whole + block_rows - 1].all(axis=0)
    columns = width if band.all() else int(np.argmin(band))
    share: float = (whole * width + columns * block_rows) / (height * width)
    return min(1.0, share)


def _block_rows(data: bytes) -> int:
    """How many rows of pixels a row of blocks has: eight times the largest vertical sampling factor."""
    for marker, start, stop in jpeg_segments(data):
        if marker in SOF_MARKERS:
            return 8 * max(1, *(data[at] & 15 for at in range(start + 7, stop, 3)))
    return 8


def _scans(data: bytes) -> list[tuple[bytes, int, int, int]]:
    """Components, first and last coefficient, and bits left out, of each scan whose header is there."""
    found = []
    at = data.find(b"\xff\xda")
    while at >= 0:
        components = data[at + 4] if at + 4 < len(data) else 0
        stop = at + 5 + 2 * components
        if 1 <= components <= 4 and stop + 3 <= len(data):
            first, last, bits = data[stop : stop + 3]
            found.append((data[at + 5 : stop : 2], first, last, bits & 15))
        at = data.find(b"\xff\xda", at + 2)
    return found


def _passes_missing(scans: list[tuple[bytes, int, int, int]]) -> int:
    """The fewest scans that can still bring what no scan has brought: first passes, and one more for each bit."""
    left: dict[int, list[int | None]] = {name: [None] * _COEFFICIENTS for names, _, _, _ in scans for name in names}
    for names, first, last, bits in scans:
        for name in names:
            for coefficient in range(first, min(last, _COEFFICIENTS - 1) + 1):
                left[name][coefficient] = bits
    # One scan may bring a bit of the constant terms of all components; the rest goes component by component.
    missing = max((coefficients[0] or 0) for coefficients in left.values())
    for coefficients in left.values():
        varying = coefficients[1:]
        missing += (None in varying) + max((bits or 0) for bits in varying)
    return missing
