"""Readers of the frames of an open container of PyAV, by their number or by time, as Energon's users have them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from omniloom.data.media.av_index import AVProbeIndex
from omniloom.data.media.av_open import Media
from omniloom.data.media.av_walk import Range, Walk, decode_all
from omniloom.errors import ConfigError


class _Patient:
    """Stands for the guarded file of a container that was opened elsewhere: nobody's time is counted."""

    def progress(self) -> None:
        """Something useful was done."""

    def check(self) -> None:
        """There is time."""


class _Borrowed(Media):
    """A container that was opened elsewhere, and stays open."""

    def __init__(self, container: Any) -> None:
        self.container = container
        self.is_fresh = False
        self.file = _Patient()  # type: ignore[assignment]

    @property
    def size_bytes(self) -> int:
        """Size of the source in bytes."""
        return int(self.container.size)

    def close(self) -> None:
        """It is not ours to close."""


class AVReader(ABC):
    """Frames of ranges of a video stream. Ranges may come in any order, and the same one again.

    Args:
        input_container: an open container of PyAV; while its frames are taken, nothing else may read from it.
        stream_idx: which of its video streams.
        index: an index of its frames, where one is known; ``None``: the container's own, or one that is made by reading
            the packets through where it has none.

    Attributes:
        stream: PyAV's.
        index: says how many frames there are, and where key frames lie.
        skipped: frames between the key frames that ranges were read from and the ranges' first frames, so far.
    """

    def __init__(self, input_container: Any, stream_idx: int = 0, index: Any = None) -> None:
        self.input_container = input_container
        self.stream: Any = input_container.streams.video[stream_idx]
        if index is None:
            index = self.stream.index_entries
        self.index: Any = index if len(index) else AVProbeIndex(input_container, stream_idx)
        self.skipped = 0
        self._stream_idx = stream_idx
        self._media = _Borrowed(input_container)
        self._begin: int = self.stream.start_time or 0
        # AVI keeps no time of presentation; what FFmpeg makes up for reordered frames is wrong.
        self._is_counted = "avi" in self._media.formats and bool(self.stream.codec_context.has_b_frames)

    @abstractmethod
    def seek_read(self, range_start: int, range_end: int | None) -> Iterator[Any]:
        """The frames of a range, ``av.VideoFrame``, decoded as they are asked for.

        Args:
            range_start: where it begins.
            range_end: where it ends, inclusively: from the same place to the same place is one frame. ``None``: the
                end of the video.
        """

    def _at_times(self, first: float, last: float) -> Iterator[Any]:
        """The frame that is shown at a time, in ticks, and those that begin until another one."""
        walk = Walk(self._media, self.stream, [Range(first, last)], begin=self._begin)
        yield from walk.frames()
        if walk.is_blind:
            yield from self._decoded_through(first, last)

    def _decoded_through(self, first: float, last: float) -> Iterator[Any]:
        """The same by decoding all frames before them, where packets say not when frames are shown."""
        held: Any = None
        for time, frame in decode_all(self._media, self.stream, begin=self._begin, counted=self._is_counted):
            if held is not None and time > first:
                yield held
            if time > last:
                return
            held = frame
        if held is not None:
            yield held


class AVReaderByFrames(AVReader):
    """Frames by their number, in the order in which they are shown. A range beyond the last frame gives none."""

    def __init__(self, input_container: Any, stream_idx: int = 0, index: Any = None) -> None:
        super().__init__(input_container, stream_idx, index)
        self._times: list[int] | None = None

    def seek_read(self, range_start: int, range_end: int | None) -> Iterator[Any]:
        """The frames from one number to another, inclusively; see `AVReader.seek_read`."""
        _check_range(range_start, range_end)
        if range_start >= len(self.index):
            return
        key_frame = self.index.search_timestamp(self.index[range_start].timestamp)
        self.skipped += max(0, range_start - max(0, key_frame))
        if self._is_counted:
            frames = decode_all(self._media, self.stream, begin=self._begin, counted=True)
            for number, (_, frame) in enumerate(frames):
                if number >= range_start:
                    yield frame
                if number == range_end:
                    return
            return
        times = self._shown_at()
        if range_start < len(times):
            last = math.inf if range_end is None or range_end >= len(times) else times[range_end]
            yield from self._at_times(times[range_start], last)

    def _shown_at(self) -> list[int]:
        """When each frame is shown, in ticks, in order: packets are read through once for that, not decoded."""
        if self._times is None:
            known = self.index if isinstance(self.index, AVProbeIndex) else None
            self._times = (known or AVProbeIndex(self.input_container, self._stream_idx)).times()
        return self._times


class AVReaderByPts(AVReader):
    """Frames by the time at which they are shown, in ticks of the stream's time base."""

    def seek_read(self, range_start: int, range_end: int | None) -> Iterator[Any]:
        """The frame shown at one time, and those that begin until another, inclusively; see `AVReader.seek_read`."""
        _check_range(range_start, range_end)
        key_frame = self.index.search_timestamp(range_start)
        if key_frame >= 0:
            key_time = self.index[key_frame].timestamp
            self.skipped += sum(key_time < one.timestamp <= range_start for one in self.index)
        last = math.inf if range_end is None else range_end
        yield from (self._decoded_through if self._is_counted else self._at_times)(range_start, last)


def _check_range(range_start: int, range_end: int | None) -> None:
    if range_end is not None and range_start > range_end:
        raise ConfigError(f"a range from {range_start} to {range_end} found; its end may not lie before its begin")
