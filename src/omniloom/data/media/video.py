"""Frames of a video: at given times, n at equal distances, so many a second, or a clip with its sound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from omniloom.data.media.audio import Audio, read_audio
from omniloom.data.media.av_open import PATIENCE_SECONDS, opened
from omniloom.data.media.av_track import Picture, VideoTrack, stacked
from omniloom.data.media.av_walk import Range
from omniloom.errors import ConfigError, SampleError


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames of a video.

    Attributes:
        pixels: uint8, (frames, height, width, 3), RGB.
        seconds: when each frame begins, float64, (frames,).
        stop_seconds: when each frame ends, float64, (frames,).
    """

    pixels: npt.NDArray[np.uint8]
    seconds: npt.NDArray[np.float64]
    stop_seconds: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.pixels)

    def tensor(self) -> Any:
        """A uint8 tensor (frames, 3, height, width) over the same memory."""
        import torch  # noqa: PLC0415 - frames are made without torch

        return torch.from_numpy(self.pixels).permute(0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class Clip:
    """A piece of a video.

    Attributes:
        frames: its frames.
        audio: its sound, which begins and ends when the clip does; ``None``: the video has none, or none was wanted.
    """

    frames: Frames
    audio: Audio | None


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """What a video is.

    Attributes:
        width: pixels, as it is shown (a rotation is taken into account).
        height: pixels, as it is shown.
        fps: frames a second on average.
        begin_seconds: when its first frame begins.
        duration_seconds: from there to the end of the last frame.
        rotation: degrees counterclockwise by which stored frames are turned to be shown: 0, 90, 180 or 270.
        codec: FFmpeg's name of the codec.
        container: FFmpeg's names of the container's format.
        has_audio: whether there is sound.
    """

    width: int
    height: int
    fps: float
    begin_seconds: float
    duration_seconds: float
    rotation: int
    codec: str
    container: str
    has_audio: bool


class VideoReader:
    """A video whose container is opened once. Use it in a ``with``, or `close` it.

    Args:
        source: bytes, a path, a URL (read by range: only what is needed), a binary file that seeks, or a `Media`.
        stream: which of its video streams.
        rotate: turn frames as the container says they are shown.
        strict: refuse damaged frames (``corrupt-media``); otherwise the decoder conceals what it can.
        threads: how many pieces between key frames are decoded at once, where several are wanted; the frames are the
            same. ``None``: one in worker processes and in threads, for others use the cores there; elsewhere one a
            core, at most 4.
        patience_seconds: how long opening may take, and how long no frame may come, before it counts as hung.

    Raises:
        SampleError: ``empty-member``, ``not-media``, ``no-index``, ``no-video``, ``no-decoder``, ``corrupt-media``,
            ``too-large``, ``too-slow``.
        ConfigError: PyAV is not installed.
    """

    def __init__(
        self,
        source: Any,
        *,
        stream: int = 0,
        rotate: bool = True,
        strict: bool = True,
        threads: int | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        with ExitStack() as stack:
            self.media = stack.enter_context(opened(source, patience_seconds=patience_seconds))
            self._track = VideoTrack(self.media, number=stream, rotate=rotate, strict=strict, threads=threads)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the container."""
        self._stack.close()

    @property
    def fps(self) -> float:
        """Frames a second on average."""
        return 1 / (self._track.frame_ticks * self._track.seconds_a_tick)

    @property
    def span_seconds(self) -> tuple[float, float]:
        """When the first frame begins and the last one ends; from the header where that says it."""
        return self._track.seconds(self._track.begin), self._track.seconds(self._track.end())

    def info(self) -> VideoInfo:
        """What the video is; its first frame is decoded for that."""
        begin, end = self.span_seconds
        width, height = self._track.shown_size()
        stream = self._track.stream
        return VideoInfo(
            width=width,
            height=height,
            fps=self.fps,
            begin_seconds=begin,
            duration_seconds=end - begin,
            rotation=self._track.turns * 90,
            codec=stream.codec_context.name,
            container=self.media.container.format.name,
            has_audio=bool(self.media.container.streams.audio),
        )

    def frames_at(
        self, seconds: Sequence[float], *, size: tuple[int, int] | None = None, tolerance_seconds: float = 0.0
    ) -> Frames:
        """The frames that are shown at given times.

        Args:
            seconds: times in any order; each gives one frame. Before the first frame that is the first.
            size: (width, height) to scale to, bilinearly.
            tolerance_seconds: a frame within this distance of its time will do instead; a key frame is taken where
                there is one. 0 gives exactly the frame shown; 1 is many times as fast for most videos.

        Raises:
            SampleError: ``out-of-range``: a time is after the end of the last frame; ``corrupt-media``,
                ``truncated-media``, ``no-key-frame``, ``too-slow``.
            ConfigError: a time is not a number.
        """
        if not all(math.isfinite(second) for second in seconds):
            raise ConfigError(f"times of frames have to be finite numbers; found {list(seconds)!r:.80}")
        ticks = [self._track.ticks(second) for second in seconds]
        tolerance = max(0.0, tolerance_seconds) / self._track.seconds_a_tick
        found = self._track.read([Range(tick, tick, tolerance) for tick in ticks], size=size)
        for second, pictures in zip(seconds, found, strict=True):
            if not pictures:
                raise SampleError(
                    f"a frame at {second:g} s was asked for; the video ends at {self.span_seconds[1]:g} s",
                    reason="out-of-range",
                )
        return self._frames([pictures[0] for pictures in found])

    def uniform_frames(
        self, count: int, *, size: tuple[int, int] | None = None, tolerance_seconds: float = 0.0
    ) -> Frames:
        """``count`` frames at equal distances, from the first to the last; one alone is the first.

        Args:
            count: how many; a video with fewer frames gives some of them more than once.
            size: as for `frames_at`.
            tolerance_seconds: as for `frames_at`.

        Raises:
            SampleError: as `frames_at` does.
        """
        if count < 1:
            raise ConfigError(f"count={count}: at least one frame")
        times = self._uniform_times(count)
        try:
            return self.frames_at(times, size=size, tolerance_seconds=tolerance_seconds)
        except SampleError as error:
            # The header told the end of the longest stream; now that the end of this one is known, deal anew.
            if error.reason != "out-of-range" or self._uniform_times(count) == times:
                raise
        return self.frames_at(self._uniform_times(count), size=size, tolerance_seconds=tolerance_seconds)

    def sampled_frames(
        self,
        fps: float,
        *,
        min_frames: int = 1,
        max_frames: int | None = None,
        frames_multiple: int = 1,
        max_pixels: int | None = None,
        max_total_pixels: int | None = None,
        size_multiple: int = 1,
        tolerance_seconds: float = 0.0,
    ) -> Frames:
        """So many frames a second, within bounds of frames and of pixels.

        Args:
            fps: how many frames a second of the video are wanted.
            min_frames: at least so many.
            max_frames: at most so many; the distance between frames grows.
            frames_multiple: the number of frames is a multiple of this.
            max_pixels: at most so many pixels a frame; frames are scaled down, their shape is kept.
            max_total_pixels: at most so many pixels of all frames together.
            size_multiple: width and height are multiples of this (the patch size of a model).
            tolerance_seconds: as for `frames_at`.

        Raises:
            SampleError: as `frames_at` does.
            ConfigError: bounds that exclude each other.
        """
        begin, end = self.span_seconds
        count = frame_count(
            end - begin, fps, min_frames=min_frames, max_frames=max_frames, frames_multiple=frames_multiple
        )
        size = None
        if max_pixels or max_total_pixels or size_multiple > 1:
            stored = self._track.shown_size()
            bounds = [bound for bound in (max_pixels, max_total_pixels and max_total_pixels // count) if bound]
            size = bounded_size(stored, max_pixels=min(bounds, default=None), multiple=size_multiple)
        return self.uniform_frames(count, size=size, tolerance_seconds=tolerance_seconds)

    def clip(
        self,
        start_seconds: float,
        stop_seconds: float = math.inf,
        *,
        size: tuple[int, int] | None = None,
        audio: bool = True,
        rate: int | None = None,
        channels: int | None = None,
    ) -> Clip:
        """The piece ``[start, stop)`` with its sound; sample 0 of the sound is at ``start_seconds``.

        Args:
            start_seconds: its begin; the frame shown then is its first.
            stop_seconds: its end; a frame that begins then is not in it.
            size: as for `frames_at`.
            audio: whether the sound is wanted; where the container has none, it is ``None``.
            rate: samples a second of the sound; ``None``: as stored.
            channels: channels of the sound; ``None``: as stored.

        Raises:
            SampleError: as `frames_at` does.
        """
        return self.clips([(start_seconds, stop_seconds)], size=size, audio=audio, rate=rate, channels=channels)[0]

    def clips(
        self,
        spans_seconds: Sequence[tuple[float, float]],
        *,
        size: tuple[int, int] | None = None,
        audio: bool = True,
        rate: int | None = None,
        channels: int | None = None,
    ) -> list[Clip]:
        """Several clips in one pass; as `clip` for each ``(start, stop)``."""
        for start, stop in spans_seconds:
            if not (math.isfinite(start) and stop > start):
                raise ConfigError(f"a clip from {start:g} to {stop:g} s; expected numbers with start < stop")
        ranges = []
        for start, stop in spans_seconds:
            first = self._track.ticks(start)
            ranges.append(Range(first, max(first, math.ceil(self._track.ticks(stop)) - 1) if stop < math.inf else stop))
        found = self._track.read(ranges, size=size)
        clips = []
        for (start, stop), pictures in zip(spans_seconds, found, strict=True):
            if not pictures:
                raise SampleError(
                    f"a clip from {start:g} s was asked for; the video ends at {self.span_seconds[1]:g} s",
                    reason="out-of-range",
                )
            sound = None
            if audio and self.media.container.streams.audio:
                until = min(stop, pictures[-1].end * self._track.seconds_a_tick)
                sound = read_audio(
                    self.media, start_seconds=start, stop_seconds=until, rate=rate, channels=channels, fill=True
                )
            clips.append(Clip(self._frames(pictures), sound))
        return clips

    def _uniform_times(self, count: int) -> list[float]:
        begin, end = self.span_seconds
        half = min(0.5 / self.fps, 0.5 * (end - begin))
        return [float(time) for time in np.linspace(begin + half, end - half, count)]

    def _frames(self, pictures: Sequence[Picture]) -> Frames:
        seconds = self._track.seconds
        return Frames(
            stacked(pictures),
            np.array([seconds(picture.time) for picture in pictures]),
            np.array([seconds(picture.end) for picture in pictures]),
        )


def frame_count(
    duration_seconds: float,
    fps: float,
    *,
    min_frames: int = 1,
    max_frames: int | None = None,
    frames_multiple: int = 1,
) -> int:
    """How many frames a video of this length gives at this rate, within bounds; needs no video, only its length.

    The nearest multiple of ``frames_multiple``, then within the bounds.

    Raises:
        ConfigError: no multiple lies within the bounds, or a number is not positive.
    """
    low = math.ceil(max(1, min_frames) / frames_multiple) * frames_multiple
    high = math.inf if max_frames is None else max_frames // frames_multiple * frames_multiple
    if fps <= 0 or low > high:
        raise ConfigError(
            f"fps={fps:g}, min_frames={min_frames}, max_frames={max_frames}, frames_multiple={frames_multiple}: no "
            "number of frames fits"
        )
    wanted = round(duration_seconds * fps / frames_multiple) * frames_multiple
    return int(min(max(wanted, low), high))


def bounded_size(size: tuple[int, int], *, max_pixels: int | None = None, multiple: int = 1) -> tuple[int, int]:
    """(width, height) of the same shape with at most ``max_pixels`` pixels, both multiples of ``multiple``.

    Nothing is enlarged, but for the rounding to the nearest multiple; each side is at least one multiple.
    """
    width, height = size
    scale = min(1.0, math.sqrt(max_pixels / (width * height))) if max_pixels else 1.0
    sides = [max(multiple, round(side * scale / multiple) * multiple) for side in (width, height)]
    if max_pixels and sides[0] * sides[1] > max_pixels:
        sides = [max(multiple, math.floor(side * scale / multiple) * multiple) for side in (width, height)]
    return sides[0], sides[1]
