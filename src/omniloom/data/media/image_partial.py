"""How much of a JPEG that was cut short is there.

libjpeg fills what is missing with grey and does not say where that begins. So the file is decoded twice, once followed
by bytes of noise: the rows before the first difference are those that the file itself holds. A baseline JPEG holds its
rows one after the other. A progressive one passes over them several times, so there the fraction is that of passes:
those in the file plus the fewest that would still be needed, counted from the coefficients' bits.
"""

from __future__ import annotations

import random

import numpy as np
import simplejpeg

from omniloom.data.media.image_options import Pixels
from omniloom.data.media.probe import jpeg_segments

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
    same = (pixels == followed).reshape(len(pixels), -1).all(axis=1)
    rows = float(np.argmin(same)) / len(same) if not same.all() else 1.0
    scans = _scans(data)
    if not _is_progressive(data) or not scans:
        return pixels if mode == "RGB" else pixels[..., 0], rows
    done = len(scans) - 1 + rows
    return pixels if mode == "RGB" else pixels[..., 0], done / (len(scans) + _passes_missing(scans))


def _is_progressive(data: bytes) -> bool:
    return any(marker in _PROGRESSIVE for marker, _, _ in jpeg_segments(data))


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
