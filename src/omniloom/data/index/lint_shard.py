"""Checks one shard: that it is a sound archive, is still the one that was indexed, and holds sound samples."""

from __future__ import annotations

import functools
import os
import tempfile
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from omniloom.data.index.field_map import FieldOption
from omniloom.data.index.lint_names import doubtful_names
from omniloom.data.index.lint_parts import ERROR, WARNING, Remark, check_sample, parts_looked_into
from omniloom.data.index.omniloom_json import ShardMark
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.shards.archive_file import Archive, open_archive
from omniloom.data.shards.keys import KeyRule, ignored_reason, split_key
from omniloom.data.shards.parts_table import read_summary, write_parts_table
from omniloom.data.shards.ranges_ahead import with_ranges
from omniloom.data.shards.scan import DuplicatePolicy, ShardScan, scan_shard
from omniloom.data.shards.tar import walk_tar
from omniloom.data.shards.tar_index import read_index_file, read_tar_index
from omniloom.errors import DatasetError, ShardError, StorageError, StoreAwayError
from omniloom.storage.node_copy import StoredFile, fetched
from omniloom.storage.urls import is_url

FINDINGS_PER_SHARD = 1_000
SAMPLES_PER_CALL = 50
BATCH_BYTES = 16 << 20
"""Parts of a shard in a store are fetched together up to so many bytes, and up to three times as many are held."""

KEPT_BYTES = 64 << 20
"""Of a shard in a store, what finding its samples has read is kept up to so many bytes for checking them."""

OnSamples = Callable[[int, int], None]

_Ranges = dict[str, tuple[int, int]]
_Parts = tuple[str, _Ranges]
_Read = tuple[_Parts, dict[str, bytes]]
_Checked = tuple[str, _Ranges, list[Remark]]


class Finding(NamedTuple):
    """Something wrong.

    Attributes:
        level: ``error`` for what training would stumble over, else ``warning``.
        reason: short stable word for counting.
        shard: name of the shard; empty for the data set as a whole.
        key: key of the sample; empty for the shard as a whole.
        part: name of the part; empty for the sample as a whole.
        start: first byte in the shard, if bytes are to blame.
        stop: byte after the last.
        message: what is wrong.
    """

    level: str
    reason: str
    shard: str
    key: str
    part: str
    start: int | None
    stop: int | None
    message: str


class LintRequest(NamedTuple):
    """What to check.

    Attributes:
        shard: name of the shard.
        path: the archive.
        samples: how many ``.info.json`` says it holds.
        rule: how names are split.
        mark: what omniloom noted of it; ``None`` when only Energon indexed it.
        table: its parts table, if there is one.
        fields: alternatives of each field; ``None`` without a field map.
        excluded_keys: samples that are not yielded and not checked.
        decoder: the decoder of the run.
        decode: whether images are decoded.
        new_table: where to leave the keys for a comparison of shards; empty: they are sent back.
        threads: how many samples of the shard are decoded at a time, where there are more cores than shards.
        index_file: its index, where that does not lie beside it.
    """

    shard: str
    path: str
    samples: int
    rule: KeyRule
    mark: ShardMark | None
    table: str | StoredFile
    fields: Mapping[str, tuple[FieldOption, ...]] | None
    excluded_keys: frozenset[str]
    decoder: SampleDecoder
    decode: bool
    new_table: str
    threads: int = 1
    index_file: StoredFile | None = None


@dataclass(slots=True, kw_only=True)
class LintedShard:
    """What came of it.

    Attributes:
        shard: its name.
        samples: samples that were walked.
        bad_samples: those with an error.
        findings: the first thousand findings.
        counts: all findings, by level and reason.
        key_range: smallest and largest key.
        bad_keys: keys of all samples with an error.
        unusable: whether the shard as a whole cannot be read.
        keys_table: a parts table with its keys, where it is sent back.
    """

    shard: str
    samples: int = 0
    bad_samples: int = 0
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    key_range: tuple[str, str] | None = None
    bad_keys: list[str] = field(default_factory=list)
    unusable: bool = False
    keys_table: bytes = b""

    def add(self, finding: Finding, *, times: int = 1) -> None:
        """Count a finding and keep it while there is room."""
        self.counts[finding.level, finding.reason] += times
        if len(self.findings) < FINDINGS_PER_SHARD:
            self.findings.append(finding)


def lint_shard(request: LintRequest, *, on_samples: OnSamples | None = None) -> LintedShard:
    """Check one shard. What is wrong with it is found, not raised.

    Args:
        request: what to check.
        on_samples: called now and then with the samples that were checked, and all of the shard.

    Raises:
        StoreAwayError: the store does not answer any more; nothing can be said of the shard.
    """
    found = LintedShard(shard=request.shard)
    try:
        archive = open_archive(request.path, shard=request.shard, kept_bytes=KEPT_BYTES)
    except (OSError, ShardError) as error:
        _find_unusable(found, error)
        return found
    try:
        _check_archive(request, archive, found, on_samples)
    finally:
        archive.close()
    return found


