"""Frames out of videos: the right ones, by few packets and few bytes, from every container."""

from __future__ import annotations

import io
import math
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.media.av_open import Media
from omniloom.data.media.video import VideoReader, bounded_size, frame_count
from omniloom.errors import ConfigError, SampleError
from omniloom.storage.range_file import RangeFile
from tests.contract.made_clips import make_large_video, make_video, number_of, numbers_of

CONTAINERS = [
    ("mp4", "libx264"),
    ("mov", "libx264"),
    ("matroska", "libx264"),
    ("matroska", "libx265"),
    ("webm", "libvpx-vp9"),
    ("webm", "libvpx"),
    ("avi", "mpeg4"),
    ("avi", "mjpeg"),
    ("avi", "libx264"),
    ("mp4", "mpeg4"),
    ("mpegts", "libx264"),
    ("flv", "libx264"),
]


@pytest.fixture(scope="module")
def plain() -> bytes:
    return make_video(frames=120)


@pytest.mark.parametrize(("container", "codec"), CONTAINERS)
def test_every_container_gives_the_frame_shown_at_a_time(container: str, codec: str) -> None:
    video = make_video(container=container, codec=codec, frames=60)
    with VideoReader(video) as reader:
        begin, end = reader.span_seconds
        assert end - begin == pytest.approx(2.0, abs=0.11)
        wanted = [59, 0, 31, 12, 13, 31]
        frames = reader.frames_at([begin + (number + 0.5) / 30 for number in wanted])
        assert numbers_of(frames.pixels) == wanted
        assert numbers_of(reader.uniform_frames(5).pixels) == [0, 15, 30, 44, 59]
        assert numbers_of(reader.clip(begin + 0.1, begin + 0.2, audio=False).frames.pixels) == [3, 4, 5]
        assert numbers_of(reader.clip(begin, audio=False).frames.pixels) == list(range(60))


@settings(max_examples=40, deadline=None)
@given(times=st.lists(st.floats(0, 3.99).filter(lambda time: time * 30 % 1 < 0.99), min_size=1, max_size=12))
def test_frames_at_any_times_are_those_of_a_full_decode(plain: bytes, times: list[float]) -> None:
    with VideoReader(plain) as reader:
        frames = reader.frames_at(times)
    assert numbers_of(frames.pixels) == [math.floor(time * 30 + 1e-6) for time in times]


def test_skipping_what_nobody_refers_to_changes_no_pixel(plain: bytes) -> None:
    with av.open(io.BytesIO(plain)) as container:
        every = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    with VideoReader(plain) as reader:
        frames = reader.uniform_frames(17)
    for pixels, seconds in zip(frames.pixels, frames.seconds, strict=True):
        assert np.array_equal(pixels, every[round(seconds * 30)])


def test_a_video_of_varying_rate_is_sampled_by_time() -> None:
    times = [0, 40, 80, 1_000, 1_500, 1_520, 1_540, 3_000]
    video = make_video(container="matroska", frames=8, times=times, gop=4, bframes=0)
    with VideoReader(video) as reader:
        frames = reader.frames_at([0.9, 1.0, 1.51, 2.9])
        assert numbers_of(frames.pixels) == [2, 3, 4, 6]
        assert frames.seconds.tolist() == pytest.approx([0.08, 1.0, 1.5, 1.54])
        whole = reader.clip(0, audio=False).frames
    assert numbers_of(whole.pixels) == list(range(8))
    assert np.all(np.diff(whole.seconds) > 0)


