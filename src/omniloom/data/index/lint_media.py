"""Video and sound, decoded to their end and thrown away frame by frame: faults show, and memory stays small."""

from __future__ import annotations

from typing import Any

from omniloom.data.media.av_open import Media, load_av, opened
from omniloom.data.media.av_parts import decode_av
from omniloom.errors import SampleError

WHOLE_BYTES = 1 << 28
"""Clips of which all frames fit in this are decoded once more, by the reader itself and at once."""

LEAST_SHARE = 0.8
"""Of the stated length, so much has to be there; players and containers count the last frame differently."""


def media_faults(data: bytes) -> list[tuple[str, str]]:
    """Decode all video and sound of a container, and go back to its begin, as readers do.

    Args:
        data: content of the file.

    Returns:
        Reason and message of what a reader passes over: frames that are announced and are not there, an early end.

    Raises:
        SampleError: it cannot be opened or rewound, holds not a single frame or sample (``no-frames``), a stream has
            no decoder, a packet cannot be decoded (``damaged-packets``), or the reader refuses a short clip.
        ConfigError: PyAV is not installed.
    """
    with opened(data) as media, media.errors():
        streams = [stream for stream in media.container.streams if stream.type in ("video", "audio")]
        for stream in streams:
            if stream.codec_context is None:
                raise SampleError(f"FFmpeg has no decoder for stream {stream.index}", reason="no-decoder")
        found, reached_seconds = _decoded(media, streams)
        if not any(found.values()):
            told = f"{len(data):,} bytes of media without a frame of video or sound that can be decoded"
            raise SampleError(told, reason="no-frames")
        for stream in streams:
            media.rewind(stream)
        videos: list[Any] = [stream for stream in streams if stream.type == "video"]
        faults = [
            (
                "frames-missing",
                f"{found[stream.index]:,} of {stream.frames:,} frames of stream {stream.index} are there",
            )
            for stream in videos
            if found[stream.index] < stream.frames
        ]
        stated_seconds = (media.container.duration or 0) / 1e6
        if reached_seconds < stated_seconds * LEAST_SHARE:
            told = f"the last frame is at {reached_seconds:.2f} s of {stated_seconds:.2f} s; was the file cut?"
            faults.append(("ends-early", told))
        size_bytes = sum(3 * stream.width * stream.height * found[stream.index] for stream in videos)
    if size_bytes <= WHOLE_BYTES:
        decode_av(data, av_decode="torch", video_decode_audio=True)
    return faults


def _decoded(media: Media, streams: list[Any]) -> tuple[dict[int, int], float]:
    """How many frames each stream has, and the time of the last of all, in seconds.

    Raises SampleError for damaged packets, after all have been tried.
    """
    found = dict.fromkeys((stream.index for stream in streams), 0)
    packets = damaged = 0
    reached_seconds = 0.0
    for packet in media.container.demux(*streams) if streams else ():
        media.file.check()
        packets += 1
        frames = _frames(packet)
        if frames is None:
            damaged += 1
            continue
        found[packet.stream.index] += len(frames)
        reached_seconds = max(reached_seconds, *(frame.time or 0.0 for frame in frames), 0.0)
        media.file.progress()
    if damaged and any(found.values()):
        raise SampleError(f"{damaged:,} of {packets:,} packets cannot be decoded", reason="damaged-packets")
    return found, reached_seconds


def _frames(packet: Any) -> list[Any] | None:
    try:
        return None if packet.is_corrupt else list(packet.decode())
    except load_av().error.FFmpegError:
        return None