def _check_archive(request: LintRequest, archive: Archive, found: LintedShard, on_samples: OnSamples | None) -> None:
    tell = functools.partial(_shard_finding, request.shard)
    scan = _scanned(request, archive, found)
    if scan is None:
        return
    _leave_keys(request, scan, found)
    stale = _staleness(request, scan)
    if stale is not None:
        found.add(tell(ERROR, "index-stale", stale))
    for finding, times in _remarks_on_shard(request, scan):
        found.add(finding, times=times)
    _check_samples(request, archive, scan, found, on_samples)


def _find_unusable(found: LintedShard, error: OSError | ShardError) -> None:
    """Take down that a shard as a whole cannot be read. Raises StoreAwayError, which is no fault of the shard."""
    if isinstance(error, StoreAwayError):
        raise error
    reason, start = (error.reason, error.offset_bytes) if isinstance(error, ShardError) else ("unreadable", None)
    found.add(_shard_finding(found.shard, ERROR, reason, str(error), start=start))
    found.unusable = True


def _leave_keys(request: LintRequest, scan: ShardScan, found: LintedShard) -> None:
    if request.new_table:
        found.key_range = write_parts_table(request.new_table, scan, mtime_ns=0, on_duplicate="error").key_range
        return
    with tempfile.TemporaryDirectory(prefix="omniloom-lint-") as folder:
        table = Path(folder, "table")
        found.key_range = write_parts_table(table, scan, mtime_ns=0, on_duplicate="error").key_range
        found.keys_table = table.read_bytes()


def energon_offsets(path: str, *, shard: str) -> array[int]:
    """The offsets that Energon's indexer would write: one row per run of neighbours with one key, junk included."""
    walk = walk_tar(path, shard=shard)
    offsets = array("Q")
    last_key = None
    for member in walk:
        if member.kind != "file" or ignored_reason(member.name) in ("meta", "no-key"):
            continue
        split = split_key(member.name)
        if split is not None and split[0] != last_key:
            last_key = split[0]
            offsets.append(member.header_start)
    offsets.append(walk.end)
    return offsets


def _scanned(request: LintRequest, archive: Archive, found: LintedShard) -> ShardScan | None:
    scan = functools.partial(scan_shard, request.path, shard=request.shard, rule=request.rule, archive=archive)
    try:
        return scan(on_duplicate=_policy(request))
    except ShardError as error:
        if error.reason == "duplicate":  # the other samples of the shard can still be checked
            found.add(_shard_finding(found.shard, ERROR, error.reason, str(error), start=error.offset_bytes))
            return scan(on_duplicate="last")
        _find_unusable(found, error)
    except OSError as error:
        _find_unusable(found, error)
    return None


def _policy(request: LintRequest) -> DuplicatePolicy:
    """The duplicate policy that the set was prepared with."""
    try:
        table = fetched(request.table)
        if not os.path.exists(table):  # noqa: PTH110
            return "error"
        policy = read_summary(table).on_duplicate
    except (ShardError, StorageError):
        return "error"
    return policy if policy in ("first", "last") else "error"  # type: ignore[return-value]


def _staleness(request: LintRequest, scan: ShardScan) -> str | None:
    """Why the index no longer fits the shard, if it does not."""
    mark = request.mark
    advice = "Run `omniloom prepare` again."
    if mark is not None and mark.size_bytes != scan.size_bytes:
        return f"the shard has {scan.size_bytes:,} bytes, but had {mark.size_bytes:,} when it was indexed. {advice}"
    if mark is not None and mark.fingerprint != scan.fingerprint:
        return f"the shard's headers are not those that were indexed (same size, other content). {advice}"
    try:
        index = request.index_file
        offsets = read_tar_index(request.path) if index is None else read_index_file(index.fetch())
    except (DatasetError, StorageError) as error:
        return str(error)
    if len(offsets) - 1 != request.samples:
        return f"the index lists {len(offsets) - 1:,} samples, .info.json {request.samples:,}. {advice}"
    if offsets != scan.offsets and (mark is not None or offsets != energon_offsets(request.path, shard=request.shard)):
        return f"the index lists other offsets than the shard has ({len(scan.keys):,} samples). {advice}"
    return None


