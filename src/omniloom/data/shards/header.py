r"""One 512-byte header block of a tar archive.

Three dialects share the block: V7 (no magic), ustar (magic ``ustar\0``) and old GNU
(magic ``ustar  \0``). They differ in what follows byte 345: a name prefix, or two times.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import adler32

from omniloom.errors import ShardError

BLOCK_BYTES = 512
ZERO_BLOCK = bytes(BLOCK_BYTES)

_CHECKSUM = slice(148, 156)
_SIZE = slice(124, 136)
_PREFIX = slice(345, 500)
_SPACE = ord(" ")
_BLANKS = (0, _SPACE)


class Header(NamedTuple):
    """What a header block says.

    Attributes:
        name: prefix and name, joined; bytes that are not UTF-8 become lone surrogates.
        kind: the type byte, such as ``b"0"``.
        size_bytes: the size field; not yet what a PAX record says.
        link_name: target of a link.
    """

    name: str
    kind: bytes
    size_bytes: int
    link_name: str


def padded(size_bytes: int) -> int:
    """Bytes that a payload takes in the archive: rounded up to whole blocks."""
    return (size_bytes + BLOCK_BYTES - 1) & -BLOCK_BYTES


def text_of(field: bytes) -> str:
    """A text field up to its first NUL; bytes that are not UTF-8 survive as lone surrogates."""
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def number_of(field: bytes) -> int | None:
    """The value of a number field: octal digits, or base 256 when the top bit is set; ``None`` for neither."""
    if field[0] & 0x80:
        bits = 8 * len(field) - 1
        value = int.from_bytes(field, "big") & ((1 << bits) - 1)
        return value - (1 << bits) if field[0] & 0x40 else value
    digits = field.partition(b"\0")[0].strip(b" ")
    if not digits:
        return 0
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        return None
    return int(digits, 8)


def plain_size(header: bytes) -> int:
    """The size field of a header of the form that nearly every member has; -1 for one that needs a closer look.

    A plain header is pure ASCII, has no prefix, its size in 11 octal digits, and its checksum is right. Adler-32's
    low half is one plus the sum of the bytes, modulo 65,521; 512 ASCII bytes stay below that, so it is the exact
    sum at C speed. Says nothing of the kind of the member.

    Args:
        header: 512 bytes.
    """
    if header[345] or header[135] not in _BLANKS or header[154] not in _BLANKS:
        return -1
    size_digits = header[124:135]
    if not size_digits.isdigit() or not header.isascii():
        return -1
    try:
        size_bytes = int(size_digits, 8)
        expected_sum = int(header[148:154], 8)
    except ValueError:
        return -1
    if (adler32(header) & 0xFFFF) - (adler32(header[_CHECKSUM]) & 0xFFFF) + 8 * _SPACE != expected_sum:
        return -1
    return size_bytes


def plain_name(header: bytes) -> str:
    """The name in a header that `plain_size` accepts."""
    end = header.find(b"\0")
    return str(header[: end if end < 100 else 100], "ascii")


def checksum_holds(header: bytes) -> bool:
    """Whether the checksum field equals the sum of the bytes, read as unsigned or (as old Suns did) as signed.

    Never true of a block that is cut.
    """
    if len(header) < BLOCK_BYTES:
        return False
    expected_sum = number_of(header[_CHECKSUM])
    # 256 bytes sum to at most 65,280, below Adler's modulus: each half is exact.
    halves = (adler32(header[:256]) & 0xFFFF) + (adler32(header[256:]) & 0xFFFF) - 2
    unsigned_sum = halves - sum(header[_CHECKSUM]) + 8 * _SPACE
    if expected_sum == unsigned_sum:
        return True
    if header.isascii():
        return False
    negative = sum(byte >= 0x80 for byte in header) - sum(byte >= 0x80 for byte in header[_CHECKSUM])
    return expected_sum == unsigned_sum - 256 * negative


def read_header(header: bytes, *, shard: str, offset_bytes: int) -> Header:
    """Every field of a header block that matters to a reader of samples.

    Raises:
        ShardError: ``bad-checksum``, or ``bad-header`` for a size that is no number or negative.
    """
    if not checksum_holds(header):
        raise ShardError(
            f"{shard}: the block at byte {offset_bytes:,} is not a sound tar header: its checksum field holds "
            f"{header[_CHECKSUM]!r}, which is not the sum of its bytes. The archive is damaged; make it again.",
            shard=shard,
            reason="bad-checksum",
            offset_bytes=offset_bytes,
        )
    size_bytes = number_of(header[_SIZE])
    if size_bytes is None or size_bytes < 0:
        raise ShardError(
            f"{shard}: the tar header at byte {offset_bytes:,} has {header[_SIZE]!r} as its size; expected octal "
            "digits or a positive base-256 number. The archive is damaged; make it again.",
            shard=shard,
            reason="bad-header",
            offset_bytes=offset_bytes,
        )
    name = text_of(header[:100])
    prefix = _prefix_of(header)
    return Header(f"{prefix}/{name}" if prefix else name, header[156:157], size_bytes, text_of(header[157:257]))


def _prefix_of(header: bytes) -> str:
    """The name prefix of a ustar header; old GNU headers keep times at its place and V7 has none."""
    magic = header[257:263]
    if magic == b"ustar\0":
        return text_of(header[_PREFIX])
    if magic == b"ustar " and header[345] and number_of(header[345:357]) is None:
        return text_of(header[_PREFIX])  # what Go before 1.8 wrote: GNU magic, ustar prefix
    return ""
