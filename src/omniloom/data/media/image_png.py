"""PNG before Pillow sees it: checksums, an early end, and metadata that has no bearing on the pixels."""

from __future__ import annotations

import struct
import zlib

from omniloom.data.media.image_options import ImageOptions, truncated
from omniloom.data.media.probe import PNG_START, png_chunks
from omniloom.errors import SampleError

_PIXEL_CHUNKS = frozenset((b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"acTL", b"fcTL", b"fdAT"))
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def plain_png(data: bytes) -> bytes:
    """The file with nothing but the chunks that make its pixels.

    Texts, colour profiles and the like are left out, however large they are and whatever is wrong with them. A
    missing end mark is added.

    Raises:
        SampleError: ``truncated-image`` where a chunk is cut, ``corrupt-image`` where a checksum does not fit.
    """
    kept = []
    plain, begun = True, False
    for name, start, stop in png_chunks(data):
        if name not in _PIXEL_CHUNKS:
            if stop + 4 > len(data) and not begun:
                raise truncated("PNG", data, None, 1.0)
            plain = False
            continue
        if name == b"IEND":
            break
        if stop + 4 > len(data):
            raise truncated("PNG", data, None, 1.0)
        stored = int.from_bytes(data[stop : stop + 4])
        if zlib.crc32(data[start - 4 : stop]) != stored:
            raise SampleError(
                f"damaged PNG of {len(data):,} bytes: the checksum of the chunk {name.decode('latin-1')} at byte "
                f"{start - 8:,} does not fit its content",
                reason="corrupt-image",
            )
        begun = begun or name == b"IDAT"
        kept.append(data[start - 8 : stop + 4])
    else:
        plain = False  # no end mark
    if not begun:
        raise truncated("PNG", data, None, 1.0)
    return data if plain else data[:PNG_START] + b"".join(kept) + _chunk(b"IEND", b"")


def completed_png(data: bytes, options: ImageOptions) -> tuple[bytes, float]:
    """A PNG that was cut short, its missing rows filled with zeros, and the fraction of its rows that is there.

    Raises:
        SampleError: ``truncated-image`` where less than ``options.min_fraction`` is there, or where that cannot be
            told (interlaced files); ``corrupt-image`` where what is there is damaged.
    """
    header, before, packed = b"", [], bytearray()
    for name, start, stop in png_chunks(data):
        if name == b"IHDR":
            header = data[start:stop]
        elif name == b"IDAT":
            packed += data[start:stop]
        elif name in (b"PLTE", b"tRNS"):
            before.append(_chunk(name, data[start:stop]))
    if len(header) != 13:
        raise truncated("PNG", data, 0.0, options.min_fraction)
    width, height, bits, color, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if interlaced or color not in _CHANNELS:
        raise truncated("PNG", data, None, options.min_fraction)
    row_bytes = 1 + (width * bits * _CHANNELS[color] + 7) // 8
    unpacker = zlib.decompressobj()
    try:
        rows = unpacker.decompress(bytes(packed), row_bytes * height)
    except zlib.error as error:
        raise SampleError(f"damaged PNG of {len(data):,} bytes: {error}", reason="corrupt-image") from error
    fraction = (len(rows) // row_bytes) / height
    if fraction < options.min_fraction:
        raise truncated("PNG", data, fraction, options.min_fraction)
    whole = rows[: len(rows) // row_bytes * row_bytes].ljust(row_bytes * height, b"\0")
    chunks = [_chunk(b"IHDR", header), *before, _chunk(b"IDAT", zlib.compress(whole, 1)), _chunk(b"IEND", b"")]
    return data[:PNG_START] + b"".join(chunks), fraction


def _chunk(name: bytes, content: bytes) -> bytes:
    return len(content).to_bytes(4) + name + content + zlib.crc32(name + content).to_bytes(4)
