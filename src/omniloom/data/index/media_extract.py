"""Finds out what is kept of media: of the members of a shard, or of files. Runs in any process that sees them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, cast

from omniloom.data.index.media_filter import MediaFilterConfig
from omniloom.data.media.av_facts import facts_of
from omniloom.data.media.av_kinds import PROBE_BYTES
from omniloom.data.media.av_open import Media
from omniloom.data.media.metadata import ImageMetadata, MediaMetadataBase, MediaMetadataType, serialize_media_metadata
from omniloom.data.shards.archive_file import Archive, open_archive
from omniloom.data.shards.keys import KeyRule
from omniloom.data.shards.ranges_ahead import with_ranges
from omniloom.data.shards.scan import ShardScan, scan_shard
from omniloom.errors import OmniloomError, SampleError, ShardError, StorageError
from omniloom.storage.range_file import BLOCK_BYTES, RangeFile
from omniloom.storage.urls import is_url, join_url

_SIZED_WHEN_LOADED = frozenset(("ICO", "ICNS"))
_LOADED_PIXELS = 1 << 22
_PATIENCE_SECONDS = 60.0
_KEPT_BYTES = 16 << 20
_BATCH_BYTES = 4 << 20  # of first bytes; a process has sixteen shards of a store at work, each with three batches


class MediaRow(NamedTuple):
    """A row of ``media_metadata``.

    Attributes:
        entry_key: name of the member: ``<sample key>.<part>`` in shards, the path below the folder of files.
        metadata_type: ``av`` or ``image``.
        metadata_json: the record.
    """

    entry_key: str
    metadata_type: str
    metadata_json: str


class MediaFault(NamedTuple):
    """A member that looks like a medium and of which nothing can be found out.

    Attributes:
        entry_key: name of the member.
        reason: short stable word for counting.
        message: what is wrong.
    """

    entry_key: str
    reason: str
    message: str


class MediaSource(NamedTuple):
    """What was found in one shard or file.

    Attributes:
        name: of the shard or file, below the data set.
        size_bytes: its size.
        mtime_ns: when it was changed last.
        rows: what is kept of its media.
        faults: media of which nothing could be found out.
    """

    name: str
    size_bytes: int
    mtime_ns: int
    rows: tuple[MediaRow, ...]
    faults: tuple[MediaFault, ...]


class ShardRequest(NamedTuple):
    """A shard to look at: its name, its path, how names are split, and which members are media."""

    shard: str
    path: str
    rule: KeyRule
    media_filter: MediaFilterConfig


class FilesRequest(NamedTuple):
    """Files to look at: the first one's name for messages, the folder, their names in it, and which are media."""

    shard: str
    root: str
    names: tuple[str, ...]
    media_filter: MediaFilterConfig


def media_of_shard(request: ShardRequest) -> list[MediaSource]:
    """What is kept of the media of a shard; only they are read, images no further than their headers.

    Raises:
        ShardError: it is no sound archive.
        StorageError: it cannot be read.
    """
    rows: list[MediaRow] = []
    faults: list[MediaFault] = []
    archive = open_archive(request.path, shard=request.shard, kept_bytes=_KEPT_BYTES)
    try:
        mark = archive.mark()
        # Where a name comes twice the last one counts, as in Energon; whether that is allowed is the preparation's
        # affair.
        scan = scan_shard(request.path, shard=request.shard, rule=request.rule, on_duplicate="last", archive=archive)
        for name, (start, stop), head in _with_heads(archive, _media_members(scan, request.media_filter)):
            found = media_of_file(_span(archive, start, stop, name, head), name, request.media_filter)
            rows += found if isinstance(found, list) else []
            faults += [found] if isinstance(found, MediaFault) else []
    finally:
        archive.close()
    return [MediaSource(request.shard, mark.size_bytes, mark.mtime_ns, tuple(rows), tuple(faults))]


def _media_members(scan: ShardScan, media_filter: MediaFilterConfig) -> Iterator[tuple[str, tuple[int, int]]]:
    """Name, first byte and byte after the last of the members that may be media."""
    for row, part, *place in zip(scan.part_rows, scan.part_names, scan.part_starts, scan.part_stops, strict=True):
        name = f"{scan.keys[row]}.{part}"
        if media_filter.should_consider_media(name):
            yield name, (place[0], place[1])


