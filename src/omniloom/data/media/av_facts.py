"""What a container tells of its first video and audio stream, counted and measured as Energon does."""

from __future__ import annotations

import itertools
from typing import Any

from omniloom.data.media.av_open import Media, load_av
from omniloom.data.media.metadata import AVMetadata
from omniloom.errors import SampleError


def facts_of(
    media: Media,
    *,
    video: bool = True,
    video_duration: bool = True,
    video_frame_count: bool = True,
    video_frame_size: bool = True,
    audio: bool = True,
    audio_duration: bool = True,
    audio_num_samples: bool = False,
) -> AVMetadata:
    """Facts of a container; what the header does not tell is found by reading packets, as far as it is asked for.

    Args:
        media: the open container.
        video: whether to look at the video at all.
        video_duration: read packets where the header does not tell the length.
        video_frame_count: count the frames.
        video_frame_size: decode a frame for its size.
        audio: whether to look at the sound at all.
        audio_duration: read packets where the header does not tell the length.
        audio_num_samples: count the samples by decoding them.

    Raises:
        SampleError: the container cannot be read.
    """
    facts = AVMetadata()
    streams = media.container.streams
    for stream in (*streams.video[:1], *streams.audio[:1]):
        if stream.codec_context is None:
            raise SampleError(f"FFmpeg has no decoder for the {stream.type} stream", reason="no-decoder")
    with media.errors():
        if video and streams.video:
            _add_video(
                facts, media, duration=video_duration, frame_count=video_frame_count, frame_size=video_frame_size
            )
        if audio and streams.audio:
            _add_audio(facts, media, duration=audio_duration, num_samples=audio_num_samples)
    return facts


def _add_video(facts: AVMetadata, media: Media, *, duration: bool, frame_count: bool, frame_size: bool) -> None:
    stream: Any = media.container.streams.video[0]
    ticks = stream.duration
    if ticks is None and duration:
        facts.video_num_frames, ticks = _count_packets(media, stream)
    facts.video_duration = _seconds(ticks, stream)
    if frame_count and facts.video_num_frames is None:
        facts.video_num_frames = _indexed_frames(media, stream) or _count_packets(media, stream)[0]
    if stream.average_rate is not None:
        facts.video_fps = float(stream.average_rate)
    elif facts.video_num_frames is not None and facts.video_duration:
        facts.video_fps = facts.video_num_frames / facts.video_duration
    if frame_size:
        facts.video_width, facts.video_height = _frame_size(media, stream)


def _add_audio(facts: AVMetadata, media: Media, *, duration: bool, num_samples: bool) -> None:
    stream: Any = media.container.streams.audio[0]
    facts.audio_sample_rate = stream.codec_context.sample_rate
    facts.audio_channels = stream.codec_context.channels
    ticks = stream.duration
    if num_samples:
        facts.audio_num_samples, last_end = _count_samples(media, stream)
        ticks = ticks if last_end is None else last_end
    if ticks is None and duration:
        _, ticks = _count_packets(media, stream)
    facts.audio_duration = _seconds(ticks, stream)


def _seconds(ticks: int | None, stream: Any) -> float | None:
    """Length of a stream. As in Energon the begin is taken off, also off a length that a header tells."""
    return None if ticks is None else (ticks - (stream.start_time or 0)) * float(stream.time_base)


def _indexed_frames(media: Media, stream: Any) -> int | None:
    """The number of frames where the container has an index of them all."""
    if media.formats & {"mov", "mp4"} and stream.frames and len(stream.index_entries) == stream.frames:
        return int(stream.frames)
    return None


def _rewound(media: Media, stream: Any) -> None:
    media.select(stream)
    media.rewind(stream)
    if stream.codec_context is not None:
        stream.codec_context.flush_buffers()


def _count_packets(media: Media, stream: Any) -> tuple[int, int | None]:
    """How many packets have a time, and where the last of them ends, in ticks."""
    _rewound(media, stream)
    count, end = 0, None
    for packet in media.container.demux(stream):
        media.file.progress()
        if packet.pts is not None:
            count += 1
            end = None if packet.duration is None else packet.pts + packet.duration
    return count, end


def _count_samples(media: Media, stream: Any) -> tuple[int, int | None]:
    """How many samples there are, and where the last decoded frame ends, in ticks."""
    _rewound(media, stream)
    count, end = 0, None
    for frame in _decoded(media, stream):
        count += frame.samples
        if frame.pts is not None:
            end = frame.pts + (frame.duration or 0)
    return count, end


def _frame_size(media: Media, stream: Any) -> tuple[int, int]:
    """Width and height of the first frame that can be decoded; else as the header says."""
    _rewound(media, stream)
    for frame in itertools.islice(_decoded(media, stream), 1):
        return frame.width, frame.height
    return stream.codec_context.width, stream.codec_context.height


def _decoded(media: Media, stream: Any) -> Any:
    eof = load_av().error.EOFError
    for packet in media.container.demux(stream):
        media.file.check()
        try:
            frames = stream.codec_context.decode(packet if packet.size else None)
        except eof:
            return
        for frame in frames:
            media.file.progress()
            yield frame
