"""Opens containers of video and audio with PyAV: from bytes, paths, URLs and files; once, typed, in bounded time."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from omniloom.errors import ConfigError, OmniloomError, SampleError
from omniloom.storage.range_file import open_range

if TYPE_CHECKING:
    from av.container import InputContainer

PATIENCE_SECONDS = 10.0
"""How long opening may take, and how long a decoder may go on without giving a frame, before it counts as hung."""

MAX_PIXELS = 1 << 26
"""Largest frame that is decoded, in pixels (8192 x 8192): more is refused from the header."""

FORMATS = (
    *("mov", "mp4", "matroska", "webm", "avi", "flv", "mpegts", "mpeg", "mpegvideo", "asf", "h264", "hevc", "ivf"),
    *("mp3", "wav", "w64", "flac", "ogg", "aac", "ac3", "eac3", "aiff", "amr", "au", "caf"),
)
"""FFmpeg's names of the formats that are opened. Images are not among them, nor formats that name other files: a
playlist in a data set must not make a worker fetch an address."""

_HEAD_BYTES = 16
_BOX_LIMIT = 10_000
FARTHEST = 1 << 62  # ticks
_READ, _PASSED_OVER = 0, 48  # AVDISCARD_DEFAULT, AVDISCARD_ALL


def load_av() -> Any:
    """The module ``av``. Raises ConfigError where PyAV is not installed."""
    try:
        import av  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise ConfigError(f"video and audio need PyAV ({error}): pip install 'omniloom[av]'") from error
    return av


class GuardedFile:
    """The file that FFmpeg reads: it keeps its own position in it, counts bytes, and gives up when time is over.

    Args:
        file: a binary file that seeks. Others may move its position between two reads.
        lock: held while the file is used, by all that share it; its own by default.
        patience_seconds: see `PATIENCE_SECONDS`.

    Attributes:
        read_bytes: bytes read so far.
    """

    def __init__(self, file: BinaryIO, *, patience_seconds: float, lock: threading.Lock | None = None) -> None:
        self.read_bytes = 0
        self._file = file
        self._lock = lock or threading.Lock()
        self._patience_seconds = patience_seconds
        self._position = 0
        self._deadline = time.monotonic() + patience_seconds

    def progress(self) -> None:
        """Something useful was done: the time that may pass begins anew."""
        self._deadline = time.monotonic() + self._patience_seconds

    def check(self) -> None:
        """Raise SampleError when nothing useful was done for too long."""
        if time.monotonic() > self._deadline:
            raise SampleError(
                f"no frame came for {self._patience_seconds:g} s; the container keeps its reader going in circles or "
                "the source is too slow. Leave the sample out, or raise patience_seconds",
                reason="too-slow",
            )

    def read(self, size: int = -1) -> bytes:
        """Bytes from the position."""
        self.check()
        with self._lock:
            self._file.seek(self._position)
            data = self._file.read(size)
        self._position += len(data)
        self.read_bytes += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position."""
        self.check()
        if whence == os.SEEK_END:
            with self._lock:
                self._position = self._file.seek(offset, whence)
        else:
            self._position = offset + (self._position if whence == os.SEEK_CUR else 0)
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position


