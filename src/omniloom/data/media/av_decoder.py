"""`AVDecoder`: a video or a sound that is decoded piece by piece as it is asked for, under Energon's names."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from omniloom.data.media.audio import AudioTrack
from omniloom.data.media.av_clips import audio_clip, frame_time
from omniloom.data.media.av_data import AVData
from omniloom.data.media.av_facts import facts_of
from omniloom.data.media.av_open import Media, load_av
from omniloom.data.media.av_track import Pixels, VideoTrack, stacked
from omniloom.data.media.av_walk import Range
from omniloom.data.media.metadata import AVMetadata
from omniloom.errors import ConfigError, SampleError

if TYPE_CHECKING:
    import torch

Spans = Sequence[tuple[float, float]]
AVDecode = Literal["AVDecoder", "torch", "pyav", "raw"]


class AVDecoder:
    """A container that is opened once, when something is first asked for, and decoded no further than is needed.

    Ranges of frames include their ends: ``(t, t)`` is the frame shown at ``t``. Seconds are found by the time of each
    frame, also where the frame rate varies; numbers of frames count frames as they are shown. It can be pickled where
    its stream can.

    Args:
        stream: a binary file that seeks; its position may change.
        suppress_warnings: kept for callers of Energon: nothing here is approximate, so there is nothing to warn of.

    Raises:
        ConfigError: a text file, or PyAV is not installed.
    """

    def __init__(self, stream: BinaryIO, suppress_warnings: bool = False) -> None:
        load_av()
        if isinstance(stream, io.TextIOBase) or "t" in getattr(stream, "mode", "rb") or not hasattr(stream, "read"):
            raise ConfigError("AVDecoder reads a binary file; open it with mode 'rb'")
        self.stream = stream
        self.suppress_warnings = suppress_warnings
        self._media: Media | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"stream": self.stream, "suppress_warnings": self.suppress_warnings, "_media": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"AVDecoder(stream={self.stream!r})"

    def close(self) -> None:
        """Close the container; the stream stays open, and the next question opens the container again."""
        if self._media is not None:
            self._media.close()
            self._media = None

    def get_video(self) -> AVData:
        """All frames, no sound."""
        clips, times = self.get_video_clips([(0, math.inf)])
        return AVData(video_clips=clips, video_timestamps=times, audio_clips=[], audio_timestamps=[])

    def get_audio(self) -> AVData:
        """All sound, no frames."""
        clips, times = self.get_audio_clips([(0, math.inf)])
        return AVData(video_clips=[], video_timestamps=[], audio_clips=clips, audio_timestamps=times)

    def get_video_with_audio(self) -> AVData:
        """All frames and all sound."""
        return self.get_clips(video_clip_ranges=[(0, math.inf)], audio_clip_ranges=[(0, math.inf)])

    def get_video_clips(
        self,
        video_clip_ranges: Spans,
        video_unit: Literal["frames", "seconds"] = "seconds",
        video_out_frame_size: tuple[int, int] | None = None,
    ) -> tuple[list[torch.Tensor], list[tuple[float, float]]]:
        """Clips of frames.

        Args:
            video_clip_ranges: first and last of each clip; the last one belongs to it, ``inf`` is the end. Clips that
                begin after the end of the video are left out of the result.
            video_unit: whether the ranges count seconds or frames.
            video_out_frame_size: (width, height) to scale to, bilinearly.

        Returns:
            uint8 tensors (frames, 3, height, width), and (begin, end) of each in seconds.

        Raises:
            SampleError: as `VideoReader` and its methods do.
            ConfigError: an unknown unit, or a range whose last lies before its first.
        """
        import torch  # noqa: PLC0415 - a decoder is made and carried about without torch

        if video_unit not in ("frames", "seconds"):
            raise ConfigError(f"video_unit={video_unit!r}: expected 'frames' or 'seconds'")
        for first, last in video_clip_ranges:
            if not first <= last:
                raise ConfigError(f"a clip from {first:g} to {last:g} {video_unit}: its last lies before its first")
        media = self._opened()
        # As Energon, stored frames are not turned, and damage is left to the decoder to conceal.
        track = VideoTrack(media, rotate=False, strict=False)
        place: Callable[[float], float] = track.ticks if video_unit == "seconds" else frame_time(track)
        ranges = [Range(place(first), place(last)) for first, last in video_clip_ranges]
        ranges = [one for one in ranges if not math.isinf(one.first)]
        found = [pictures for pictures in track.read(ranges, size=video_out_frame_size) if pictures]
        return (
            [torch.from_numpy(pixels).permute(0, 3, 1, 2) for pixels in map(stacked, found)],
            [(track.seconds(pictures[0].time), track.seconds(pictures[-1].end)) for pictures in found],
        )

    def frames_shown_at(
        self, seconds: Sequence[float], *, size: tuple[int, int] | None = None
    ) -> tuple[Pixels, list[float]]:
        """The frames shown at given times, without those after the end: uint8 (frames, height, width, 3), and begins.

        Raises:
            SampleError: as `VideoReader.frames_at` does, but for ``out-of-range``; ``size-changes``.
        """
        track = VideoTrack(self._opened(), rotate=False, strict=False)
        ticks = [track.ticks(second) for second in seconds]
        found = [pictures[0] for pictures in track.read([Range(tick, tick) for tick in ticks], size=size) if pictures]
        return stacked(found), [track.seconds(picture.time) for picture in found]

    def get_audio_clips(
        self, audio_clip_ranges: Spans, audio_unit: Literal["samples", "seconds"] = "seconds"
    ) -> tuple[list[torch.Tensor], list[tuple[float, float]]]:
        """Clips of sound.

        Args:
            audio_clip_ranges: begin and end of each clip; ``inf`` is the end of the sound. Clips that begin after that
                are left out of the result.
            audio_unit: whether the ranges count seconds or samples.

        Returns:
            Tensors (channels, samples) in the number type that the codec gives, and (begin, end) of each in seconds.

        Raises:
            SampleError: as `read_audio` does.
            ConfigError: an unknown unit.
        """
        import torch  # noqa: PLC0415

        if audio_unit not in ("samples", "seconds"):
            raise ConfigError(f"audio_unit={audio_unit!r}: expected 'samples' or 'seconds'")
        track = AudioTrack(self._opened(), strict=False)
        scale = 1.0 if audio_unit == "seconds" else 1.0 / track.rate
        clips = [audio_clip(track, start * scale, stop * scale) for start, stop in audio_clip_ranges]
        found = [clip for clip in clips if clip is not None]
        return [torch.from_numpy(clip.samples) for clip in found], [clip.span_seconds for clip in found]

    def get_clips(
        self,
        video_clip_ranges: Spans | None = None,
        audio_clip_ranges: Spans | None = None,
        video_unit: Literal["frames", "seconds"] = "seconds",
        audio_unit: Literal["samples", "seconds"] = "seconds",
        video_out_frame_size: tuple[int, int] | None = None,
    ) -> AVData:
        """Clips of frames, of sound or of both; see `get_video_clips` and `get_audio_clips`."""
        data = AVData(video_clips=[], video_timestamps=[], audio_clips=[], audio_timestamps=[])
        if video_clip_ranges is not None:
            clips = self.get_video_clips(video_clip_ranges, video_unit, video_out_frame_size)
            data.video_clips, data.video_timestamps = clips
        if audio_clip_ranges is not None:
            data.audio_clips, data.audio_timestamps = self.get_audio_clips(audio_clip_ranges, audio_unit)
        return data

    def get_frames(self, video_decode_audio: bool = False) -> AVData | None:
        """All there is: the frames (with the sound if asked for) of a video, or the sound; ``None`` for no media."""
        try:
            has_video = self.has_video_stream()
        except SampleError as error:
            if error.reason == "not-media":
                return None
            raise
        if not has_video:
            return self.get_audio()
        return self.get_video_with_audio() if video_decode_audio and self.has_audio_stream() else self.get_video()

    def get_video_fps(self) -> float:
        """Frames a second on average."""
        facts = self.get_metadata(
            get_video_duration=False, get_video_frame_count=False, get_video_frame_size=False, get_audio=False
        )
        if facts.video_fps is None:
            raise SampleError("there is no video stream that tells its frame rate", reason="no-video")
        return facts.video_fps

    def get_audio_samples_per_second(self) -> int:
        """Samples a second and channel."""
        facts = self.get_metadata(get_video=False, get_audio_duration=False)
        if facts.audio_sample_rate is None:
            raise SampleError("there is no audio stream", reason="no-audio")
        return facts.audio_sample_rate

    def has_audio_stream(self) -> bool:
        """Whether there is sound."""
        return bool(self._opened().container.streams.audio)

    def has_video_stream(self) -> bool:
        """Whether there are frames."""
        return bool(self._opened().container.streams.video)

    def get_audio_duration(self) -> float | None:
        """Length of the sound in seconds; ``None`` where there is none."""
        return self.get_metadata(get_video=False).audio_duration

    def get_video_duration(self, get_frame_count: bool = False) -> tuple[float | None, int | None]:
        """Length of the video in seconds, and the number of its frames if asked for or found on the way."""
        facts = self.get_metadata(get_video_frame_count=get_frame_count, get_video_frame_size=False, get_audio=False)
        return facts.video_duration, facts.video_num_frames

    def get_metadata(  # noqa: PLR0917 - as in Energon
        self,
        get_video: bool = True,
        get_video_duration: bool = True,
        get_video_frame_count: bool = True,
        get_video_frame_size: bool = True,
        get_audio: bool = True,
        get_audio_duration: bool = True,
        get_audio_num_samples: bool = False,
    ) -> AVMetadata:
        """What is known of the first video and the first audio stream.

        Args:
            get_video: whether to look at the video at all.
            get_video_duration: read the packets through where the header does not tell the length.
            get_video_frame_count: count the frames.
            get_video_frame_size: decode a frame for its size.
            get_audio: whether to look at the sound at all.
            get_audio_duration: read the packets through where the header does not tell the length.
            get_audio_num_samples: count the samples; that decodes the sound.
        """
        return facts_of(
            self._opened(),
            video=get_video,
            video_duration=get_video_duration,
            video_frame_count=get_video_frame_count,
            video_frame_size=get_video_frame_size,
            audio=get_audio,
            audio_duration=get_audio_duration,
            audio_num_samples=get_audio_num_samples,
        )

    def _opened(self) -> Media:
        if self._media is None:
            self._media = Media(self.stream)
        self._media.file.progress()
        return self._media
