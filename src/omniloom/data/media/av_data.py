"""What `AVDecoder` gives: clips of frames and of sound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(slots=True, kw_only=True)
class AVData:
    """Clips of a video and of its sound, under Energon's names.

    Attributes:
        video_clips: uint8 tensors (frames, 3, height, width), RGB.
        video_timestamps: begin of the first and end of the last frame of each clip, in seconds.
        audio_clips: tensors (channels, samples) in the number type that the codec gives.
        audio_timestamps: begin and end of each clip in seconds.
    """

    video_clips: list[torch.Tensor] | None
    video_timestamps: list[tuple[float, float]] | None
    audio_clips: list[torch.Tensor] | None
    audio_timestamps: list[tuple[float, float]] | None
