"""Clips and frames at equal distances out of an `AVDecoder`, under Energon's names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from omniloom.data.media.av_data import AVData
from omniloom.data.media.av_decoder import AVDecoder
from omniloom.errors import ConfigError, SampleError

if TYPE_CHECKING:
    import torch


def get_clips_uniform(  # noqa: PLR0917 - as in Energon
    av_decoder: AVDecoder,
    clip_duration_seconds: float,
    num_clips: int,
    request_video: bool = False,
    request_audio: bool = False,
    video_out_frame_size: tuple[int, int] | None = None,
) -> AVData:
    """Clips of one length at equal distances, from the begin to the end.

    Args:
        av_decoder: what is decoded.
        clip_duration_seconds: length of a clip; 0: single frames, from the middle of the first to that of the last.
        num_clips: how many.
        request_video: whether frames are wanted.
        request_audio: whether sound is wanted; with both, the shorter of the two sets the length of the whole.
        video_out_frame_size: (width, height) to scale to, bilinearly.

    Raises:
        ConfigError: neither frames nor sound are wanted.
        SampleError: what is wanted is not there (``no-video``, ``no-audio``), or cannot be decoded.
    """
    if not (request_video or request_audio):
        raise ConfigError("ask for frames, for sound or for both: request_video=True, request_audio=True")
    duration_seconds = math.inf
    if request_video:
        duration_seconds = _known(av_decoder.get_video_duration()[0], "video")
    if request_audio:
        duration_seconds = min(duration_seconds, _known(av_decoder.get_audio_duration(), "audio"))
    first, last = 0.0, duration_seconds - clip_duration_seconds
    if clip_duration_seconds == 0:
        half_a_frame = 0.5 / av_decoder.get_video_fps()
        first, last = half_a_frame, duration_seconds - half_a_frame
    starts = [float(start) for start in np.linspace(first, last, num_clips)]
    clips = [(start, start + clip_duration_seconds) for start in starts]
    return av_decoder.get_clips(
        video_clip_ranges=clips if request_video else None,
        audio_clip_ranges=clips if request_audio else None,
        video_out_frame_size=video_out_frame_size,
    )


@overload
def get_single_frames_uniform(
    av_decoder: AVDecoder,
    num_frames: int,
    *,
    video_out_frame_size: tuple[int, int] | None = None,
    return_timestamps: Literal[False] = False,
) -> torch.Tensor: ...


@overload
def get_single_frames_uniform(
    av_decoder: AVDecoder,
    num_frames: int,
    *,
    video_out_frame_size: tuple[int, int] | None = None,
    return_timestamps: Literal[True],
) -> tuple[torch.Tensor, list[float]]: ...


def get_single_frames_uniform(
    av_decoder: AVDecoder,
    num_frames: int,
    *,
    video_out_frame_size: tuple[int, int] | None = None,
    return_timestamps: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, list[float]]:
    """Frames at equal distances, from the first to the last.

    Args:
        av_decoder: what is decoded.
        num_frames: how many.
        video_out_frame_size: (width, height) to scale to, bilinearly.
        return_timestamps: give the begin of each frame in seconds too.

    Returns:
        A uint8 tensor (frames, 3, height, width); with the times if they are asked for.

    Raises:
        SampleError: there are no frames, or they cannot be decoded.
    """
    import torch  # noqa: PLC0415

    duration_seconds = _known(av_decoder.get_video_duration()[0], "video")
    half_a_frame = 0.5 / av_decoder.get_video_fps()
    times = [float(time) for time in np.linspace(half_a_frame, duration_seconds - half_a_frame, num_frames)]
    pixels, starts = av_decoder.frames_shown_at(times, size=video_out_frame_size)
    if not starts:
        raise SampleError("the video has no frame at the times that its header promises", reason="no-video")
    frames = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    return (frames, starts) if return_timestamps else frames


def _known(duration_seconds: float | None, kind: Literal["video", "audio"]) -> float:
    if duration_seconds is None:
        raise SampleError(f"there is no {kind} of known length", reason=f"no-{kind}")
    return duration_seconds
