"""Sound as float32 arrays: a whole file or a span of it, at a given rate and number of channels."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from omniloom.data.media.av_open import PATIENCE_SECONDS, Media, load_av, opened
from omniloom.errors import ConfigError, SampleError

Samples = npt.NDArray[np.float32]

_LEAD_SECONDS = 0.5
"""Sound decoded before a span: lossy codecs need what came before to give the right samples, resamplers too."""

_GAP_SECONDS = 0.1
"""Times of packets are rounded in some containers: a smaller distance between two frames is no gap."""

_SLACK_SECONDS = 0.5
_LONGEST_GAP_SECONDS = 600
_PIECE_SAMPLES = 1 << 16
_LAYOUTS = {1: "mono", 2: "stereo", 6: "5.1", 8: "7.1"}


@dataclass(frozen=True, slots=True)
class Audio:
    """A piece of sound.

    Attributes:
        samples: float32, (channels, samples), from -1 to 1 (lossy codecs may go a little beyond).
        rate: samples a second and channel.
        start_seconds: when the first sample is.
    """

    samples: Samples
    rate: int
    start_seconds: float

    @property
    def duration_seconds(self) -> float:
        """How long it is."""
        return float(self.samples.shape[1] / self.rate)

    def tensor(self) -> Any:
        """A float32 tensor (channels, samples) over the same memory."""
        import torch  # noqa: PLC0415 - sound is decoded without torch

        return torch.from_numpy(self.samples)


def read_audio(
    source: Any,
    *,
    rate: int | None = None,
    channels: int | None = None,
    start_seconds: float = 0.0,
    stop_seconds: float = math.inf,
    stream: int = 0,
    fill: bool = False,
    strict: bool = True,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Audio:
    """The sound of a file, or of a span of it.

    A span holds exactly the samples that the whole file would hold there. Only it and half a second before it are
    decoded.

    Args:
        source: bytes, a path, a URL, a binary file that seeks, or an open `Media`.
        rate: samples a second; ``None``: as stored.
        channels: how many; ``None``: as stored. Fewer are weighted means of those that are there, by FFmpeg's matrices
            (the mean of both for stereo); a single one is repeated.
        start_seconds: begin of the span, on the time line of the container.
        stop_seconds: its end; beyond the end of the sound it is the sound's.
        stream: which of the audio streams.
        fill: silence where the span reaches beyond the sound, so that sample 0 is at ``start_seconds`` and there are
            ``round((stop - start) * rate)`` samples. Otherwise the span is cut to what there is.
        strict: refuse damaged packets (``corrupt-media``); otherwise they are passed over.
        patience_seconds: how long opening may take, and how long no sound may come, before it counts as hung.

    Raises:
        SampleError: ``empty-member``, ``not-media``, ``no-index``; ``no-audio``: there is no such stream;
            ``out-of-range``: nothing is stored of the span; ``corrupt-media``; ``truncated-media``: the data end before
            the time that the header says; ``too-slow``.
        ConfigError: PyAV is not installed, or a number makes no sense.
    """
    if not (math.isfinite(start_seconds) and stop_seconds > start_seconds):
        raise ConfigError(f"sound from {start_seconds:g} to {stop_seconds:g} s; expected numbers with start < stop")
    if (rate is not None and rate < 1) or (channels is not None and channels < 1):
        raise ConfigError(f"rate={rate}, channels={channels}: both are at least 1")
    with opened(source, patience_seconds=patience_seconds) as media:
        track = AudioTrack(media, number=stream, strict=strict)
        goal = _Goal(track, rate or track.rate, channels or track.channels, start_seconds, stop_seconds)
        samples, first = goal.read()
    start = round(start_seconds * goal.rate)
    if not samples.shape[1] and not fill:
        raise SampleError(
            f"sound from {start_seconds:g} s on was asked for; there is some from "
            f"{track.begin_seconds:g} to {max(track.end_seconds, track.declared_end_seconds or 0):g} s",
            reason="out-of-range",
        )
    if not fill:
        return Audio(samples, goal.rate, first / goal.rate)
    stop = first + samples.shape[1] if math.isinf(stop_seconds) else round(stop_seconds * goal.rate)
    filled = np.zeros((goal.channels, max(0, stop - start)), np.float32)
    filled[:, max(0, first - start) : max(0, first - start) + samples.shape[1]] = samples
    return Audio(filled, goal.rate, start_seconds)


class AudioTrack:
    """An audio stream of an open container.

    Args:
        media: the container.
        number: which of its audio streams.
        strict: see `read_audio`.

    Attributes:
        stream: PyAV's.
        rate: samples a second as stored.
        channels: as stored.
        end_seconds: end of the sound, as far as it was read.

    Raises:
        SampleError: ``no-audio``, ``no-decoder``, ``corrupt-media``.
    """

    def __init__(self, media: Media, *, number: int = 0, strict: bool = True) -> None:
        streams = media.container.streams.audio
        if number >= len(streams):
            kinds = ", ".join(stream.type for stream in media.container.streams) or "nothing"
            raise SampleError(f"audio stream {number} was asked for; the container holds {kinds}", reason="no-audio")
        self.media = media
        self.stream: Any = streams[number]
        context = self.stream.codec_context
        if context is None:
            raise SampleError(f"FFmpeg has no decoder for audio stream {number}", reason="no-decoder")
        self._strict = strict
        self.rate: int = context.sample_rate
        self.channels: int = context.channels
        if not self.rate or not self.channels:
            raise SampleError("the audio stream tells neither rate nor channels", reason="corrupt-media")
        self.end_seconds = 0.0

    @property
    def begin_seconds(self) -> float:
        """When the sound begins, as the header says."""
        return float((self.stream.start_time or 0) * self.stream.time_base)

    @property
    def declared_end_seconds(self) -> float | None:
        """When it ends as its own header says; ``None`` where that says nothing."""
        if not self.stream.duration:
            return None
        return self.begin_seconds + float(self.stream.duration * self.stream.time_base)

    def frames(self, start_seconds: float) -> Generator[tuple[float, Any]]:
        """Decoded frames and their times in seconds, from about half a second before a time."""
        self.media.select(self.stream)
        place = (start_seconds - _LEAD_SECONDS) / self.stream.time_base
        if place <= (self.stream.start_time or 0) or not self.media.seek(place, self.stream):
            self.media.rewind(self.stream)
        decoder = self.stream.codec_context
        decoder.flush_buffers()
        expected: float | None = None
        self.media.file.progress()
        with self.media.errors():
            for packet in self.media.container.demux(self.stream):
                self.media.file.check()
                for frame in self._decoded(packet, is_needed=expected is not None and expected >= start_seconds):
                    time = self._time(frame, expected)
                    expected = time + frame.samples / frame.sample_rate
                    self.end_seconds = max(self.end_seconds, expected)
                    self.media.file.progress()
                    yield time, frame
        decoder.flush_buffers()

    def _decoded(self, packet: Any, *, is_needed: bool) -> list[Any]:
        try:
            if packet.is_corrupt:
                raise SampleError("an audio packet is cut or damaged", reason="truncated-media")
            return list(self.stream.codec_context.decode(packet if packet.size else None))
        except load_av().error.EOFError:
            return []
        except (load_av().error.FFmpegError, SampleError) as error:
            if not (self._strict and is_needed):
                return []
            if isinstance(error, SampleError):
                raise
            raise SampleError(
                f"the sound after {self.end_seconds:.3f} s cannot be decoded: {error}", reason="corrupt-media"
            ) from error

    def _time(self, frame: Any, expected: float | None) -> float:
        if frame.pts is None:
            return self.begin_seconds if expected is None else expected
        time = float(frame.pts * frame.time_base)
        if expected is not None and abs(time - expected) < _GAP_SECONDS:
            return expected
        return time


class _Goal:
    """A span of a track at a rate and a number of channels."""

    def __init__(self, track: AudioTrack, rate: int, channels: int, start_seconds: float, stop_seconds: float) -> None:
        self.track = track
        self.rate = rate
        self.channels = channels
        self._start_seconds = start_seconds
        self._stop_seconds = stop_seconds
        # Samples of both rates fall together every `unit` of the stored ones: there a span may be cut out and
        # resampled, and gives what the whole file gives.
        common = math.gcd(rate, track.rate)
        self._unit, self._unit_out = track.rate // common, rate // common

    def read(self) -> tuple[Samples, int]:
        """The samples of the span that are there, and the number of the first, counted from time 0."""
        stored, first_stored = self._stored()
        added = first_stored % self._unit if stored.shape[1] else 0
        stored = np.pad(stored, ((0, 0), (added, 0))) if added else stored
        whole = _converted(stored, self.track, self.rate, self.channels)
        first = (first_stored - added) // self._unit * self._unit_out
        self._check_end()
        stop_seconds = min(self._stop_seconds, self.track.end_seconds)
        begin_seconds = max(self._start_seconds, first_stored / self.track.rate)
        lowest = max(first, round(begin_seconds * self.rate))
        highest = max(lowest, min(first + whole.shape[1], round(stop_seconds * self.rate)))
        return np.ascontiguousarray(whole[:, lowest - first : highest - first]), lowest

    def _stored(self) -> tuple[Samples, int]:
        """Samples as stored of the span and somewhat around it, gaps filled, and the number of the first."""
        pieces: list[Samples] = []
        first = position = 0
        stop_seconds = self._stop_seconds + _LEAD_SECONDS / 10  # what the resampler looks ahead
        with contextlib.closing(self.track.frames(self._start_seconds)) as frames:
            for time, frame in frames:
                if time >= stop_seconds:
                    break
                samples = to_float(frame)
                at = round(time * self.track.rate)
                if not pieces:
                    first = position = at
                if samples.shape[0] != self.track.channels:
                    raise SampleError(
                        f"{samples.shape[0]} channels at {time:.3f} s, {self.track.channels} before",
                        reason="corrupt-media",
                    )
                if at > position + 1:
                    self._check_gap(at - position)
                    pieces.append(np.zeros((self.track.channels, at - position), np.float32))
                    position = at
                pieces.append(samples)
                position += samples.shape[1]
        if not pieces:
            return np.zeros((self.track.channels, 0), np.float32), 0
        return np.concatenate(pieces, axis=1), first

    def _check_gap(self, samples: int) -> None:
        if samples > _LONGEST_GAP_SECONDS * self.track.rate:
            raise SampleError(
                f"a gap of {samples / self.track.rate:,.0f} s between two packets of sound", reason="corrupt-media"
            )

    def _check_end(self) -> None:
        declared = self.track.declared_end_seconds
        end = self.track.end_seconds
        if declared is None or self._start_seconds >= declared:
            return
        if end >= min(self._stop_seconds, declared) - _SLACK_SECONDS:
            return
        raise SampleError(
            f"the sound ends at {end:.3f} s of {declared:.3f} s: the file was cut", reason="truncated-media"
        )


def to_float(frame: Any) -> Samples:
    """Samples of a decoded frame as float32, (channels, samples), from -1 to 1."""
    samples = native_samples(frame)
    if samples.dtype.kind == "f":
        return samples.astype(np.float32, copy=False)
    if samples.dtype == np.uint8:
        return (samples.astype(np.float32) - 128) / np.float32(128)
    scale = 1.0 / (1 << (8 * samples.dtype.itemsize - 1))
    return (samples * scale).astype(np.float32) if samples.dtype.itemsize > 2 else samples * np.float32(scale)


def native_samples(frame: Any) -> npt.NDArray[Any]:
    """Samples of a decoded frame in its own number type, (channels, samples)."""
    samples: npt.NDArray[Any] = frame.to_ndarray()
    if frame.format.is_planar:
        return samples
    return samples.reshape(frame.samples, -1).T


def _converted(samples: Samples, track: AudioTrack, rate: int, channels: int) -> Samples:
    """Samples of a track at another rate and with another number of channels."""
    if channels > 1 and track.channels == 1:
        return np.repeat(_converted(samples, track, rate, 1), channels, axis=0)
    if (rate == track.rate and channels == track.channels) or not samples.shape[1]:
        return samples if channels == track.channels else np.zeros((channels, 0), np.float32)
    av = load_av()
    layout = track.stream.codec_context.layout.name
    target = layout if channels == track.channels else _LAYOUTS.get(channels, f"{channels} channels")
    with track.media.errors():
        # Mixed channels are averaged, as for whole numbers: a sum of them would go beyond -1 and 1.
        resampler = av.AudioResampler(format="fltp", layout=target, rate=rate, options={"rematrix_maxval": "1.0"})
        pieces: list[Samples] = []
        for at in range(0, samples.shape[1], _PIECE_SAMPLES):
            piece = np.ascontiguousarray(samples[:, at : at + _PIECE_SAMPLES])
            frame = av.AudioFrame.from_ndarray(piece, format="fltp", layout=layout)
            frame.sample_rate = track.rate
            pieces += [made.to_ndarray() for made in resampler.resample(frame)]
        pieces += [made.to_ndarray() for made in resampler.resample(None)]
    return np.concatenate(pieces, axis=1) if pieces else np.zeros((channels, 0), np.float32)
