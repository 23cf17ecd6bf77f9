"""Frames of videos: which ones, and out of what."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from omniloom.errors import SampleError
from omniloom.vlm.frames import frame_count, frame_indices, video_frames


@pytest.mark.parametrize(
    ("frames", "count", "expected"),
    [(10, 4, [0, 3, 6, 9]), (3, 8, [0, 1, 2]), (100, 1, [0]), (1, 4, [0]), (30, 8, [0, 4, 8, 12, 16, 20, 24, 29])],
)
def test_frames_are_spread_from_the_first_to_the_last(frames: int, count: int, expected: list[int]) -> None:
    """By hand: linspace from 0 to frames - 1, the fraction dropped."""
    assert frame_indices(frames, count=count) == expected


def test_a_video_without_frames() -> None:
    with pytest.raises(SampleError, match="no frames"):
        frame_indices(0, count=4)
    with pytest.raises(SampleError, match="is no video"):
        video_frames("a.mp4", count=4)


def test_arrays_lists_and_objects_with_frames() -> None:
    array = np.arange(10, dtype=np.uint8)[:, None, None, None] + np.zeros((10, 4, 5, 3), np.uint8)
    for video in (array, list(array), SimpleNamespace(frames=array), SimpleNamespace(video_clips=[array])):
        assert frame_count(video, count=4) == 4
        assert [int(frame[0, 0, 0]) for frame in video_frames(video, count=4)] == [0, 3, 6, 9]


def _clip(frames: int) -> bytes:
    """A video whose frames get brighter, 10 levels each."""
    av: Any = pytest.importorskip("av")
    stream = io.BytesIO()
    with av.open(stream, "w", format="mp4") as container:
        track = container.add_stream("mpeg4", rate=10)
        track.width, track.height, track.pix_fmt = 64, 48, "yuv420p"
        for number in range(frames):
            picture = np.full((48, 64, 3), 10 * number, np.uint8)
            container.mux(track.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(track.encode())
    return stream.getvalue()


def test_a_video_file_is_counted_by_its_header_and_decoded_where_it_is_needed() -> None:
    clip = _clip(20)
    assert frame_count(clip, count=5) == 5
    found = video_frames(clip, count=5)
    levels = [float(np.asarray(frame).mean()) for frame in found]
    assert np.allclose(levels, [0, 50, 100, 140, 190], atol=6), "0.05 s to 1.95 s in four steps; 1.0 s shows frame 10"
    assert found[0].shape == (48, 64, 3)
    assert frame_count(_clip(3), count=8) == len(video_frames(_clip(3), count=8)) == 3


def test_an_av_decoder_is_a_video() -> None:
    clip = _clip(6)
    from omniloom.data.media.av_decoder import AVDecoder  # noqa: PLC0415

    assert len(video_frames(AVDecoder(io.BytesIO(clip)), count=3)) == 3
