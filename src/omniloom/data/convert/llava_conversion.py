"""LLaVA-style JSON and its images become shards, entry by entry, in one pass.

What the Megatron and NeMo guides make a user write by hand, with the same result where that works: the key is the
entry's id, the image's bytes are stored as they are, ``json`` is the conversation as a JSON list. On top of it:

- One image is the part named for its content (``jpg``, ``png``, ...), whatever its file is called. Several images are
  ``0.jpg``, ``1.png``, ... in the order of the list, numbers padded to one width, so that sorting keeps the order.
  Where a name is that of an array of NumPy, it is ``features.npy``: what a vision tower has made of the image.
- Fields that are neither id, image nor conversation are kept in the part ``extra.json``, with the original id where
  the key had to differ from it.
- An entry that cannot be converted is left out, counted by reason and listed in ``convert_report.jsonl``; so is what
  is merely odd about an entry that is kept.
- A run that was stopped goes on after its last finished shard, and the result has the same bytes as without the stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from omniloom.data.convert.entry_source import EntrySource
from omniloom.data.convert.findings import Counts, Findings
from omniloom.data.convert.image_type import FEATURES_PART, claimed_part, media_part
from omniloom.data.convert.images import ImageSource
from omniloom.data.convert.journal import Journal, Mark
from omniloom.data.convert.json_entries import RawEntry
from omniloom.data.convert.key_ring import KeyRing, OnDuplicate
from omniloom.data.convert.llava_entry import LlavaEntry
from omniloom.data.convert.llava_parts import entry_pictures, llava_parts, name_pictures
from omniloom.data.convert.read_ahead import map_ahead
from omniloom.data.convert.shard_series import ShardOfSamples, shard_name
from omniloom.data.shards.scan import ShardScan, scan_shard
from omniloom.errors import SampleError, StorageError

REPORT_NAME = "convert_report.jsonl"
PROGRESS_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LlavaOptions:
    """What decides the bytes of the result; a conversion that goes on must have the same.

    Attributes:
        max_count: samples of a shard at most.
        max_size_bytes: a shard that has reached this much payload is closed (so it may be one sample larger).
        pattern: name of the shards, with the place of their number.
        image_part: name of the part of a single image; ``None`` names it for its content.
        on_duplicate: ``rename`` an id that comes again to ``ID~2``, or ``skip`` it.
        follow_links: read images through symbolic links that lead out of the image folder.
    """

    max_count: int = 10_000
    max_size_bytes: int = 3_000_000_000
    pattern: str = "shard-%06d.tar"
    image_part: str | None = None
    on_duplicate: OnDuplicate = "rename"
    follow_links: bool = False

    def to_json(self) -> dict[str, Any]:
        """The options as the journal keeps them."""
        return asdict(self)


class Progress(NamedTuple):
    """How far a conversion is.

    Attributes:
        fraction: share of the input that was read, from 0 to 1.
        counts: everything counted so far; keeps changing.
    """

    fraction: float
    counts: Counts


class Sample(NamedTuple):
    """A sample on its way into a shard."""

    key: str
    parts: dict[str, bytes]
    position: int


class _Loaded(NamedTuple):
    raw: RawEntry
    entry: LlavaEntry | None
    pictures: list[bytes]
    reason: str | None
    detail: str


class LlavaConversion:
    """One conversion under way; iterating writes the shards and yields the scan of each, finished ones included.

    Args:
        source: the entries.
        images: where its images are.
        out: the output folder.
        journal: the open journal of ``out``.
        findings: the open report of ``out``, at the place where the journal goes on.
        options: see `LlavaOptions`.
        threads: how many images are read at a time.
        on_progress: called now and then, in the calling thread.
    """

    def __init__(
        self,
        source: EntrySource,
        *,
        images: ImageSource,
        out: Path,
        journal: Journal,
        findings: Findings,
        options: LlavaOptions,
        threads: int = 4,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self._source = source
        self._images = images
        self._out = out
        self._journal = journal
        self._findings = findings
        self._options = options
        self._threads = threads
        self._on_progress = on_progress
        self._keys = KeyRing(on_duplicate=options.on_duplicate)
        self._entries = journal.last.entries
        self._progress_due = 0.0

    def __iter__(self) -> Iterator[ShardScan]:
        yield from self._finished_shards()
        if self._journal.end is not None:
            return
        samples = self._samples()
        number = len(self._journal.shards)
        while (first := next(samples, None)) is not None:
            yield self._write_shard(shard_name(self._options.pattern, number), first, samples)
            number += 1
        self._mark("", size_bytes=0, samples=0)

    def _finished_shards(self) -> Iterator[ShardScan]:
        for mark in self._journal.shards:
            scan = scan_shard(self._out / mark.shard, shard=mark.shard, expected_samples=mark.samples)
            self._keys.take(scan.keys)
            yield scan

    def _write_shard(self, name: str, first: Sample, samples: Iterator[Sample]) -> ShardScan:
        path = self._out / name
        try:
            with ShardOfSamples(path, shard=name) as shard:
                sample: Sample | None = first
                while sample is not None:
                    shard.write(sample.key, sample.parts)
                    full = shard.samples >= self._options.max_count
                    if full or shard.payload_bytes >= self._options.max_size_bytes:
                        break
                    sample = next(samples, None)
        except OSError as error:
            raise StorageError(
                f"{path}: cannot be written: {error}. Finished shards are kept; mend the cause and run the same "
                "command again."
            ) from error
        scan = shard.scan()
        self._mark(name, size_bytes=scan.size_bytes, samples=shard.samples)
        return scan

    def _mark(self, shard: str, *, size_bytes: int, samples: int) -> None:
        report_bytes = self._findings.flush()
        counts = self._findings.counts
        self._journal.append(Mark(shard, size_bytes, samples, self._entries, report_bytes, counts.to_json()))

    def _samples(self) -> Iterator[Sample]:
        for loaded in map_ahead(self._load, self._source.entries(self._entries), threads=self._threads):
            sample = self._settle(loaded)
            self._entries = loaded.raw.position + 1
            self._tell(loaded.raw.bytes_read)
            if sample is not None:
                yield sample

    def _load(self, raw: RawEntry) -> _Loaded:
        """Everything about an entry that needs neither its neighbours nor their order; runs in a thread."""
        entry = None
        try:
            if raw.reason is not None:
                raise SampleError(raw.detail, reason=raw.reason)
            entry = self._source.read(raw.value, raw.position)
            return _Loaded(raw, entry, entry_pictures(entry, self._images), None, "")
        except SampleError as error:
            return _Loaded(raw, entry, [], error.reason, str(error))

    def _settle(self, loaded: _Loaded) -> Sample | None:
        """Count an entry, give it a key and make its parts; ``None`` when it is left out."""
        counts, entry, raw = self._findings.counts, loaded.entry, loaded.raw
        counts.entries += 1
        where: dict[str, Any] = {"entry": raw.position, "line": raw.line}
        if entry is not None:
            where["id"] = entry.identifier
            counts.shapes.update(entry.shapes)
        if entry is None or loaded.reason is not None:
            names = {"images": list(entry.images)} if entry else {}
            self._findings.left_out(where | names, loaded.reason or "syntax", loaded.detail)
            return None
        given = self._keys.give(entry.identifier)
        if given is None:
            self._findings.left_out(where, "duplicate-id", "an entry before it has the same id")
            return None
        pictures = name_pictures(loaded.pictures, part=self._options.image_part)
        for reason, detail in (*entry.notices, *given.notices, *_mislabelled(entry, loaded.pictures)):
            self._findings.kept(where, reason, detail)
        parts = llava_parts(entry, pictures, key=given.key)
        self._count(entry, pictures, parts)
        return Sample(given.key, parts, raw.position)

    def _count(self, entry: LlavaEntry, pictures: Mapping[str, bytes], parts: Mapping[str, bytes]) -> None:
        counts = self._findings.counts
        counts.samples += 1
        counts.images += len(pictures)
        counts.payload_bytes += sum(map(len, parts.values()))
        counts.questions += entry.is_one_question and FEATURES_PART not in pictures
        counts.image_parts.update(name.rpartition(".")[2] for name in pictures)

    def _tell(self, bytes_read: int) -> None:
        if self._on_progress is not None and time.monotonic() >= self._progress_due:
            self._progress_due = time.monotonic() + PROGRESS_SECONDS
            self._on_progress(Progress(bytes_read / self._source.size_bytes, self._findings.counts))


def _mislabelled(entry: LlavaEntry, pictures: list[bytes]) -> Iterator[tuple[str, str]]:
    for name, data in zip(entry.images, pictures, strict=False):  # images in the entry itself have no names
        claimed, found = claimed_part(name), media_part(data)
        if claimed is not None and claimed != found:
            yield "mislabelled-image", f"{name}: the name says {claimed}, the content is {found}"
