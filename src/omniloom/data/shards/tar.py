"""Members of a tar archive, read from their headers alone: the whole archive in order, or one sample's span.

Understood: V7, ustar, GNU long names, PAX extended and global headers, base-256 sizes, archives of any size.
Refused with shard, byte and reason, never silently shortened (the reason is ``ShardError.reason``):

    ============== ============================================================================
    empty-file     a file of no bytes at all
    not-tar        the first block is no tar header of any kind
    compressed     gzip, zstd, xz, bzip2, lz4 or zip, whatever the file is called
    bad-checksum   a block that should be a header does not add up
    bad-header     a header whose size is no number, negative, or absurd for its kind
    bad-pax        an extended header with a malformed record
    truncated      the file ends inside a header, a payload or its padding
    sparse         a member stored with holes left out (GNU 'S', PAX GNU.sparse.*, star)
    multi-volume   a member that began in another volume
    concatenated   members after the end-of-archive mark
    trailing-data  other bytes after a single zero block (after two, they are counted)
    missing-shard  no such file
    ============== ============================================================================
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import NamedTuple

from omniloom.data.shards.archive_file import Archive, Window, check_tail, open_archive
from omniloom.data.shards.compression import compressed_error, compression_of
from omniloom.data.shards.extended import (
    EXTENDED_KINDS,
    MULTI_VOLUME,
    SPARSE,
    Globals,
    Take,
    cut_header,
    extended_body,
    only_times,
    own_records,
    pax_records,
    pax_size,
    refused_records,
)
from omniloom.data.shards.header import (
    BLOCK_BYTES,
    ZERO_BLOCK,
    Header,
    checksum_holds,
    padded,
    plain_name,
    plain_size,
    read_header,
)
from omniloom.errors import ShardError

_REGULAR = ord("0")
_QUICK_PAX_BYTES = 2048
_QUICK_KINDS = (_REGULAR, ord("x"))

_KINDS = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"1": "hard-link",
    b"2": "symbolic-link",
    b"5": "directory",
    b"D": "directory",
}
_WITHOUT_PAYLOAD = frozenset((b"1", b"2", b"3", b"4", b"5", b"6"))
_REFUSED = {b"S": SPARSE, b"M": MULTI_VOLUME}


class Member(NamedTuple):
    """One member of an archive.

    Attributes:
        name: full name, as CPython's ``tarfile`` gives it.
        kind: ``file``, ``hard-link``, ``symbolic-link``, ``directory`` or ``other``.
        header_start: byte of the first header block that belongs to it, long-name and PAX blocks included.
        start: byte where its payload begins.
        stop: byte after its payload.
        link_name: what a link points to, else empty.
    """

    name: str
    kind: str
    header_start: int
    start: int
    stop: int
    link_name: str


_new_member = tuple.__new__  # what Member(...) calls, without its checks: half the time


class TarWalk:
    """The members of an archive in order; iterate, then ask what the end looked like.

    Memory stays bounded by a window of at most 1 MiB, which shrinks where payloads are long, so that they are
    not read.

    Args:
        path: the archive, by path or URL.
        shard: name used in messages.
        archive: the same, where it is open already; it stays open.

    Attributes:
        path: the archive.
        shard: name used in messages.
        size_bytes: size of the file.
        end: byte after the last member, which is where the end-of-archive blocks begin.
        has_end_marker: two zero blocks follow the last member.
        trailing_bytes: bytes from the first one that is not zero after the end marker to the end of the file.
        globals: the PAX global headers met.
    """

    def __init__(self, path: str | os.PathLike[str], *, shard: str, archive: Archive | None = None) -> None:
        self.path = os.fspath(path)
        self.shard = shard
        self._archive = archive
        self.size_bytes = 0
        self.end = 0
        self.has_end_marker = False
        self.trailing_bytes = 0
        self.globals = Globals()

    def __iter__(self) -> Iterator[Member]:
        archive = self._archive or open_archive(self.path, shard=self.shard)
        try:
            self.size_bytes = size_bytes = archive.mark().size_bytes
            self.globals = Globals()
            window = archive.window()
            check_first_block(window.take(0, BLOCK_BYTES), shard=self.shard, path=self.path)
            self.end = yield from read_members(window, 0, size_bytes, shard=self.shard, defaults=self.globals)
            empty_from = max(self.end, self.globals.stop)
            tail = check_tail(archive, window, empty_from, size_bytes, shard=self.shard)
            self.has_end_marker, self.trailing_bytes = tail
        finally:
            if self._archive is None:
                archive.close()


def walk_tar(path: str | os.PathLike[str], *, shard: str) -> TarWalk:
    """The members of a tar archive, in order.

    Args:
        path: the archive, by path or URL.
        shard: its name in messages, usually relative to the data set.

    Returns:
        An iterable of `Member`. Iterating raises ShardError with one of the reasons at the top of this file.
    """
    return TarWalk(path, shard=shard)


def parse_span(span: bytes, *, shard: str, start: int) -> list[Member]:
    """The members whose headers and payloads make up a span of an archive.

    Args:
        span: whole members, as between two entries of a ``.tar.idx``.
        shard: name of the shard, for messages.
        start: byte of the archive where the span begins; the members' positions count from the archive's begin.

    Raises:
        ShardError: the span is not made of sound members; same reasons as `walk_tar`.
    """
    return parse_window(Window(span, start), start, start + len(span), shard=shard)


def parse_window(window: Window, start: int, stop: int, *, shard: str) -> list[Member]:
    """`parse_span` of the bytes ``[start, stop)`` of an archive, of which only headers are asked for."""
    defaults = Globals()
    members = list(read_members(window, start, stop, shard=shard, defaults=defaults))
    end = padded(members[-1].stop) if members else start
    if max(end, defaults.stop) < stop:
        raise ShardError(
            f"{shard}: expected a tar header at byte {end:,}, found an empty block.",
            shard=shard,
            reason="bad-header",
            offset_bytes=end,
        )
    return members


def read_members(
    window: Window, position: int, end: int, *, shard: str, defaults: Globals
) -> Generator[Member, None, int]:
    """Members from one position on, until ``end`` or a zero block; returns the byte after the last.

    The two forms of header that nearly every member has are read here, the rest in `read_member`.
    """
    header_start = -1
    while position < end:
        at = position - window.base
        block = window.data[at : at + BLOCK_BYTES]
        if len(block) < BLOCK_BYTES:
            block = window.take(position, BLOCK_BYTES)
        kind = block[156] if len(block) == BLOCK_BYTES and not defaults.records else 0
        size_bytes = plain_size(block) if kind in _QUICK_KINDS else -1
        start = position + BLOCK_BYTES
        if header_start < 0:
            header_start = position
        if size_bytes >= 0 and kind == _REGULAR:
            stop = start + size_bytes
            member = _new_member(Member, (plain_name(block), "file", header_start, start, stop, ""))
        elif 0 <= size_bytes <= _QUICK_PAX_BYTES and only_times(window.take(start, size_bytes)):
            position = start + padded(size_bytes)
            continue
        else:
            closely = read_member(window.take, header_start, shard=shard, defaults=defaults)
            if closely is None:
                return header_start
            member = closely
            stop = member.stop
        position = (stop + BLOCK_BYTES - 1) & -BLOCK_BYTES
        if position > end:
            raise _cut_payload(member, end, shard=shard)
        yield member
        header_start = -1
    if header_start >= 0:
        raise _dangling(header_start, position, shard=shard)
    return position


def check_first_block(block: bytes, *, shard: str, path: str) -> None:
    """Refuse a file that is empty, compressed or no tar archive, judged by its first 512 bytes.

    Raises:
        ShardError: ``empty-file``, ``compressed`` or ``not-tar``.
    """
    if not block:
        raise ShardError(
            f"{shard}: the file is empty (0 bytes); a tar archive has at least its end blocks. Remove or remake it.",
            shard=shard,
            reason="empty-file",
            offset_bytes=0,
        )
    if not block.strip(b"\0") or checksum_holds(block):
        return
    compression = compression_of(block)
    if compression is not None:
        raise compressed_error(compression, shard=shard, path=path)
    if len(block) == BLOCK_BYTES and block[257:262] != b"ustar":
        raise ShardError(
            f"{shard}: not a tar archive: the file begins with {block[:16]!r} and its first block is no tar header. "
            "Leave the file out of the data set or make it again.",
            shard=shard,
            reason="not-tar",
            offset_bytes=0,
        )


def read_member(take: Take, position: int, *, shard: str, defaults: Globals) -> Member | None:
    """The member whose headers begin at a position, every rule of the format applied.

    Args:
        take: gives bytes of the archive.
        position: byte of the member's first header block.
        shard: name of the shard, for messages.
        defaults: PAX global headers; those met here are added.

    Returns:
        The member, or ``None`` where the archive ends or has a zero block.
    """
    header_start = -1
    own: dict[str, str] = {}
    while True:
        block = take(position, BLOCK_BYTES)
        if block == ZERO_BLOCK or not block.strip(b"\0"):
            if header_start >= 0:
                raise _dangling(header_start, position, shard=shard)
            return None
        if len(block) < BLOCK_BYTES:
            raise cut_header(position, len(block), shard=shard)
        header = read_header(block, shard=shard, offset_bytes=position)
        if header.kind not in EXTENDED_KINDS:
            break
        body = extended_body(take, header, position, shard=shard)
        if header.kind == b"g":
            stop = position + BLOCK_BYTES + padded(header.size_bytes)
            defaults.update(pax_records(body, shard=shard, offset_bytes=position + BLOCK_BYTES), stop)
        else:
            header_start = position if header_start < 0 else header_start
            for keyword, value in own_records(header.kind, body, position, shard=shard).items():
                own.setdefault(keyword, value)  # of two extended headers, the outer one counts
        position += BLOCK_BYTES + padded(header.size_bytes)
    header_start = position if header_start < 0 else header_start
    records = {**defaults.records, **own} if defaults.records else own
    return _build(header, records, header_start, position, shard=shard)


def _build(header: Header, records: dict[str, str], header_start: int, position: int, *, shard: str) -> Member:
    """The member of a header at ``position`` and of the PAX records that apply to it."""
    name, kind, size_bytes, link_name = header
    if records:
        name = records["path"].rstrip("/") if "path" in records else name
        link_name = records.get("linkpath", link_name)
        if "size" in records:
            size_bytes = pax_size(records["size"], header_start, shard=shard)
    refusal = _REFUSED.get(kind) or (refused_records(records, size_bytes) if records else None)
    if refusal is not None:
        reason, what, advice = refusal
        raise ShardError(
            f"{shard}: member {name!r} at byte {header_start:,} {what}; its bytes cannot be read as they lie. {advice}",
            shard=shard,
            reason=reason,
            offset_bytes=header_start,
        )
    if "\0" in name:
        raise ShardError(
            f"{shard}: the PAX header at byte {header_start:,} gives a name with a NUL byte, {name!r}, which no file "
            "can have. Make the archive again.",
            shard=shard,
            reason="bad-pax",
            offset_bytes=header_start,
        )
    start = position + BLOCK_BYTES
    if kind == b"\0" and records.get("path", name).endswith("/"):
        kind = b"5"  # V7's way to write a directory
    if kind == b"5":
        name = name.rstrip("/")
    stop = start if kind in _WITHOUT_PAYLOAD else start + size_bytes
    return Member(name, _KINDS.get(kind, "other"), header_start, start, stop, link_name)


def _cut_payload(member: Member, end: int, *, shard: str) -> ShardError:
    missing = member.stop - end
    what = (
        f"{missing:,} bytes of its payload are" if missing > 0 else f"{padded(member.stop) - end:,} bytes after it are"
    )
    return ShardError(
        f"{shard}: the archive is cut inside member {member.name!r} (header at byte {member.header_start:,}): its "
        f"payload of {member.stop - member.start:,} bytes begins at byte {member.start:,}, the data end at byte "
        f"{end:,}; {what} missing. Copy or make the file again.",
        shard=shard,
        reason="truncated",
        offset_bytes=member.header_start,
    )


def _dangling(header_start: int, position: int, *, shard: str) -> ShardError:
    return ShardError(
        f"{shard}: the extended header at byte {header_start:,} belongs to a member, but none follows at byte "
        f"{position:,}. The archive is cut; copy or make the file again.",
        shard=shard,
        reason="truncated",
        offset_bytes=header_start,
    )
