"""Samples go into numbered shards; what a scan of each shard would find is collected while it is written."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path

from omniloom.data.shards.keys import KeyRule
from omniloom.data.shards.scan import ShardScan, fingerprint
from omniloom.data.shards.write import TarWriter
from omniloom.errors import ConfigError

TAR_BLOCK_BYTES = 512
_RULE: KeyRule = "first-dot"


def shard_name(pattern: str, number: int) -> str:
    """Name of a shard: the pattern with its number filled in.

    Args:
        pattern: a file name with one ``%d``, such as ``shard-%06d.tar``.
        number: number of the shard, from 0.

    Raises:
        ConfigError: the pattern has no number in it, or is no plain ``.tar`` name.
    """
    try:
        name = pattern % number
    except (TypeError, ValueError):
        name = ""
    if "/" in name or name == pattern or not name.endswith(".tar") or name.startswith("."):
        raise ConfigError(f"pattern {pattern!r}: expected a file name such as shard-%06d.tar, without folders.")
    return name


class ShardOfSamples:
    """One shard while it is written; use as a context manager, then ask for its `scan`.

    Attributes:
        samples: samples written so far.
        payload_bytes: bytes of their parts, headers and padding not counted.
    """

    def __init__(self, path: Path, *, shard: str) -> None:
        self.samples = 0
        self.payload_bytes = 0
        self._path = path
        self._shard = shard
        self._writer = TarWriter(path)
        self._keys: list[str] = []
        self._offsets = array("Q")
        self._rows = array("I")
        self._names: list[str] = []
        self._headers = array("Q")
        self._starts = array("Q")
        self._stops = array("Q")
        self._dotted: list[str] = []

    def __enter__(self) -> ShardOfSamples:
        self._writer.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.__exit__(*error)  # type: ignore[arg-type]

    def write(self, key: str, parts: Mapping[str, bytes] | Iterable[tuple[str, bytes]]) -> None:
        """Append one sample; its parts are written in the order of their names, as webdataset's writer does."""
        for part, data in sorted(dict(parts).items()):
            member = self._writer.add(f"{key}.{part}", data)
            if not self._keys or len(self._keys) == self.samples:
                self._keys.append(key)
                self._offsets.append(member.header_start)
            self._rows.append(self.samples)
            self._names.append(part)
            self._headers.append(member.header_start)
            self._starts.append(member.start)
            self._stops.append(member.stop)
            self.payload_bytes += len(data)
            if "." in part:
                self._dotted.append(member.name)
        self.samples += 1

    def scan(self) -> ShardScan:
        """What scanning the finished shard would find, without reading it again (but for its fingerprint)."""
        self._offsets.append(-(-self._stops[-1] // TAR_BLOCK_BYTES) * TAR_BLOCK_BYTES)
        return ShardScan(
            shard=self._shard,
            size_bytes=self._path.stat().st_size,
            rule=_RULE,
            keys=self._keys,
            offsets=self._offsets,
            part_rows=self._rows,
            part_names=self._names,
            part_headers=self._headers,
            part_starts=self._starts,
            part_stops=self._stops,
            ignored={},
            junk_members=0,
            interleaved=0,
            hard_links=0,
            dropped_duplicates=0,
            dotted_keys=len(self._dotted),
            dotted_names=tuple(self._dotted[:2]),
            empty_members=sum(start == stop for start, stop in zip(self._starts, self._stops, strict=True)),
            has_end_marker=True,
            trailing_bytes=0,
            global_names=False,
            fingerprint=fingerprint(self._path, self._offsets, shard=self._shard),
        )
