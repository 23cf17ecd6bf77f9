"""Arrays of numpy and parts packed by gzip: how much they unpack to is looked at before it is done."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import Any

import numpy as np

from omniloom.errors import SampleError

UNPACKED_BYTES = 1 << 30
"""What a packed part may hold."""


def decode_array(data: bytes) -> Any:
    """An array of numpy, or a dict of the arrays of an archive. Nothing that needs pickle is read.

    Raises:
        SampleError: ``corrupt-array``, or ``too-large`` for what needs more than ``UNPACKED_BYTES`` or the memory.
    """
    try:
        if data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                _check_size(sum(entry.file_size for entry in archive.infolist()), data)
        found = np.load(io.BytesIO(data), allow_pickle=False)
        return found if isinstance(found, np.ndarray) else dict(found)
    except SampleError:
        raise
    except MemoryError as error:  # a header that claims more than there is
        raise SampleError(f"the array of {len(data):,} bytes asks for too much memory", reason="too-large") from error
    except Exception as error:  # zipfile, struct and tokenize have errors of their own
        raise SampleError(f"{len(data):,} bytes are no array of numpy: {error}", reason="corrupt-array") from error


def unpack_gzip(data: bytes) -> bytes:
    """Content of a part that is packed by gzip.

    Raises:
        SampleError: ``corrupt-gzip``, or ``too-large`` for more than ``UNPACKED_BYTES``.
    """
    unpacker = zlib.decompressobj(wbits=31)
    try:
        content = unpacker.decompress(data, UNPACKED_BYTES)
    except zlib.error as error:
        raise SampleError(f"{len(data):,} bytes are no sound gzip data: {error}", reason="corrupt-gzip") from error
    if unpacker.eof:
        return content
    if len(content) < UNPACKED_BYTES:
        raise SampleError(f"the gzip data of {len(data):,} bytes are cut short", reason="corrupt-gzip")
    raise _too_large(data)


def _check_size(size_bytes: int, data: bytes) -> None:
    if size_bytes > UNPACKED_BYTES:
        raise _too_large(data)


def _too_large(data: bytes) -> SampleError:
    return SampleError(
        f"a packed part of {len(data):,} bytes holds more than {UNPACKED_BYTES:,} bytes", reason="too-large"
    )
