"""Headers before a header: PAX extended and global ones, GNU long names and long links.

A PAX header is a list of records ``<length> <keyword>=<value>`` for the next member (``x``, Solaris ``X``) or for all
that follow (``g``); a GNU ``L`` or ``K`` header holds one long name or link target.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from omniloom.data.shards.header import BLOCK_BYTES, Header, padded, text_of
from omniloom.errors import ShardError

Take = Callable[[int, int], bytes]
"""``take(start, length)``: bytes of the archive, fewer where it ends."""

EXTENDED_KINDS = frozenset((b"x", b"X", b"g", b"L", b"K"))
EXTENDED_LIMIT_BYTES = 16 << 20

SPARSE = ("sparse", "is stored sparse (its holes are left out)", "Write the archive without `tar -S`.")
MULTI_VOLUME = ("multi-volume", "is the rest of a member that began in another volume", "Join the volumes first.")

_ONLY_TIMES = re.compile(rb"(?:\d{1,3} (?:[mac]time|LIBARCHIVE\.creationtime)=-?[0-9.]+\n)+")
_TELLING_KEYWORDS = frozenset(("path", "linkpath", "size", "SCHILY.realsize", "GNU.volume.offset"))
_SPARSE_KEYWORDS = "GNU.sparse."


class Globals:
    """What PAX global headers said so far.

    Attributes:
        records: keyword to value, of those keywords that change what a reader gets.
        stop: byte after the last global header, padding included.
        changes_members: there ever was such a keyword, so that a member cannot be read without all before it.
    """

    __slots__ = ("changes_members", "records", "stop")

    def __init__(self) -> None:
        self.records: dict[str, str] = {}
        self.stop = 0
        self.changes_members = False

    def update(self, records: dict[str, str], stop: int) -> None:
        """Take in the records of one global header; an empty value takes a keyword back."""
        self.stop = stop
        for keyword, value in records.items():
            if keyword not in _TELLING_KEYWORDS and not keyword.startswith(_SPARSE_KEYWORDS):
                continue
            self.changes_members = True
            self.records[keyword] = value
            if not value:
                del self.records[keyword]


def extended_body(take: Take, header: Header, position: int, *, shard: str) -> bytes:
    """Payload of an extended header, without padding.

    Raises:
        ShardError: ``bad-header`` for an absurd size, ``truncated`` where the archive ends inside.
    """
    if header.size_bytes > EXTENDED_LIMIT_BYTES:
        raise ShardError(
            f"{shard}: the extended header at byte {position:,} claims {header.size_bytes:,} bytes; expected at most "
            f"{EXTENDED_LIMIT_BYTES:,}. The archive is damaged; make it again.",
            shard=shard,
            reason="bad-header",
            offset_bytes=position,
        )
    wanted = padded(header.size_bytes)
    body = take(position + BLOCK_BYTES, wanted)
    if len(body) < wanted:
        raise cut_header(position, BLOCK_BYTES + len(body), BLOCK_BYTES + wanted, shard=shard)
    return body[: header.size_bytes]


def own_records(kind: bytes, body: bytes, position: int, *, shard: str) -> dict[str, str]:
    """What an extended header says of the member after it, a GNU long name told as PAX tells it."""
    if kind in (b"x", b"X"):
        return pax_records(body, shard=shard, offset_bytes=position + BLOCK_BYTES)
    return {"path" if kind == b"L" else "linkpath": text_of(body)}


def refused_records(records: dict[str, str], size_bytes: int) -> tuple[str, str, str] | None:
    """Reason, description and advice where records make a member that does not lie in one piece; else ``None``."""
    if any(keyword.startswith(_SPARSE_KEYWORDS) for keyword in records):
        return SPARSE
    if records.get("SCHILY.realsize", str(size_bytes)) != str(size_bytes):
        return SPARSE
    return MULTI_VOLUME if "GNU.volume.offset" in records else None


def pax_size(value: str, header_start: int, *, shard: str) -> int:
    """The value of a ``size`` record, in bytes. Raises ShardError ``bad-pax`` when it is no number."""
    if value.isascii() and value.isdigit() and len(value) <= 20:
        return int(value)
    raise ShardError(
        f"{shard}: the PAX header at byte {header_start:,} gives the size {value!r}; expected a whole number of bytes. "
        "The archive is damaged; make it again.",
        shard=shard,
        reason="bad-pax",
        offset_bytes=header_start,
    )


def only_times(body: bytes) -> bool:
    """Whether a PAX header holds nothing but times, as those that many writers put before every member."""
    return _ONLY_TIMES.fullmatch(body) is not None


def pax_records(body: bytes, *, shard: str, offset_bytes: int) -> dict[str, str]:
    r"""The records ``"<length> <keyword>=<value>\n"`` of a PAX header.

    Args:
        body: the payload of the extended header, without padding.
        shard: name of the shard, for messages.
        offset_bytes: where the payload begins in the archive.

    Raises:
        ShardError: ``bad-pax``: a record does not have that form.
    """
    records: dict[str, str] = {}
    position = 0
    while position < len(body):
        space = body.find(b" ", position)
        digits = body[position:space]
        if space < 0 or not digits.isdigit() or len(digits) > 10:
            if not body[position:].strip(b"\0"):
                break  # some writers fill the record area with NULs
            raise _bad_record(body, position, shard=shard, offset_bytes=offset_bytes)
        stop = position + int(digits)
        keyword, equals, value = body[space + 1 : stop - 1].partition(b"=")
        if stop > len(body) or stop <= space + 1 or body[stop - 1] != 0x0A or not equals or not keyword:
            raise _bad_record(body, position, shard=shard, offset_bytes=offset_bytes)
        records[keyword.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        position = stop
    return records


def _bad_record(body: bytes, position: int, *, shard: str, offset_bytes: int) -> ShardError:
    return ShardError(
        f"{shard}: the PAX extended header has no sound record at byte {offset_bytes + position:,}: found "
        f"{body[position : position + 40]!r}, expected '<length> <keyword>=<value>' and a newline. "
        "The archive is damaged; make it again.",
        shard=shard,
        reason="bad-pax",
        offset_bytes=offset_bytes + position,
    )


def cut_header(position: int, found_bytes: int, expected_bytes: int = BLOCK_BYTES, *, shard: str) -> ShardError:
    """The error of an archive that ends inside a header."""
    return ShardError(
        f"{shard}: the archive is cut inside the header at byte {position:,}: {found_bytes:,} of {expected_bytes:,} "
        f"bytes are there, {expected_bytes - found_bytes:,} bytes are missing. Copy or make the file again.",
        shard=shard,
        reason="truncated",
        offset_bytes=position,
    )
