"""Tar archives put together block by block, as broken as a test needs them; independent of the code under test."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path
from typing import Any

from omniloom.data.shards.parts_table import write_parts_table
from omniloom.data.shards.scan import ShardScan, scan_shard
from omniloom.data.shards.tar_shard import TarShard

END = bytes(1024)


def header(
    name: bytes | str,
    size: int | bytes = 0,
    kind: bytes = b"0",
    *,
    link: bytes | str = b"",
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    signed: bool = False,
) -> bytes:
    """One header block; ``size`` as bytes is put into the field as it is."""
    name = name.encode() if isinstance(name, str) else name
    link = link.encode() if isinstance(link, str) else link
    size_field = size if isinstance(size, bytes) else b"%011o\0" % size
    block = bytearray(512)
    for at, value in (
        (0, name), (100, b"0000644\0"), (108, b"0000000\0"), (116, b"0000000\0"), (124, size_field),
        (136, b"00000000000\0"), (148, b" " * 8), (156, kind), (157, link), (257, magic), (345, prefix),
    ):  # fmt: skip
        block[at : at + len(value)] = value
    assert len(block) == 512
    return with_checksum(bytes(block), signed=signed)


def with_checksum(block: bytes, *, signed: bool = False) -> bytes:
    """The block with its checksum field made right."""
    block = block[:148] + b" " * 8 + block[156:]
    total = sum(struct.unpack("512b" if signed else "512B", block))
    return block[:148] + b"%06o\0 " % total + block[156:]


def payload(data: bytes) -> bytes:
    """Data and its padding to whole blocks."""
    return data + bytes(-len(data) % 512)


def member(name: bytes | str, data: bytes = b"", kind: bytes = b"0", **fields: Any) -> bytes:
    """A header and its payload."""
    return header(name, fields.pop("size", len(data)), kind, **fields) + payload(data)


def record(keyword: str, value: str | bytes) -> bytes:
    """A PAX record, with its own length in front."""
    rest = b" " + keyword.encode() + b"=" + (value.encode() if isinstance(value, str) else value) + b"\n"
    length = len(rest)
    while len(rest) + len(str(length)) != length:
        length = len(rest) + len(str(length))
    return str(length).encode() + rest


def pax(kind: bytes = b"x", /, **records: str | bytes) -> bytes:
    """A PAX header; two underscores in keywords stand for a dot."""
    body = b"".join(record(keyword.replace("__", "."), value) for keyword, value in records.items())
    return member("././@PaxHeader", body, kind)


def long_name(name: bytes | str, kind: bytes = b"L") -> bytes:
    """A GNU long name (``L``) or long link (``K``)."""
    name = name.encode() if isinstance(name, str) else name
    return member("././@LongLink", name + b"\0", kind, magic=b"ustar  \0")


def write(path: Path, *pieces: bytes) -> Path:
    """Put pieces into a file."""
    path.write_bytes(b"".join(pieces))
    return path


def write_members(path: Path, members: dict[str, bytes], format: int = tarfile.USTAR_FORMAT) -> Path:
    """An archive as CPython writes it."""
    with tarfile.open(path, "w", format=format) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def samples_of(path: Path, scan: ShardScan) -> dict[str, dict[str, bytes]]:
    """What a scan says of an archive, with the bytes at its positions."""
    data = path.read_bytes()
    samples: dict[str, dict[str, bytes]] = {key: {} for key in scan.keys}
    for row, name, start, stop in zip(scan.part_rows, scan.part_names, scan.part_starts, scan.part_stops, strict=True):
        samples[scan.keys[row]][name] = data[start:stop]
    return samples


def write_index(path: Path, offsets: list[int]) -> None:
    """A ``.tar.idx`` as Energon writes it."""
    path.with_suffix(".tar.idx").write_bytes(struct.pack(f"<{len(offsets)}Q", *offsets))


def open_indexed(path: Path, *, known: bool = True, limit: int | None = None, **scanning: Any) -> TarShard:
    """Scan an archive, write its index (and parts table when irregular), and open it by that.

    With ``known`` false, as after Energon's prepare: neither size nor fingerprint are known.
    """
    scan = scan_shard(path, shard=path.name, **scanning)
    write_index(path, list(scan.offsets))
    table = None
    if scan.irregular:
        table = path.with_suffix(".parts")
        policy = scanning.get("on_duplicate", "error")
        write_parts_table(table, scan, mtime_ns=path.stat().st_mtime_ns, on_duplicate=policy)
    return TarShard(
        path,
        name=path.name,
        samples=len(scan.keys),
        size_bytes=scan.size_bytes if known else None,
        fingerprint=scan.fingerprint if known else None,
        parts_path=table,
        rule=scan.rule,
        **({} if limit is None else {"member_limit_bytes": limit}),
    )


def rows_of(shard: TarShard) -> dict[str, dict[str, bytes]]:
    """Every sample of a shard, read by row."""
    return dict(shard.read(row) for row in range(len(shard)))
