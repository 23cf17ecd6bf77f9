"""What an image's header says, without making a pixel: format, size, orientation.

Token counts, buckets and the pixel budget need no more. JPEG, PNG and WebP are read here, in microseconds and without
touching what follows the header; the other formats by Pillow, which opens lazily.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image, UnidentifiedImageError

from omniloom.data.media.image_kinds import UNMARKED_FORMATS, ImageKind, kind_named, load_plugin, no_image, sniff_image
from omniloom.data.media.image_orientation import (
    ORIENTATION_TAG,
    UPRIGHT,
    DamagedMetadataError,
    exif_orientation,
    swaps_sides,
    xmp_orientation,
)
from omniloom.errors import SampleError

PNG_START = 8
_XMP_HEADER = b"http://ns.adobe.com/xap/1.0/\0"
_PNG_XMP = b"XML:com.adobe.xmp"
SOF_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
SOS_MARKER = 0xDA
_EOI, _APP1 = 0xD9, 0xE1
_STANDALONE = frozenset((0x01, *range(0xD0, 0xD9)))
_WEBP_EXIF = 0x08


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """What a header says.

    Attributes:
        kind: the format, by content.
        width: of the stored image in pixels.
        height: of the stored image in pixels.
        channels: colour components of a JPEG; 0 in other formats.
        orientation: EXIF orientation, 1 to 8; 1 where nothing or nonsense is said of it, and in formats whose decoder
            turns the pixels itself (TIFF, HEIF, JPEG XL), whose size is that of the turned image.
        damaged: what is wrong with the metadata; empty where nothing is.
    """

    kind: ImageKind
    width: int
    height: int
    channels: int = 0
    orientation: int = UPRIGHT
    damaged: str = ""

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the image as it is seen: sides change places where the orientation says so."""
        return (self.height, self.width) if swaps_sides(self.orientation) else (self.width, self.height)


def image_size(data: bytes, *, orient: bool = True) -> tuple[int, int]:
    """(width, height) in pixels of an image file, from its header alone.

    Args:
        data: content of the file; its beginning is enough for most formats.
        orient: the size of the image as it is seen and decoded by default; ``False``: as it is stored.

    Raises:
        SampleError: ``empty-member``, ``not-an-image``, ``html``, ``svg``, ``truncated-image`` or ``corrupt-image``.
        ConfigError: the format needs an extra that is not installed.
    """
    header = probe_image(data)
    return header.size if orient else (header.width, header.height)


def probe_image(data: bytes) -> ImageHeader:
    """The header of an image file. Raises as `image_size` does."""
    kind = sniff_image(data)
    if kind is None:
        return _probe_by_pillow(data, kind)
    if kind.name == "JPEG":
        return _probe_jpeg(data, kind)
    if kind.name == "PNG":
        return _probe_png(data, kind)
    if kind.name == "WEBP":
        return _probe_webp(data, kind)
    if kind.name == "PDF":
        from omniloom.data.media.image_pdf import pdf_size  # noqa: PLC0415 - only for those who have PDFs

        return ImageHeader(kind, *pdf_size(data))
    return _probe_by_pillow(data, kind)


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Marker, first byte and byte after the last of the content of each segment of a JPEG, up to its first scan.

    The scan's own header (marker 0xDA) comes last. Bytes between segments are passed over, as libjpeg does.
    """
    at, end = 2, len(data)
    while True:
        at = data.find(b"\xff", at)
        if at < 0 or at + 1 >= end:
            return
        marker = data[at + 1]
        if marker in (0x00, 0xFF) or marker in _STANDALONE:
            at += 1 if marker == 0xFF else 2
            continue
        if marker == _EOI or at + 4 > end:
            return
        stop = at + 2 + (data[at + 2] << 8 | data[at + 3])
        yield marker, at + 4, stop
        if marker == SOS_MARKER:
            return
        at = stop


def _probe_jpeg(data: bytes, kind: ImageKind) -> ImageHeader:
    frame: tuple[int, int, int] | None = None
    orientation: int | None = None
    damaged = ""
    for marker, start, stop in jpeg_segments(data):
        if marker == _APP1 and orientation is None:
            try:
                orientation = _app1_orientation(data[start:stop])
            except DamagedMetadataError as error:
                damaged = str(error)
        elif marker in SOF_MARKERS and frame is None and stop <= len(data) and stop - start >= 6:
            height, width, channels = struct.unpack_from(">HHB", data, start + 1)
            frame = width, height, channels
    if frame is None or 0 in frame:
        told = "has no header with a size" if frame is None else f"says it has {frame[0]} x {frame[1]} pixels"
        raise SampleError(f"damaged JPEG of {len(data)} bytes: it {told}", reason="corrupt-image")
    return ImageHeader(kind, *frame, orientation=orientation or UPRIGHT, damaged=damaged)


def _app1_orientation(segment: bytes) -> int | None:
    if segment.startswith(b"Exif\0"):
        return exif_orientation(segment[6:])
    return xmp_orientation(segment) if segment.startswith(_XMP_HEADER) else None


def png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Type, first byte and byte after the last of the content of each chunk of a PNG; the last one may be cut."""
    at, end = PNG_START, len(data)
    while at + 8 <= end:
        length = int.from_bytes(data[at : at + 4])
        yield data[at + 4 : at + 8], at + 8, at + 8 + length
        at += 12 + length


