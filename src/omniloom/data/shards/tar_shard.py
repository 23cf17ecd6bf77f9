"""One shard opened for random access: a row is one read of the span that the index gives, and its headers.

The hottest code of the loader. Files are opened lazily, a limited number at a time per process; a shard that
pickles is closed.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from array import array
from collections.abc import Container
from typing import Any

from omniloom.data.sample import Span
from omniloom.data.shards.archive_file import Archive, Window, open_archive
from omniloom.data.shards.extended import Globals, only_times
from omniloom.data.shards.far_shard import FarShard
from omniloom.data.shards.header import BLOCK_BYTES, checksum_holds, padded, plain_name, plain_size
from omniloom.data.shards.keys import KeyRule, ignored_reason, may_be_ignored, split_key
from omniloom.data.shards.parts_table import PartsTable
from omniloom.data.shards.pool import TABLE_BYTES, Pool
from omniloom.data.shards.scan import fingerprint_of, fingerprint_rows
from omniloom.data.shards.tar import check_first_block, parse_window, read_member
from omniloom.data.shards.tar_index import read_index_file, read_tar_index, tar_index_path
from omniloom.errors import SampleError, ShardError, StorageError
from omniloom.storage.node_copy import StoredFile
from omniloom.storage.urls import is_url, redacted

MEMBER_LIMIT_BYTES = 4 << 30
"""A part with more bytes is refused before it is read."""

_WHOLE_SPAN_BYTES = 1 << 20
_WHOLE_FAR_SPAN_BYTES = 16 << 20  # what comes in the time of the requests by which one would look for its parts
_OPEN_LIMIT = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
_FILES = Pool("file", 512 if _OPEN_LIMIT == resource.RLIM_INFINITY else max(8, min(512, _OPEN_LIMIT // 4)))
_TABLES = Pool("offsets", TABLE_BYTES)
_REGULAR = ord("0")
_PAX = ord("x")
# What no reader of rows can repair by indexing again; all else that is wrong with a header contradicts the index.
_FORMAT_REASONS = ("sparse", "multi-volume")


class TarShard:
    """Samples of one archive by row.

    Args:
        path: the archive.
        name: its name in the data set, for messages.
        samples: how many samples its index lists.
        size_bytes: its size when it was indexed; ``None`` if that is not known.
        fingerprint: its sampled header digest when it was indexed; ``None`` if that is not known.
        parts_path: table of its parts, where the spans of the index do not describe it.
        index: its index, where it does not lie beside it.
        far: what is known of it, where it lies in a store.
        rule: how names of members are split into key and part.
        member_limit_bytes: largest part that is read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str,
        samples: int,
        size_bytes: int | None = None,
        fingerprint: str | None = None,
        parts_path: str | os.PathLike[str] | StoredFile | None = None,
        index: StoredFile | None = None,
        far: FarShard | None = None,
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
        self.is_far = is_url(self.path)
        self._whole_bytes = _WHOLE_FAR_SPAN_BYTES if self.is_far else _WHOLE_SPAN_BYTES
        self._index = index
        self._far = far
        self._opening = threading.Lock()
        self._table = None if parts_path is None else PartsTable(parts_path)
        self._file: Archive | None = None
        self._offsets: array[int] | None = None
        self._checked = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None, "_offsets": None, "_opening": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _opening=threading.Lock())

    def __len__(self) -> int:
        return self.samples

    def read(self, row: int, wanted: Container[str] | None = None) -> tuple[str, dict[str, bytes]]:
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
        offsets = self._offsets
        if offsets is not None and 0 < row < self.samples:
            start, stop = offsets[row], offsets[row + 1]  # as `byte_range`, without the call
        else:
            start, stop = self.byte_range(row)
        length = stop - start
        if length > self._limit or (length > self._whole_bytes and wanted is not None):
            return self._read_by_part(file, row, wanted)
        try:
            span = file.pread(length, start)
        except StorageError:
            raise  # of a store, which has tried it again for long enough
        except (OSError, MemoryError):
            span = b""
        if len(span) != length:  # rare enough to ask again, by the function that knows every case
            span = self._read_again(file, row, start, stop)
        if len(span) != length:
            raise self._stale(f"sample {row} ends at byte {stop:,}, after the end of the file", start)
        return self._parse_plain(span, wanted) or self._parse_closely(span, row, start, wanted)

    def _read_again(self, file: Archive, row: int, start: int, stop: int) -> bytes:
        try:
            return file.read(stop - start, start)
        except MemoryError:
            raise self._too_large(row, stop - start) from None

    def spans(self, row: int) -> tuple[str, dict[str, Span]]:
        """Key of a sample and where the bytes of its parts lie. Raises as `read` does."""
        if self._table is not None:
            if not self._checked:
                self._open()
            key, parts = self._table.row(row)
            return key, {part: Span(self.path, start, stop) for part, start, stop in parts}
        key, places = self._places(self._file or self._open(), row)
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

    def knows_places(self) -> bool:
        """Whether `places` answers without a request."""
        return self._offsets is not None or (self._table is not None and self._file is not None)

    def places(self, row: int, wanted: Container[str] | None = None) -> list[tuple[str, int, int]]:
        """The ranges of the object that `read` will ask for, in the order of the archive; none where it looks first."""
        if self._table is not None:
            parts = [part for part in self._table.row(row)[1] if wanted is None or part[0] in wanted]
            return [(self.path, start - BLOCK_BYTES, stop) for _, start, stop in parts]
        start, stop = self.byte_range(row)
        if stop - start > self._limit or (stop - start > self._whole_bytes and wanted is not None):
            return []
        return [(self.path, start, stop)]

    def make_ready(self) -> None:
        """Open and check the shard, as `read` does where nobody has done it yet. Raises as `read` does."""
        self._open()

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

    def _parse_plain(self, span: bytes, wanted: Container[str] | None) -> tuple[str, dict[str, bytes]] | None:
        """The sample of a span of ordinary members; ``None`` where anything needs a closer look."""
        parts: dict[str, bytes] = {}
        key, position, end = None, 0, len(span)
        while position < end:
            header = span[position : position + BLOCK_BYTES]
            size_bytes = plain_size(header) if len(header) == BLOCK_BYTES else -1
            if size_bytes < 0:
                return None
            if header[156] != _REGULAR:
                position += BLOCK_BYTES
                if header[156] != _PAX or not only_times(span[position : position + size_bytes]):
                    return None
                position += padded(size_bytes)
                continue
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
        self, span: bytes, row: int, start: int, wanted: Container[str] | None
    ) -> tuple[str, dict[str, bytes]]:
        key, places = self._members(Window(span, start), row, start, start + len(span))
        chosen = {part: place for part, place in places.items() if wanted is None or part in wanted}
        return key, {part: span[first - start : stop - start] for part, (first, stop) in chosen.items()}

    def _places(self, file: Archive, row: int) -> tuple[str, dict[str, tuple[int, int]]]:
        """As `_members`, by its headers alone."""
        start, stop = self.byte_range(row)
        return self._members(file.window(), row, start, stop)

    def _members(self, window: Window, row: int, start: int, stop: int) -> tuple[str, dict[str, tuple[int, int]]]:
        """Key of the sample in a span, and first and last byte of its parts in the archive."""
        try:
            members = parse_window(window, start, stop, shard=self.name)
        except ShardError as error:
            if error.reason in _FORMAT_REASONS:
                raise
            raise self._stale(f"sample {row} at byte {start:,} is not where the index says: {error}", start) from error
        places: dict[str, tuple[int, int]] = {}
        key: str | None = None
        for member in members:
            halves = split_key(member.name, self._rule)
            if member.kind in ("directory", "other") or halves is None or ignored_reason(member.name, self._rule):
                continue
            if member.kind != "file":
                raise self._sample_error(
                    row,
                    f"member {member.name!r} at byte {member.header_start:,} is a link to {member.link_name!r}; "
                    "`omniloom prepare` finds what it stands for",
                    "link",
                )
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

    def _read_by_part(self, file: Archive, row: int, wanted: Container[str] | None) -> tuple[str, dict[str, bytes]]:
        """Read a row whose span is long part by part, leaving out those that are not wanted."""
        key, places = self._places(file, row)
        chosen = [(part, *place) for part, place in places.items() if wanted is None or part in wanted]
        return key, {part: self._read_part(file, row, part, start, stop) for part, start, stop in chosen}

    def _read_by_table(self, row: int, wanted: Container[str] | None) -> tuple[str, dict[str, bytes]]:
        file = self._file or self._open()
        key, parts = self._table.row(row) if self._table is not None else ("", [])
        chosen = [part for part in parts if wanted is None or part[0] in wanted]
        return key, {part: self._read_part(file, row, part, start, stop) for part, start, stop in chosen}

    def _read_part(self, file: Archive, row: int, part: str, start: int, stop: int) -> bytes:
        """One payload, with the header block before it, which has to be sound."""
        length = stop - start
        if length > self._limit:
            raise self._too_large(row, length, part)
        if self.is_far:  # one request; the spool holds just this range
            whole = file.read(BLOCK_BYTES + length, start - BLOCK_BYTES)
            header, data = whole[:BLOCK_BYTES], whole[BLOCK_BYTES:]
        else:
            header, data = self._read_near_part(file, row, part, start, length)
        if not checksum_holds(header):
            raise self._stale(f"part {part!r} of row {row} has no sound header before it", start - BLOCK_BYTES)
        if len(data) != length:
            raise self._stale(f"part {part!r} of row {row} ends at byte {stop:,}, after the end of the file", start)
        return data

    def _read_near_part(self, file: Archive, row: int, part: str, start: int, length: int) -> tuple[bytes, bytes]:
        """The header block before a payload, and the payload, which is read only after a sound header."""
        header = file.read(BLOCK_BYTES, start - BLOCK_BYTES)
        try:
            return header, file.read(length, start) if checksum_holds(header) else b""
        except MemoryError:
            raise self._too_large(row, length, part) from None

    def _open(self) -> Archive:
        """Open the file; where the system allows no more files, after closing others."""
        with self._opening:  # a shard in a store is checked in the background, too
            if self._file is not None:
                return self._file
            try:
                return self._open_once()
            except StorageError as error:
                if error.errno != errno.EMFILE or not _FILES.shrink():
                    raise
            return self._open_once()

    def _open_once(self) -> Archive:
        """Open the file and see that it has the size that was indexed; the first time, look at its headers too."""
        file: Archive | None = self._far.archive(self.path, self._size_bytes) if self._far else None
        if file is None:
            file = open_archive(self.path, shard=self.name)
            self._compare(file)
        self._checked, self._file = True, file
        _FILES.keep(self, 1)
        return file

    def _compare(self, file: Archive) -> None:
        mark = file.mark()
        if self._size_bytes is not None and mark.size_bytes != self._size_bytes:
            raise self._stale(f"it has {mark.size_bytes:,} bytes now and had {self._size_bytes:,} when it was indexed")
        if self._checked or (self._far is not None and self._far.is_good(self.name, mark.state)):
            return
        if self._far is None:
            self._check(file)
        else:
            self._far.checked.check_once(self.name, mark.state, lambda: self._check(file))

    def _check(self, file: Archive) -> None:
        window = file.window()
        check_first_block(window.take(0, BLOCK_BYTES), shard=self.name, path=self.path)
        if self._table is None:
            self._refuse_globals(window)
        offsets = self._offsets or self._load_offsets()
        if self._fingerprint is None:
            if self._table is None:
                self._check_sampled_rows(file, offsets)
            return
        if fingerprint_of(file, offsets) != self._fingerprint:
            raise self._stale("its headers are not those that were indexed")

    def _check_sampled_rows(self, file: Archive, offsets: array[int]) -> None:
        """Where only Energon indexed the shard: some rows have to begin with headers, and no data follow the last."""
        rows = fingerprint_rows(self.samples)
        *blocks, after = file.read_many([*(offsets[row] for row in rows), offsets[-1]], BLOCK_BYTES)
        for row, block in zip(rows, blocks, strict=True):
            if not checksum_holds(block):
                raise self._stale(f"sample {row} has no header at byte {offsets[row]:,}", offsets[row])
        if after.strip(b"\0"):
            raise self._stale(f"its index ends at byte {offsets[-1]:,}, where more data follow", offsets[-1])

    def _refuse_globals(self, window: Window) -> None:
        """A global header that names members reaches all of them, and a row is read without it."""
        defaults = Globals()
        if window.take(0, BLOCK_BYTES)[156:157] == b"g":
            read_member(window.take, 0, shard=self.name, defaults=defaults)
        if defaults.changes_members:
            raise self._stale("a PAX global header sets names or sizes of its members, which no index of spans tells")

    def _load_offsets(self) -> array[int]:
        offsets = read_tar_index(self.path) if self._index is None else read_index_file(self._index.fetch())
        if len(offsets) != self.samples + 1:
            path = tar_index_path(self.path) if self._index is None else redacted(self._index.url)
            raise self._stale(f"{path} lists {len(offsets) - 1:,} samples and .info.json {self.samples:,}")
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

    def _too_large(self, row: int, size_bytes: int, part: str = "") -> SampleError:
        what = f"part {part!r} has {size_bytes:,} bytes" if part else f"{size_bytes:,} bytes"
        advice = f"at most {self._limit:,} are read, as memory allows. Raise member_limit_bytes or leave the part out"
        return self._sample_error(row, f"{what}; {advice}", "too-large")
