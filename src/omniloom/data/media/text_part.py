"""Texts and whole numbers: bytes to values, in UTF-8 or not at all."""

from __future__ import annotations

from omniloom.errors import SampleError

_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


def decode_text(data: bytes) -> str:
    """A text in UTF-8; a byte order mark in front is left out, and everything else stays as it is.

    Raises:
        SampleError: ``encoding``, with the first byte that is not UTF-8.
    """
    try:
        return data.decode() if data[:3] != _UTF8_BOM else data[3:].decode()
    except UnicodeDecodeError as error:
        told = " (UTF-16?)" if data.startswith(_UTF16_BOMS) else ""
        raise SampleError(
            f"byte {error.start} of the text is not UTF-8{told}: {error.reason}. Write it as UTF-8.", reason="encoding"
        ) from None


def decode_number(data: bytes) -> int:
    """A whole number in decimal digits.

    Raises:
        SampleError: ``not-a-number``.
    """
    try:
        return int(data)
    except ValueError:
        raise SampleError(f"{data[:40]!r} found, a whole number expected", reason="not-a-number") from None
