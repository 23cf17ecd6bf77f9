"""One shard opened for random access: a row is one read of the span that the index gives, and its headers.

The hottest code of the loader. Files are opened lazily, a limited number at a time per process; a shard that
pickles is closed.
"""

from __future__ import annotations

import os
import resource
from array import array
from typing import Any

from omniloom.data.sample import Span
from omniloom.data.shards.archive_file import open_archive, read_at
from omniloom.data.shards.header import BLOCK_BYTES, plain_name, plain_size
from omniloom.data.shards.keys import KeyRule, ignored_reason, may_be_ignored, split_key
from omniloom.data.shards.parts_table import PartsTable
from omniloom.data.shards.pool import TABLE_BYTES, OpenFile, Pool
from omniloom.data.shards.scan import fingerprint_of
from omniloom.data.shards.tar import parse_span
from omniloom.data.shards.tar_index import read_tar_index, tar_index_path
from omniloom.errors import SampleError, ShardError

MEMBER_LIMIT_BYTES = 4 << 30
"""A sample with more bytes is refused before it is read."""

_FILES = Pool("file", max(8, min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)))
_TABLES = Pool("offsets", TABLE_BYTES)
_REGULAR = ord("0")


class TarShard:
    """Samples of one archive by row.

    Args:
        path: the archive.
        name: its name in the data set, for messages.
        samples: how many samples its index lists.
        size_bytes: its size when it was indexed; ``None`` if that is not known.
        fingerprint: its sampled header digest when it was indexed; ``None`` if that is not known.
        parts_path: table of its parts, where the spans of the index do not describe it.
        rule: how names of members are split into key and part.
        member_limit_bytes: largest sample that is read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str,
        samples: int,
        size_bytes: int | None = None,
        fingerprint: str | None = None,
        parts_path: str | os.PathLike[str] | None = None,
        rule: KeyRule = "first-dot",
        member_limit_bytes: int = MEMBER_LIMIT_BYTES,
    ) -> None:
        self.path = os.fspath(path)
        self.name = name
        self.samples = samples
        self._size_bytes = size_bytes
        self._fingerprint = fingerprint
        self._rule = rule
        self._limit = member_limit_bytes
        self._table = None if parts_path is None else PartsTable(parts_path)
        self._file: OpenFile | None = None
        self._offsets: array[int] | None = None
        self._checked = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None, "_offsets": None}

    def __len__(self) -> int:
        return self.samples

    def read(self, row: int, wanted: frozenset[str] | None = None) -> tuple[str, dict[str, bytes]]:
        """Key of a sample and the bytes of its parts.

        Args:
            row: its row in the shard.
            wanted: parts to give; ``None``: all.

        Raises:
            ShardError: the shard is missing, changed since it was indexed (``index-stale``) or damaged.
            SampleError: the row holds ignored members only (``ignored-row``), a part twice (``duplicate``), a link
                (``link``) or too many bytes (``too-large``).
        """
        if self._table is not None:
            return self._read_by_table(row, wanted)
        file = self._file or self._open()
        start, stop = self.byte_range(row)
        if stop - start > self._limit:
            raise self._too_large(row, stop - start)
        span = os.pread(file.descriptor, stop - start, start)
        if len(span) != stop - start:  # one call gives at most 2 GiB
            span = read_at(file.descriptor, stop - start, start, path=self.path)
            if len(span) != stop - start:
                raise self._stale(f"sample {row} ends at byte {stop:,}, after the end of the file", start)
        return self._parse_plain(span, wanted) or self._parse_closely(span, row, start, wanted)

    def spans(self, row: int) -> tuple[str, dict[str, Span]]:
        """Key of a sample and where the bytes of its parts lie. Raises as `read` does."""
        if self._table is not None:
            if not self._checked:
                self._open()
            key, parts = self._table.row(row)
            return key, {part: Span(self.path, start, stop) for part, start, stop in parts}
        file = self._file or self._open()
        start, stop = self.byte_range(row)
        span = read_at(file.descriptor, stop - start, start, path=self.path)
        key, places = self._members(span, row, start)
        return key, {part: Span(self.path, *place) for part, place in places.items()}

    def byte_range(self, row: int) -> tuple[int, int]:
        """First byte of a sample's headers and the byte after its last payload."""
        if self._table is not None:
            parts = self._table.row(row)[1]
            return min(part[1] for part in parts), max(part[2] for part in parts)
        offsets = self._offsets
        if offsets is None:
            offsets = self._load_offsets()
        if not 0 <= row < self.samples:
            raise IndexError(f"{self.name}: there is no row {row:,}; the shard has {self.samples:,} samples")
        return (offsets[row] if row else 0), offsets[row + 1]  # sample 0 starts at 0, as Energon reads it

    def close(self) -> None:
        """Close the file and forget the offsets; the next question opens it again."""
        self.release("file")
        self.release("offsets")
        if self._table is not None:
            self._table.close()

    def release(self, what: str) -> None:
        """Let go of the file or the offsets (see `Pool`)."""
        if what == "file":
            self._file = None
        else:
            self._offsets = None

    def _parse_plain(self, span: bytes, wanted: frozenset[str] | None) -> tuple[str, dict[str, bytes]] | None:
        """The sample of a span of ordinary members; ``None`` where anything needs a closer look."""
        parts: dict[str, bytes] = {}
        key, position, end = None, 0, len(span)
        while position < end:
            header = span[position : position + BLOCK_BYTES]
            if len(header) < BLOCK_BYTES or header[156] != _REGULAR:
                return None
            size_bytes = plain_size(header)
            if size_bytes < 0:
                return None
            name = plain_name(header)
            dot = name.find(".", name.rfind("/") + 1)
            # The first dot, not at the begin of the base name; anything else is looked at closely.
            if dot < 1 or name[dot - 1] == "/" or may_be_ignored(name) or self._rule != "first-dot":
                return None
            stem, part = name[:dot], name[dot + 1 :]
            if key is None:
                key = stem
            elif stem != key or part in parts:
                return None
            position += BLOCK_BYTES
            if wanted is None or part in wanted:
                parts[part] = span[position : position + size_bytes]
            position = (position + size_bytes + BLOCK_BYTES - 1) & -BLOCK_BYTES
        return None if key is None or position != end else (key, parts)

    def _parse_closely(
        self, span: bytes, row: int, start: int, wanted: frozenset[str] | None
    ) -> tuple[str, dict[str, bytes]]:
        key, places = self._members(span, row, start)
        chosen = {part: place for part, place in places.items() if wanted is None or part in wanted}
        return key, {part: span[first - start : stop - start] for part, (first, stop) in chosen.items()}

    def _members(self, span: bytes, row: int, start: int) -> tuple[str, dict[str, tuple[int, int]]]:
        """Key of the sample in a span, and first and last byte of its parts in the archive."""
        try:
            members = parse_span(span, shard=self.name, start=start)
        except ShardError as error:
            raise self._stale(f"sample {row} at byte {start:,} is not where the index says: {error}", start) from error
        places: dict[str, tuple[int, int]] = {}
        key: str | None = None
        for member in members:
            if member.kind in ("hard-link", "symbolic-link"):
                raise self._sample_error(
                    row,
                    f"member {member.name!r} at byte {member.header_start:,} is a link to {member.link_name!r}",
                    "link",
                )
            halves = split_key(member.name, self._rule)
            if member.kind != "file" or halves is None or ignored_reason(member.name, self._rule):
                continue
            stem, part = halves
            if key is not None and stem != key:
                raise self._stale(f"row {row} holds members of {key!r} and of {stem!r}", member.header_start)
            if part in places:
                first = places[part][0] - BLOCK_BYTES
                raise self._sample_error(
                    row,
                    f"{stem!r} has two parts called {part!r}, at bytes {first:,} and {member.header_start:,}",
                    "duplicate",
                )
            key = stem
            places[part] = (member.start, member.stop)
        if key is None:
            raise self._sample_error(row, "only members that are ignored, such as AppleDouble files", "ignored-row")
        return key, places

    def _read_by_table(self, row: int, wanted: frozenset[str] | None) -> tuple[str, dict[str, bytes]]:
        file = self._file or self._open()
        key, parts = self._table.row(row) if self._table is not None else ("", [])
        size_bytes = sum(stop - start for _, start, stop in parts)
        if size_bytes > self._limit:
            raise self._too_large(row, size_bytes)
        read = {}
        for part, start, stop in parts:
            if wanted is None or part in wanted:
                read[part] = read_at(file.descriptor, stop - start, start, path=self.path)
                if len(read[part]) != stop - start:
                    raise self._stale(f"part {part!r} of {key!r} ends after the end of the file", start)
        return key, read

    def _open(self) -> OpenFile:
        """Open the file; the first time, see that it is the one that was indexed."""
        file = OpenFile(open_archive(self.path, shard=self.name))
        if not self._checked:
            self._check(file.descriptor)
            self._checked = True
        self._file = file
        _FILES.keep(self, 1)
        return file

    def _check(self, descriptor: int) -> None:
        size_bytes = os.fstat(descriptor).st_size
        if self._size_bytes is not None and size_bytes != self._size_bytes:
            raise self._stale(f"it has {size_bytes:,} bytes now and had {self._size_bytes:,} when it was indexed")
        if self._fingerprint is None:
            return
        offsets = self._offsets or self._load_offsets()
        if fingerprint_of(descriptor, offsets, path=self.path) != self._fingerprint:
            raise self._stale("its headers are not those that were indexed")

    def _load_offsets(self) -> array[int]:
        offsets = read_tar_index(self.path)
        if len(offsets) != self.samples + 1:
            raise self._stale(
                f"{tar_index_path(self.path)} lists {len(offsets) - 1:,} samples and .info.json {self.samples:,}"
            )
        self._offsets = offsets
        _TABLES.keep(self, 8 * len(offsets))
        return offsets

    def _stale(self, what: str, offset_bytes: int | None = None) -> ShardError:
        return ShardError(
            f"{self.name}: the shard does not fit its index: {what}.\n  Run `omniloom prepare` on the data set again.",
            shard=self.name,
            reason="index-stale",
            offset_bytes=offset_bytes,
        )

    def _sample_error(self, row: int, what: str, reason: str) -> SampleError:
        return SampleError(f"{self.name}: row {row}: {what}", reason=reason)

    def _too_large(self, row: int, size_bytes: int) -> SampleError:
        return self._sample_error(row, f"{size_bytes:,} bytes; at most {self._limit:,} are read", "too-large")