def _with_heads(
    archive: Archive, members: Iterator[tuple[str, tuple[int, int]]]
) -> Iterator[tuple[str, tuple[int, int], bytes]]:
    """Members with their first bytes, where those come from a store: many in one request, before they are due."""
    if not is_url(archive.path):
        yield from ((name, place, b"") for name, place in members)
        return
    wanted = ((one, [(one[1][0], min(one[1][1], one[1][0] + BLOCK_BYTES))]) for one in members)
    for (name, place), heads in with_ranges(archive, wanted, batch_bytes=_BATCH_BYTES):
        yield name, place, heads[0] if heads else b""


def media_of_files(request: FilesRequest) -> list[MediaSource]:
    """What is kept of each of some files; one that cannot be read is a fault."""
    return list(_each_file(request))


def _each_file(request: FilesRequest) -> Iterator[MediaSource]:
    for name in request.names:
        try:
            archive = open_archive(join_url(request.root, name), shard=name)
            mark = archive.mark()
        except (ShardError, StorageError) as error:
            yield MediaSource(name, 0, 0, (), (MediaFault(name, "unreadable", f"{name}: {error}"),))
            continue
        try:
            found = media_of_file(_span(archive, 0, mark.size_bytes, name), name, request.media_filter)
        finally:
            archive.close()
        rows, faults = (tuple(found), ()) if isinstance(found, list) else ((), (found,))
        yield MediaSource(name, mark.size_bytes, mark.mtime_ns, rows, faults)


def media_of_file(file: RangeFile, name: str, media_filter: MediaFilterConfig) -> list[MediaRow] | MediaFault:
    """What is kept of one file: one row, none for what is no medium, or a fault."""
    try:
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            return MediaFault(ascii(name), "not-utf-8", f"{name!a}: no text, so no table of texts can hold it")
        kind = media_filter.media_type(name, file.read(PROBE_BYTES))
        file.seek(0)
        if kind is None:
            return []
        metadata = image_metadata(file) if kind is MediaMetadataType.IMAGE else av_metadata(file)
    except OmniloomError as error:
        return MediaFault(name, getattr(error, "reason", "unreadable"), f"{name}: {error}")
    stored_type, text = serialize_media_metadata(metadata)
    return [MediaRow(name, stored_type.value, text)]


def av_metadata(file: RangeFile) -> MediaMetadataBase:
    """What is kept of video or audio; the sound is decoded to count its samples.

    Raises:
        SampleError: it cannot be opened or decoded.
    """
    with Media(cast(BinaryIO, file), patience_seconds=_PATIENCE_SECONDS) as media:
        return facts_of(media, audio_num_samples=True)


def image_metadata(file: RangeFile) -> ImageMetadata:
    """What is kept of an image, from its header.

    Raises:
        SampleError: ``empty-member``, ``not-an-image``, ``corrupt-image`` or ``too-large``.
    """
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - sound needs no Pillow

    if not file.size_bytes:
        raise SampleError("the image has no bytes", reason="empty-member")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large images and odd metadata: only the header is used
            with Image.open(cast(BinaryIO, file)) as image:
                if image.format in _SIZED_WHEN_LOADED and image.width * image.height <= _LOADED_PIXELS:
                    image.load()
                return ImageMetadata(
                    width=image.width, height=image.height, format=image.format or "UNKNOWN", mode=image.mode
                )
    except UnidentifiedImageError as error:
        raise SampleError(f"{file.size_bytes:,} bytes are no image of a known format", reason="not-an-image") from error
    except Image.DecompressionBombError as error:
        raise SampleError(str(error), reason="too-large") from error
    except OmniloomError:
        raise
    except Exception as error:
        raise SampleError(f"damaged image header: {error}", reason="corrupt-image") from error


def _span(archive: Archive, start: int, stop: int, name: str, head: bytes = b"") -> RangeFile:
    def fetch(first: int, last: int) -> bytes:
        return archive.read(last - first, start + first)

    return RangeFile(fetch, size_bytes=stop - start, name=name, head=head)
