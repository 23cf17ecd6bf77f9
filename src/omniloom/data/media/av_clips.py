"""Clips as `AVDecoder` cuts them: places of numbered frames, and sound in the codec's own number type."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from omniloom.data.media.audio import AudioTrack, native_samples
from omniloom.data.media.av_index import AVProbeIndex
from omniloom.data.media.av_track import VideoTrack


class AudioClip(NamedTuple):
    """A piece of sound.

    Attributes:
        samples: (channels, samples) in the codec's number type.
        span_seconds: its begin and its end.
    """

    samples: npt.NDArray[Any]
    span_seconds: tuple[float, float]


def frame_time(track: VideoTrack) -> Callable[[float], float]:
    """A function from the number of a frame to when it is shown, in ticks.

    Where the container's index shows one distance between all frames, that is a multiplication; otherwise the packets
    are read through once.
    """
    if track.is_counted:
        return lambda number: track.begin + int(number) * track.frame_ticks if number < math.inf else number
    times = _even_times(track) or _read_times(track)

    def place(number: float) -> float:
        if math.isinf(number):
            return number
        frame = int(number)
        return times[frame] if frame < len(times) else math.inf

    return place


def _even_times(track: VideoTrack) -> range | None:
    if not track.media.formats & {"mov", "mp4"}:
        return None
    index = track.stream.index_entries
    count = len(index)
    if count < 2 or count != track.stream.frames:
        return None
    step = index[1].timestamp - index[0].timestamp
    if step <= 0 or any(index[n].timestamp != index[0].timestamp + n * step for n in range(count)):
        return None
    return range(track.begin, track.begin + count * step, step)


def _read_times(track: VideoTrack) -> list[int]:
    number = track.media.container.streams.video.index(track.stream)
    track.media.select(track.stream)
    track.media.rewind(track.stream)
    with track.media.errors():
        return AVProbeIndex(track.media.container, number).times()


def audio_clip(track: AudioTrack, start_seconds: float, stop_seconds: float) -> AudioClip | None:
    """The sound from a time to another; ``None`` where it has ended before.

    A clip within the sound has ``round((stop - start) * rate)`` samples, also where both borders fall between samples
    and the last one would be after the end: then it begins a sample earlier.
    """
    pieces: list[npt.NDArray[Any]] = []
    first = position = 0
    with contextlib.closing(track.frames(start_seconds)) as frames:
        for time, frame in frames:
            if time > stop_seconds:
                break
            if not pieces:
                first = position = round(time * track.rate)
            pieces.append(native_samples(frame))
            position += frame.samples
    if not pieces or position <= start_seconds * track.rate:
        return None
    samples = np.concatenate(pieces, axis=1)
    start = max(first, math.floor(start_seconds * track.rate + 0.5))
    stop = position
    if not math.isinf(stop_seconds):
        count = math.floor((stop_seconds - start_seconds) * track.rate + 0.5)
        stop = min(position, max(start + 1, math.floor(start_seconds * track.rate + 0.5) + count))
        if stop - start == count - 1 and start > first:
            start -= 1
    begin_seconds = max(start_seconds, first / track.rate)
    end_seconds = min(stop_seconds, position / track.rate)
    return AudioClip(np.ascontiguousarray(samples[:, start - first : stop - first]), (begin_seconds, end_seconds))