def _remarks_on_shard(request: LintRequest, scan: ShardScan) -> Iterator[tuple[Finding, int]]:
    tell = functools.partial(_shard_finding, request.shard)
    torn = request.mark is None and scan.interleaved > 0
    doubtful = doubtful_names(scan, request.fields or {})
    if doubtful:
        share = f"{len(doubtful):,}/{len(scan.part_rows):,}"
        names = " and ".join(repr(name) for name in doubtful[:2])
        message = f"{share} names have more than one dot ({names}); the key ends at the first"
        yield tell(WARNING, "dotted-key", message), len(doubtful)
    if scan.interleaved and not torn:
        message = f"{scan.interleaved:,} samples have parts that are not neighbours; they are read through a table"
        yield tell(WARNING, "interleaved", message), scan.interleaved
    if torn:
        message = f"{scan.interleaved:,} samples are torn apart by this index; `omniloom prepare` puts them together"
        yield tell(ERROR, "interleaved", message), scan.interleaved
    for reason, count in sorted(scan.ignored.items()):
        if reason in ("apple-double", "ds-store", "macosx"):
            yield tell(WARNING, reason, f"{count:,} members belong to no sample ({reason})"), count
    if scan.hard_links:
        yield (
            tell(WARNING, "hard-link", f"{scan.hard_links:,} parts are hard links; Energon leaves them out"),
            scan.hard_links,
        )
    if scan.dropped_duplicates:
        message = f"{scan.dropped_duplicates:,} parts are left out by the duplicate policy"
        yield tell(WARNING, "duplicate", message), scan.dropped_duplicates
    if not scan.has_end_marker:
        yield tell(WARNING, "no-end-marker", "the archive has no end marker; was a copy cut between two members?"), 1
    if not scan.keys:
        yield tell(WARNING, "empty-shard", "the shard holds no sample"), 1


def _check_samples(
    request: LintRequest, archive: Archive, scan: ShardScan, found: LintedShard, on_samples: OnSamples | None
) -> None:
    def check(sample: _Read) -> _Checked:
        (key, parts), here = sample
        return key, parts, list(_remarks(archive, request, parts, here))

    samples = (sample for sample in _samples(scan) if sample[0] not in request.excluded_keys)
    for key, parts, remarks in _by_threads(check, _fetched(request, archive, samples), threads=request.threads):
        found.samples += 1
        if on_samples is not None and found.samples % SAMPLES_PER_CALL == 0:
            on_samples(found.samples, len(scan.keys))
        for remark in remarks:
            start, stop = parts.get(remark.part) or _extent(parts)
            place = (request.shard, key, remark.part, start, stop)
            found.add(Finding(remark.level, remark.reason, *place, remark.message))
        if any(remark.level == ERROR for remark in remarks):
            found.bad_samples += 1
            found.bad_keys.append(key)


def _fetched(request: LintRequest, archive: Archive, samples: Iterable[_Parts]) -> Iterator[_Read]:
    """Samples with the bytes that checking them reads, where those come from a store; else without."""
    if not is_url(request.path):
        yield from ((sample, {}) for sample in samples)
        return

    def wanted() -> Iterator[tuple[tuple[_Parts, tuple[str, ...]], Sequence[tuple[int, int]]]]:
        for key, parts in samples:
            names = parts_looked_into(_sizes(parts), request.decoder, decode=request.decode)
            yield ((key, parts), names), [parts[name] for name in names]

    for (sample, names), data in with_ranges(archive, wanted(), batch_bytes=BATCH_BYTES):
        yield sample, {} if data is None else dict(zip(names, data, strict=True))


def _by_threads(check: Callable[[_Read], _Checked], samples: Iterable[_Read], *, threads: int) -> Iterator[_Checked]:
    """What comes of each sample, in their order; a few are under way at a time."""
    if threads <= 1:
        yield from map(check, samples)
        return
    with ThreadPoolExecutor(threads) as pool:
        under_way: deque[Future[_Checked]] = deque()
        for sample in samples:
            under_way.append(pool.submit(check, sample))
            if len(under_way) > 4 * threads:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


def _remarks(
    archive: Archive, request: LintRequest, parts: Mapping[str, tuple[int, int]], here: Mapping[str, bytes]
) -> Iterator[Remark]:
    def read(name: str) -> bytes:
        if name in here:
            return here[name]
        start, stop = parts[name]
        return archive.read(stop - start, start)

    readers = {name: functools.partial(read, name) for name in parts}
    try:
        yield from check_sample(readers, _sizes(parts), request.fields, decoder=request.decoder, decode=request.decode)
    except StoreAwayError:
        raise
    except OSError as error:
        yield Remark(ERROR, "unreadable", "", str(error))


def _sizes(parts: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    return {name: stop - start for name, (start, stop) in parts.items()}


def _samples(scan: ShardScan) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """Key and byte ranges of the parts of each sample."""
    at = 0
    rows = scan.part_rows
    for row, key in enumerate(scan.keys):
        parts = {}
        while at < len(rows) and rows[at] == row:
            parts[scan.part_names[at]] = (scan.part_starts[at], scan.part_stops[at])
            at += 1
        yield key, parts


def _extent(parts: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    return min(start for start, _ in parts.values()), max(stop for _, stop in parts.values())


def _shard_finding(shard: str, level: str, reason: str, message: str, *, start: int | None = None) -> Finding:
    return Finding(level, reason, shard, "", "", start, None, message)