@pytest.mark.parametrize("rotation", [90, -90, 180])
def test_a_rotated_video_is_turned_as_it_is_shown(rotation: int) -> None:
    video = make_video(frames=4, rotation=rotation)
    with VideoReader(video) as reader:
        info = reader.info()
        pixels = reader.frames_at([0.04]).pixels[0]
    upright = (48, 64) if rotation == 180 else (64, 48)
    assert (info.height, info.width) == pixels.shape[:2] == upright
    assert info.rotation == rotation % 360
    assert number_of(np.rot90(pixels, -rotation // 90)) == 1
    with VideoReader(video, rotate=False) as reader:
        assert number_of(reader.frames_at([0.04]).pixels[0]) == 1


def test_size_is_width_and_height_and_keeps_the_picture(plain: bytes) -> None:
    with VideoReader(plain) as reader:
        frames = reader.frames_at([1.0], size=(128, 96))
    assert frames.pixels.shape == (1, 96, 128, 3)
    assert numbers_of(frames.pixels) == [30]
    assert frames.tensor().shape == (1, 3, 96, 128)


def test_a_tolerance_takes_key_frames_and_stays_within_itself(plain: bytes) -> None:
    times = [0.5, 1.3, 2.61, 3.8]
    with VideoReader(plain) as reader:
        near = reader.frames_at(times, tolerance_seconds=0.25)
        exact = reader.frames_at(times)
    assert np.all(np.abs(near.seconds - times) <= 0.25 + 1e-9)
    assert [number % 12 for number in numbers_of(near.pixels)] == [0, 0, 0, 0]
    assert numbers_of(exact.pixels) == [15, 39, 78, 114]


def test_sampling_keeps_its_bounds(plain: bytes) -> None:
    with VideoReader(plain) as reader:
        assert len(reader.sampled_frames(2)) == 8
        assert len(reader.sampled_frames(2, max_frames=6)) == 6
        assert len(reader.sampled_frames(0.1, min_frames=4, frames_multiple=2)) == 4
        small = reader.sampled_frames(1, max_pixels=1_000, size_multiple=4)
        _, height, width, _ = small.pixels.shape
        assert height * width <= 1_000
        assert (height % 4, width % 4) == (0, 0)
        total = reader.sampled_frames(4, max_total_pixels=16_000, size_multiple=2)
        assert total.pixels[..., 0].size <= 16_000


def test_counts_and_sizes_need_no_video() -> None:
    assert frame_count(10.0, 2.0) == 20
    assert frame_count(10.0, 2.0, max_frames=7, frames_multiple=2) == 6
    assert frame_count(0.1, 2.0, min_frames=3, frames_multiple=2) == 4
    assert bounded_size((1920, 1080), max_pixels=921_600) == (1280, 720)
    assert bounded_size((100, 50), multiple=28) == (112, 56)
    with pytest.raises(ConfigError, match="no number of frames fits"):
        frame_count(10.0, 2.0, min_frames=9, max_frames=7)


def test_eight_frames_of_a_large_video_read_a_part_of_it() -> None:
    video = make_large_video(900)
    file = RangeFile(lambda start, stop: video[start:stop], size_bytes=len(video))
    with VideoReader(file) as reader:
        assert len(reader.uniform_frames(8)) == 8
    assert len(video) > 100 << 20
    assert file.fetched_bytes < len(video) / 20
    assert file.requests < 200


def test_opened_once_whatever_is_asked(plain: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = av.open
    monkeypatch.setattr(av, "open", lambda *args, **kwargs: (calls.append(1), original(*args, **kwargs))[1])
    with VideoReader(plain) as reader:
        reader.info()
        reader.uniform_frames(3)
        reader.frames_at([1.0, 0.2])
        reader.clip(0.5, 1.0)
    assert len(calls) == 1


def test_threads_give_the_same_frames(plain: bytes) -> None:
    with VideoReader(plain) as one, VideoReader(plain, threads=2) as two:
        for times in ([0.5, 1.7, 3.9], [0.1, 0.2], [2.2]):
            assert np.array_equal(one.frames_at(times).pixels, two.frames_at(times).pixels)


def test_a_long_group_of_frames_is_decoded_in_bounded_memory_of_packets() -> None:
    video = make_video(frames=300, gop=10_000)
    with VideoReader(video) as reader:
        assert numbers_of(reader.frames_at([9.9, 0.0, 5.02]).pixels) == [297, 0, 150]


def test_sources_of_every_kind_give_the_same(plain: bytes, tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    path.write_bytes(plain)
    with path.open("rb") as file, Media(plain) as media:
        for source in (plain, bytearray(plain), memoryview(plain), path, str(path), io.BytesIO(plain), file, media):
            with VideoReader(source) as reader:
                assert numbers_of(reader.uniform_frames(3).pixels) == [0, 60, 119]
    with pytest.raises(ConfigError, match="binary"):
        VideoReader(io.StringIO("x"))


def test_times_that_are_not_there_are_refused(plain: bytes) -> None:
    with VideoReader(plain) as reader:
        with pytest.raises(SampleError, match="ends at 4 s") as caught:
            reader.frames_at([4.5])
        assert caught.value.reason == "out-of-range"
        with pytest.raises(ConfigError, match="finite"):
            reader.frames_at([math.nan])
        with pytest.raises(ConfigError, match="start < stop"):
            reader.clip(2.0, 1.0)
        assert numbers_of(reader.frames_at([-3.0]).pixels) == [0]
