"""The compressions an archive may be wrapped in, told by their first bytes, and the refusal to read rows from one."""

from __future__ import annotations

from pathlib import PurePath

from omniloom.errors import ShardError

COMPRESSION_MAGICS: dict[str, bytes] = {
    "gzip": b"\x1f\x8b",
    "zstd": b"\x28\xb5\x2f\xfd",
    "xz": b"\xfd7zXZ\0",
    "bzip2": b"BZh",
    "lz4": b"\x04\x22\x4d\x18",
    "zip": b"PK\x03\x04",
}
READABLE_COMPRESSIONS = ("gzip", "zstd", "xz", "bzip2")
"""Those that `omniloom convert tar` unpacks."""

_COMPRESSED_SUFFIXES = (".tgz", ".tzst", ".txz", ".tbz2", ".tbz", ".gz", ".zst", ".xz", ".bz2", ".lz4", ".zip")


def compression_of(head: bytes) -> str | None:
    """Name of the compression that a file's first bytes (6 or more) announce, or ``None``."""
    return next((name for name, magic in COMPRESSION_MAGICS.items() if head.startswith(magic)), None)


def plain_name(path: str) -> str:
    """The name of a shard once it is uncompressed: ``a.tar.gz`` and ``a.tgz`` become ``a.tar``.

    A name that does not tell (``a.tar`` with gzip inside) becomes ``a.plain.tar``.
    """
    for suffix in _COMPRESSED_SUFFIXES:
        if path.lower().endswith(suffix):
            stem = path[: -len(suffix)]
            return stem if stem.lower().endswith(".tar") else f"{stem}.tar"
    return str(PurePath(path).with_suffix(".plain.tar"))


def compressed_error(compression: str, *, shard: str, path: str) -> ShardError:
    """The refusal to index or to read at random an archive that is compressed."""
    advice = "Unpack it and pack it again with tar, without compression."
    if compression in READABLE_COMPRESSIONS:
        advice = f"Convert it: omniloom convert tar {path} --out {plain_name(path)}"
    return ShardError(
        f"{shard}: the archive is compressed with {compression}, so that no sample can be read without all before it. "
        f"Expected a plain tar. {advice}",
        shard=shard,
        reason="compressed",
        offset_bytes=0,
    )
