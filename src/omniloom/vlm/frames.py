"""Which frames of a video a model sees, and how they are taken out of what samples hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from omniloom.data.media.lazy import resolve
from omniloom.data.media.video import VideoReader
from omniloom.errors import SampleError


def frame_indices(frames: int, *, count: int) -> list[int]:
    """Frames spread evenly from the first to the last, both included.

    Args:
        frames: how many the video has.
        count: how many are wanted; all of a shorter video.

    Raises:
        SampleError: ``no-frames``: the video has none.
    """
    if frames < 1:
        raise SampleError("the video has no frames", reason="no-frames")
    return [int(index) for index in np.linspace(0, frames - 1, min(count, frames))]


def frame_count(video: Any, *, count: int) -> int:
    """How many frames `video_frames` will give. Of a video that is not decoded, only the header is read."""
    video = _content(video)
    if _is_encoded(video):
        with VideoReader(video) as reader:
            begin, end = reader.span_seconds
            return min(count, max(1, round((end - begin) * reader.fps)))
    return len(frame_indices(_length(video), count=count))


def video_frames(video: Any, *, count: int) -> list[Any]:
    """Frames of a video, evenly spread, each as `open_picture` takes it.

    Args:
        video: content of a video file, an `AVDecoder`, a sequence of images, an array or tensor
            (frames, 3, height, width) or (frames, height, width, 3), or an object with such ``frames``.
        count: how many frames at most.

    Raises:
        SampleError: it is no video, has no frames, or cannot be decoded.
    """
    video = _content(video)
    if _is_encoded(video):
        wanted = frame_count(video, count=count)
        with VideoReader(video) as reader:
            return list(reader.uniform_frames(wanted).pixels)
    return [video[index] for index in frame_indices(_length(video), count=count)]


def _content(video: Any) -> Any:
    """What holds the frames: the file's bytes or stream, or a sequence of frames."""
    video = resolve(video)
    for name in ("frames", "stream"):
        inner = getattr(video, name, None)
        if inner is not None and not callable(inner):
            return inner
    clips = getattr(video, "video_clips", None)
    return clips[0] if clips else video


def _is_encoded(video: Any) -> bool:
    return isinstance(video, bytes) or hasattr(video, "read")


def _length(video: Any) -> int:
    if isinstance(video, Sequence) and not isinstance(video, str):
        return len(video)
    if getattr(video, "ndim", 0) == 4:
        return int(video.shape[0])
    raise SampleError(
        f"a {type(video).__name__} is no video: a video file, a sequence of images or an array (frames, ...) expected",
        reason="not-a-video",
    )
