"""Which format an image has, by its first bytes: names may lie, contents seldom do."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass

import PIL
from PIL import features

from omniloom.errors import ConfigError, SampleError


@dataclass(frozen=True, slots=True)
class ImageKind:
    """A format.

    Attributes:
        name: its name, as Pillow spells formats.
        extensions: what parts of this format are called, in lower case.
        magics: (offset, bytes) pairs that all have to be there, per alternative.
        plugin: module that teaches Pillow the format when it is imported, or reads it itself; empty: Pillow knows it.
        feature: feature that Pillow has to be built with; empty: none.
        extra: extra of omniloom that installs the plug-in.
    """

    name: str
    extensions: tuple[str, ...]
    magics: tuple[tuple[tuple[int, bytes], ...], ...]
    plugin: str = ""
    feature: str = ""
    extra: str = ""


def _at_start(*beginnings: bytes) -> tuple[tuple[tuple[int, bytes], ...], ...]:
    return tuple(((0, beginning),) for beginning in beginnings)


def _ftyp(*brands: bytes) -> tuple[tuple[tuple[int, bytes], ...], ...]:
    return tuple(((4, b"ftyp" + brand),) for brand in brands)


KINDS: tuple[ImageKind, ...] = (
    ImageKind("JPEG", ("jpg", "jpeg", "jpe", "jfif"), _at_start(b"\xff\xd8\xff")),
    ImageKind("PNG", ("png", "apng"), _at_start(b"\x89PNG\r\n\x1a\n")),
    ImageKind("WEBP", ("webp",), (((0, b"RIFF"), (8, b"WEBP")),), feature="webp"),
    ImageKind("GIF", ("gif",), _at_start(b"GIF87a", b"GIF89a")),
    ImageKind("TIFF", ("tif", "tiff"), _at_start(b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
    ImageKind("AVIF", ("avif", "avifs"), _ftyp(b"avif", b"avis"), feature="avif"),
    ImageKind(
        "HEIF",
        ("heic", "heif", "hif"),
        _ftyp(b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"),
        plugin="pillow_heif",
        extra="heif",
    ),
    ImageKind(
        "JXL",
        ("jxl",),
        _at_start(b"\xff\x0a", b"\0\0\0\x0cJXL \r\n\x87\n"),
        plugin="pillow_jxl",
        extra="jxl",
    ),
    ImageKind("PDF", ("pdf",), _at_start(b"%PDF-"), plugin="pypdfium2", extra="pdf"),
    ImageKind(
        "JPEG2000",
        ("jp2", "j2k", "jpc", "jpf", "jpx", "j2c"),
        _at_start(b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"),
        feature="jpg_2000",
    ),
    ImageKind("BMP", ("bmp", "dib"), _at_start(b"BM")),
    ImageKind("ICO", ("ico",), _at_start(b"\0\0\1\0")),
    ImageKind("PPM", ("ppm", "pgm", "pbm", "pnm"), _at_start(b"P1", b"P2", b"P3", b"P4", b"P5", b"P6")),
    ImageKind("PSD", ("psd",), _at_start(b"8BPS")),
    ImageKind("DDS", ("dds",), _at_start(b"DDS ")),
    ImageKind("ICNS", ("icns",), _at_start(b"icns")),
    ImageKind("QOI", ("qoi",), _at_start(b"qoif")),
    ImageKind("SGI", ("sgi",), _at_start(b"\x01\xda")),
    ImageKind("PCX", ("pcx",), ()),
    ImageKind("TGA", ("tga",), ()),
)
"""Formats in the order in which they are tried. The last two have no mark of their own: Pillow tries them.

EPS is not here, although Pillow opens it: it would start Ghostscript.
"""

UNMARKED_FORMATS = tuple(kind.name for kind in KINDS if not kind.magics)

IMAGE_EXTENSIONS = frozenset(extension for kind in KINDS for extension in kind.extensions if kind.name != "PDF")
"""Parts that are decoded as images by default; a PDF's pages only where the decoder is told to."""

_BY_NAME = {kind.name: kind for kind in KINDS}
_MARKUP = ((b"<svg", "svg"), (b"<!doctype html", "html"), (b"<html", "html"), (b"<head", "html"), (b"<body", "html"))
_MARKUP_BYTES = 1_024


def kind_named(name: str) -> ImageKind:
    """The format of that name. Raises KeyError for an unknown one."""
    return _BY_NAME[name]


def sniff_image(data: bytes) -> ImageKind | None:
    """The format of an image file by its first bytes; ``None`` where they are those of no format in ``KINDS``."""
    if data[:3] == b"\xff\xd8\xff":  # by far the most frequent
        return KINDS[0]
    for kind in KINDS:
        for magic in kind.magics:
            if all(data[offset : offset + len(mark)] == mark for offset, mark in magic):
                return _heif_or_avif(kind, data)
    return None


def _heif_or_avif(kind: ImageKind, data: bytes) -> ImageKind:
    """Files of the general brand ``mif1`` say in the list of compatible brands what they are."""
    if kind.name == "HEIF" and data[8:12] in (b"mif1", b"msf1"):
        brands = data[16 : min(int.from_bytes(data[:4]), 256)]
        if b"avif" in brands or b"avis" in brands:
            return _BY_NAME["AVIF"]
    return kind


def no_image(data: bytes) -> SampleError:
    """The refusal of bytes that are no image: what they are instead, where that can be told."""
    if not data:
        return SampleError("the image has no bytes; was the file written completely?", reason="empty-member")
    start = data[:_MARKUP_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"<"):
        reason = next((reason for mark, reason in _MARKUP if mark in start), None)
        if reason == "html":
            return SampleError(
                f"{len(data)} bytes of HTML where an image was expected; the download gave a page, perhaps an error. "
                "Fetch the image again, or leave the sample out.",
                reason="html",
            )
        if reason == "svg":
            return SampleError(
                f"{len(data)} bytes of SVG, which is a drawing and not an image of pixels. Render it to PNG first.",
                reason="svg",
            )
    return SampleError(
        f"{len(data)} bytes that begin with {data[:8]!r} are no known image format; expected JPEG, PNG or the like",
        reason="not-an-image",
    )


def load_plugin(kind: ImageKind) -> None:
    """Make Pillow able to read a format.

    Raises:
        ConfigError: the plug-in is not installed, or Pillow was built without the format.
    """
    if kind.feature and not features.check(kind.feature):
        raise ConfigError(f"{kind.name} images: this Pillow {PIL.__version__} was built without '{kind.feature}'.")
    if not kind.plugin:
        return
    if importlib.util.find_spec(kind.plugin) is None:
        raise ConfigError(
            f"{kind.name} images need the package {kind.plugin}. Install it: `pip install omniloom[{kind.extra}]`."
        )
    module = importlib.import_module(kind.plugin)
    if kind.name == "HEIF":
        module.register_heif_opener()
