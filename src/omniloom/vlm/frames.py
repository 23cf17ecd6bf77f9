"""Which frames of a video a model sees, and how they are taken out of what samples hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from omniloom.data.media.lazy import resolve
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
    """How many frames `video_frames` will give, without decoding any where the video can say how long it is."""
    return len(frame_indices(_length(video), count=count))


def video_frames(video: Any, *, count: int) -> list[Any]:
    """Frames of a video, evenly spread, each as `open_picture` takes it.

    Args:
        video: a sequence of images, an array or tensor (frames, 3, height, width) or (frames, height, width, 3), an
            object with such ``frames``, or a video decoder with ``get_frame_count`` and ``get_frames``.
        count: how many frames at most.

    Raises:
        SampleError: it is no video, or has no frames.
    """
    video = _content(video)
    indices = frame_indices(_length(video), count=count)
    decode = getattr(video, "get_frames", None)
    if decode is not None:
        return list(decode(indices))
    return [video[index] for index in indices]


def _content(video: Any) -> Any:
    video = resolve(video)
    frames = getattr(video, "frames", None)
    return video if frames is None or callable(frames) else frames


def _length(video: Any) -> int:
    video = _content(video)
    counted = getattr(video, "get_frame_count", None)
    if counted is not None:
        return int(counted())
    if isinstance(video, Sequence) and not isinstance(video, str | bytes):
        return len(video)
    if getattr(video, "ndim", 0) == 4:
        return int(video.shape[0])
    raise SampleError(
        f"a {type(video).__name__} is no video: a sequence of images or an array (frames, ...) expected",
        reason="not-a-video",
    )