def _probe_png(data: bytes, kind: ImageKind) -> ImageHeader:
    size: tuple[int, int] | None = None
    orientation: int | None = None
    damaged = ""
    for name, start, stop in png_chunks(data):
        if name == b"IHDR" and size is None and stop <= len(data) and stop - start == 13:
            size = struct.unpack_from(">II", data, start)
        elif name == b"eXIf":
            try:
                orientation = exif_orientation(data[start:stop])
            except DamagedMetadataError as error:
                damaged = str(error)
        elif name == b"iTXt" and orientation is None and data.startswith(_PNG_XMP, start):
            orientation = xmp_orientation(data[start:stop])
        elif size is None:
            break
    if size is None or 0 in size:
        told = "has no header with a size" if size is None else f"says it has {size[0]} x {size[1]} pixels"
        raise SampleError(f"damaged PNG of {len(data)} bytes: it {told}", reason="corrupt-image")
    return ImageHeader(kind, *size, orientation=orientation or UPRIGHT, damaged=damaged)


def _probe_webp(data: bytes, kind: ImageKind) -> ImageHeader:
    name = data[12:16]
    try:
        if name == b"VP8X":
            width = 1 + int.from_bytes(data[24:27], "little")
            height = 1 + int.from_bytes(data[27:30], "little")
            if len(data) >= 30:
                return _with_webp_exif(data, ImageHeader(kind, width, height))
        elif name == b"VP8L" and data[20] == 0x2F:
            (bits,) = struct.unpack_from("<I", data, 21)
            return ImageHeader(kind, 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
        elif name == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
            width, height = struct.unpack_from("<HH", data, 26)
            if width & 0x3FFF and height & 0x3FFF:
                return ImageHeader(kind, width & 0x3FFF, height & 0x3FFF)
    except (struct.error, IndexError):
        pass
    raise SampleError(f"damaged WebP of {len(data)} bytes: it has no header with a size", reason="corrupt-image")


def _with_webp_exif(data: bytes, header: ImageHeader) -> ImageHeader:
    if not data[20] & _WEBP_EXIF:
        return header
    at = 30
    while at + 8 <= len(data):
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"EXIF":
            try:
                orientation = exif_orientation(data[at + 8 : at + 8 + length]) or UPRIGHT
            except DamagedMetadataError as error:
                return ImageHeader(header.kind, header.width, header.height, damaged=str(error))
            return ImageHeader(header.kind, header.width, header.height, orientation=orientation)
        at += 8 + length + (length & 1)
    return header


def _probe_by_pillow(data: bytes, kind: ImageKind | None) -> ImageHeader:
    """The header as Pillow reads it; bytes of no known mark are tried as well, for TGA has none."""
    if kind is not None:
        load_plugin(kind)
    try:
        with Image.open(io.BytesIO(data), formats=[kind.name] if kind else UNMARKED_FORMATS) as image:
            found = kind or _kind_of(image)
            width, height = image.size
            orientation = UPRIGHT
            if found.name == "AVIF":  # the decoders of TIFF, HEIF and JPEG XL turn the pixels themselves
                value = image.getexif().get(ORIENTATION_TAG, UPRIGHT)
                orientation = value if value in range(1, 9) else UPRIGHT
            return ImageHeader(found, width, height, orientation=orientation)
    except UnidentifiedImageError:
        if kind is None:
            raise no_image(data) from None
        raise _unreadable(kind, data) from None
    except Image.DecompressionBombError as error:
        raise SampleError(str(error), reason="too-large") from error
    except Exception as error:  # plug-ins raise what they like on damaged input
        if kind is None:
            raise no_image(data) from error
        raise _unreadable(kind, data, f": {error}") from error


def _unreadable(kind: ImageKind, data: bytes, told: str = "") -> SampleError:
    if is_cut(kind, data):
        return SampleError(f"the {kind.name} image of {len(data):,} bytes is cut short", reason="truncated-image")
    return SampleError(f"damaged {kind.name} image of {len(data):,} bytes{told}", reason="corrupt-image")


def is_cut(kind: ImageKind, data: bytes) -> bool:
    """Whether a file ends before its own container says it does."""
    if kind.name == "WEBP":
        return int.from_bytes(data[4:8], "little") + 8 > len(data)
    if not any(offset == 4 and mark.startswith(b"ftyp") for magic in kind.magics for offset, mark in magic):
        return False
    at = 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4])
        size = int.from_bytes(data[at + 8 : at + 16]) if size == 1 else size
        if size < 8:  # 0: to the end of the file; other values are damage
            return False
        at += size
    return at != len(data)


def _kind_of(image: Image.Image) -> ImageKind:
    name = image.format or "unknown"
    try:
        return kind_named(name)
    except KeyError:
        return ImageKind(name, (), ())