class Media:
    """An open container. Close it, or use it in a ``with``.

    Args:
        source: content (bytes), a path, a URL, an open binary file that seeks, or a `Media` whose source is read by
            another thread at the same time; close it before that one.
        patience_seconds: see `PATIENCE_SECONDS`.

    Attributes:
        container: PyAV's.
        file: what is read through; counts bytes.
        is_fresh: no packet has been read yet.

    Raises:
        SampleError: ``empty-member``; ``not-media``: no container that FFmpeg knows; ``no-index``: an MP4 or MOV whose
            index (the moov box) is not there; ``corrupt-media``; ``too-slow``.
        ConfigError: PyAV is not installed, or the source is no binary file.
        StorageError: the source cannot be read.
    """

    def __init__(self, source: Any, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        av = load_av()
        self.is_fresh = True
        self._opened_here = isinstance(source, (str, os.PathLike))
        beside = source if isinstance(source, Media) else None
        self._lock: threading.Lock = beside._lock if beside else threading.Lock()
        self._source: Any = beside._source if beside else _open_source(source)
        self._patience_seconds = patience_seconds
        self.file = GuardedFile(self._source, patience_seconds=patience_seconds, lock=self._lock)
        self.container: InputContainer
        try:
            with self.errors():
                self.container = av.open(
                    self.file, "r", metadata_errors="replace", options={"format_whitelist": ",".join(FORMATS)}
                )
        except SampleError as error:
            named = self._reason_of_refusal(error)
            self._close_source()
            raise named from error
        except BaseException:
            self._close_source()
            raise
        for stream in self.container.streams:
            context = stream.codec_context
            if context is not None:  # a thread of a decoder does not survive a fork, and cores belong to the workers
                context.thread_type = "NONE"
                context.thread_count = 1

    @property
    def formats(self) -> frozenset[str]:
        """Short names of the container's format as FFmpeg knows it, such as ``mov``, ``mp4``."""
        return frozenset(self.container.format.name.split(","))

    @property
    def size_bytes(self) -> int:
        """Size of the source in bytes."""
        with self._lock:
            return int(self._source.seek(0, os.SEEK_END))

    def beside(self) -> Media:
        """The same source opened once more, for another thread; close it before this one. Raises as `Media` does."""
        return Media(self, patience_seconds=self._patience_seconds)

    def select(self, stream: Any) -> None:
        """Read packets of one stream only; those of the others are passed over where the container allows it."""
        for other in self.container.streams:
            wanted: Any = _READ if other.index == stream.index else _PASSED_OVER
            other.discard = wanted

    def seek(self, timestamp: float, stream: Any) -> bool:
        """Go to the last key frame at or before a time of a stream; false where the container cannot do that."""
        try:
            self.container.seek(int(max(-FARTHEST, min(timestamp, FARTHEST))), stream=stream, backward=True)
        except load_av().error.FFmpegError:
            return False
        self.is_fresh = False
        return True

    def rewind(self, stream: Any) -> None:
        """Go before the first packet of a stream; where nothing was read yet, that is where the container is.

        Raises:
            SampleError: ``not-seekable``.
        """
        if self.is_fresh:
            self.is_fresh = False
            return
        begin = stream.start_time or 0
        # Packets before time 0 prime a decoder, and the first one says what to leave out: it has to be among them.
        for place in (begin - round(1 / stream.time_base), 0, begin):
            if self.seek(place, stream):
                return
        raise SampleError("the container has no index and cannot be rewound", reason="not-seekable")

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what FFmpeg raises into a SampleError; our own errors pass."""
        av = load_av()
        try:
            yield
        except OmniloomError:
            raise
        except MemoryError as error:
            raise SampleError("the media need more memory than there is", reason="too-large") from error
        except (av.error.DecoderNotFoundError, av.error.PatchWelcomeError) as error:
            raise SampleError(f"FFmpeg has no decoder for these media: {error}", reason="no-decoder") from error
        except (av.error.FFmpegError, ValueError, OverflowError) as error:
            raise SampleError(f"damaged media of {self.size_bytes:,} bytes: {error}", reason="corrupt-media") from error

    def close(self) -> None:
        """Close the container, and the file where it was opened here."""
        self.container.close()
        self._close_source()

    def __enter__(self) -> Media:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _close_source(self) -> None:
        if self._opened_here:
            self._source.close()

    def _reason_of_refusal(self, error: SampleError) -> SampleError:
        if error.reason != "corrupt-media":
            return error
        size_bytes = self.size_bytes
        if not size_bytes:
            return SampleError("the media have no bytes", reason="empty-member")
        self._source.seek(0)
        head = self._source.read(_HEAD_BYTES)
        if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free"):
            boxes, missing_bytes = _boxes(self._source, size_bytes)
            cut = f"; its last box lacks {missing_bytes:,} bytes, so a copy was cut" if missing_bytes else ""
            if b"moov" not in boxes:
                return SampleError(
                    f"an MP4 or MOV of {size_bytes:,} bytes without its index (no moov box){cut}", reason="no-index"
                )
            return SampleError(f"an MP4 or MOV of {size_bytes:,} bytes whose index is damaged{cut}", reason="no-index")
        return SampleError(
            f"{size_bytes:,} bytes that begin with {head[:8]!r} are no container of video or audio that FFmpeg opens: "
            f"{error.__cause__}",
            reason="not-media",
        )


@contextlib.contextmanager
def opened(source: Any, *, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[Media]:
    """An open container for the length of a ``with``; one that is open already stays open. Raises as `Media` does."""
    if isinstance(source, Media):
        source.file.progress()
        yield source
        return
    with Media(source, patience_seconds=patience_seconds) as media:
        yield media


def _open_source(source: Any) -> Any:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source)
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        if "://" in name:
            return open_range(name)
        return Path(name).open("rb")
    if isinstance(source, io.TextIOBase) or "t" in getattr(source, "mode", "rb" if hasattr(source, "read") else "t"):
        raise ConfigError(
            f"media are read from bytes, a path, a URL or a binary file; found {type(source).__name__}. Open the file "
            "with mode 'rb'"
        )
    return source


def _boxes(file: Any, size_bytes: int) -> tuple[set[bytes], int]:
    """Names of the boxes at the top of an MP4, and how many bytes the last one lacks."""
    names: set[bytes] = set()
    position = 0
    for _ in range(_BOX_LIMIT):
        file.seek(position)
        header = file.read(16)
        if len(header) < 8:
            return names, 0
        length, name = struct.unpack(">I4s", header[:8])
        if length == 1 and len(header) == 16:
            length = struct.unpack(">Q", header[8:])[0]
        names.add(name)
        if length < 8:  # 0: to the end of the file
            return names, 0
        position += length
        if position >= size_bytes:
            return names, position - size_bytes
    return names, 0
