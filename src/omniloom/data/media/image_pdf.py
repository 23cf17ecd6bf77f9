"""Pages of a PDF as images, by pypdfium2 (extra ``pdf``)."""

from __future__ import annotations

from typing import Any

from omniloom.data.media.image_kinds import kind_named, load_plugin
from omniloom.errors import SampleError

POINTS_PER_INCH = 72
DOTS_PER_INCH = 144


def pdf_size(data: bytes, *, page: int = 0) -> tuple[int, int]:
    """(width, height) in pixels of a page as `render_pdf` draws it, without drawing it."""
    document = _opened(data)
    try:
        return _page_size(document, data, page)
    finally:
        document.close()


def pdf_pages(data: bytes) -> int:
    """How many pages a PDF has."""
    document = _opened(data)
    try:
        return len(document)
    finally:
        document.close()


def render_pdf(data: bytes, *, page: int = 0) -> Any:
    """A page as an image of Pillow in mode RGB, at 144 dots per inch.

    Raises:
        SampleError: ``corrupt-image``, or ``no-such-frame`` where there are fewer pages.
        ConfigError: pypdfium2 is not installed.
    """
    document = _opened(data)
    try:
        _page_size(document, data, page)
        return document[page].render(scale=DOTS_PER_INCH / POINTS_PER_INCH).to_pil().convert("RGB")
    except SampleError:
        raise
    except Exception as error:  # pdfium's own errors have no common class across versions
        raise SampleError(f"damaged PDF of {len(data)} bytes: {error}", reason="corrupt-image") from error
    finally:
        document.close()


def _opened(data: bytes) -> Any:
    load_plugin(kind_named("PDF"))
    import pypdfium2  # noqa: PLC0415 - an extra

    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise SampleError(f"damaged PDF of {len(data)} bytes: {error}", reason="corrupt-image") from error


def _page_size(document: Any, data: bytes, page: int) -> tuple[int, int]:
    if page >= len(document):
        raise SampleError(
            f"the PDF of {len(data)} bytes has {len(document)} pages, page {page} was wanted (counted from 0)",
            reason="no-such-frame",
        )
    width, height = document[page].get_size()
    # pdfium rounds up: a page of 612 x 792 points has 1224 x 1584 pixels, one of 595.3 has 1191.
    scale = DOTS_PER_INCH / POINTS_PER_INCH
    return -int(-width * scale // 1), -int(-height * scale // 1)
