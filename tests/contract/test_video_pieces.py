"""Pieces of a video between key frames, decoded side by side: the same frames, faults and bytes, by as few decoders."""

from __future__ import annotations

import io
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom import AVDecoder, get_clips_uniform
from omniloom.data.media import av_threads
from omniloom.data.media.av_threads import equal_shares, give_threads, spare_threads
from omniloom.data.media.video import VideoReader
from omniloom.errors import SampleError
from tests.contract.made_clips import make_video, numbers_of

FRAMES, GROUP = 300, 30


@pytest.fixture(
    scope="module", params=[("mp4", "libx264"), ("matroska", "libx264"), ("mpegts", "libx264"), ("avi", "mpeg4")]
)
def video(request: pytest.FixtureRequest) -> bytes:
    container, codec = request.param
    return make_video(container=container, codec=codec, frames=FRAMES, gop=GROUP)


@pytest.fixture
def as_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker of a loader, whatever ran before in this process; four cores."""
    monkeypatch.setattr(av_threads, "_given", [])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: None)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


def opens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which containers are opened from now on."""
    calls: list[str] = []
    original = av.open
    monkeypatch.setattr(
        av,
        "open",
        lambda *args, **kwargs: (calls.append(threading.current_thread().name), original(*args, **kwargs))[1],
    )
    return calls


@settings(max_examples=25, deadline=None)
@given(
    times=st.lists(st.integers(0, FRAMES - 1), min_size=1, max_size=12),
    threads=st.integers(1, 5),
)
def test_frames_are_those_that_were_asked_for_with_any_number_of_threads(
    video: bytes, times: list[int], threads: int
) -> None:
    with VideoReader(video, threads=threads) as reader:
        begin, _ = reader.span_seconds
        frames = reader.frames_at([begin + (number + 0.5) / 30 for number in times])
    assert numbers_of(frames.pixels) == times


def test_a_script_uses_its_cores_and_leaves_no_thread(as_a_script: None, monkeypatch: pytest.MonkeyPatch) -> None:
    video = make_video(frames=FRAMES, gop=GROUP)
    with VideoReader(video, threads=1) as reader:
        alone = reader.uniform_frames(8)
        bytes_alone = reader.media.file.read_bytes
    calls, threads = opens(monkeypatch), threading.active_count()
    with VideoReader(video) as reader:
        beside = reader.uniform_frames(8)
        bytes_beside = reader.media.file.read_bytes
        assert threading.active_count() == threads
    assert len(calls) == 4  # in the caller's thread, where faults of opening belong
    assert set(calls) == {threading.current_thread().name}
    assert np.array_equal(alone.pixels, beside.pixels)
    assert np.array_equal(alone.seconds, beside.seconds)
    assert bytes_alone <= bytes_beside <= bytes_alone + 3 * len(video)
    with ThreadPoolExecutor(1) as pool:  # others use the cores there
        again = pool.submit(lambda: VideoReader(video).uniform_frames(8)).result()
    assert len(calls) == 5
    assert np.array_equal(alone.pixels, again.pixels)


def test_few_frames_are_not_worth_a_decoder(as_a_script: None, monkeypatch: pytest.MonkeyPatch) -> None:
    video = make_video(frames=FRAMES, gop=GROUP)
    calls = opens(monkeypatch)
    with VideoReader(video) as reader:
        assert numbers_of(reader.frames_at([0.01, 0.21, 1.01]).pixels) == [0, 6, 30]
        assert numbers_of(reader.clip(2.0, 4.0, audio=False).frames.pixels) == list(range(60, 120))
    assert len(calls) == 1


def test_clips_of_energons_decoder_are_the_same(as_a_script: None, video: bytes) -> None:
    def clips() -> Any:
        return get_clips_uniform(AVDecoder(io.BytesIO(video)), 0.2, 6, request_video=True)

    beside = clips()
    give_threads(1)
    alone = clips()
    assert beside.video_timestamps == alone.video_timestamps
    assert [numbers_of(clip.permute(0, 2, 3, 1).numpy()) for clip in beside.video_clips] == [
        numbers_of(clip.permute(0, 2, 3, 1).numpy()) for clip in alone.video_clips
    ]


def test_damage_in_any_piece_is_told_as_by_one_thread() -> None:
    video = bytearray(make_video(frames=FRAMES, gop=GROUP))
    box = video.index(b"mdat")
    middle = box + int.from_bytes(video[box - 4 : box], "big") * 6 // 10
    video[middle : middle + 300] = bytes(300)
    told = []
    for threads in (1, 2, 4):
        with VideoReader(bytes(video), threads=threads) as reader, pytest.raises(SampleError) as caught:
            reader.frames_at([(number + 0.5) / 30 for number in range(0, FRAMES, 3)])
        told.append((caught.value.reason, str(caught.value)))
    assert told[0][0] == "corrupt-media"
    assert told == told[:1] * 3


def test_threads_that_a_process_has(as_a_script: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spare_threads() == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert spare_threads() == av_threads.MOST_THREADS == 4
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "32")  # ranks of torchrun on this machine
    assert spare_threads() == 2
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(spare_threads).result() == 1
    give_threads(3)
    assert spare_threads() == 3


def test_a_process_of_multiprocessing_has_one() -> None:
    program = (
        "import multiprocessing, os\n"
        "os.sched_getaffinity = lambda _: set(range(8))\n"
        "from omniloom.data.media.av_threads import spare_threads\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool: print(spare_threads(), pool.apply(spare_threads))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "LOCAL_WORLD_SIZE"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    assert done.stdout.split() == ["4", "1"]


@pytest.mark.parametrize(
    ("work", "count", "expected"),
    [
        ([1, 1, 1, 1], 2, [[0, 2], [1, 3]]),
        ([5, 4, 3, 2, 1], 2, [[0, 3, 4], [1, 2]]),  # 8 and 7
        ([4, 0, 0, 4, 0], 2, [[0, 1, 2], [3, 4]]),  # what comes without work stays with the one before
        ([1, 8, 15, 22, 29, 36, 43, 50], 2, [[0, 3, 4, 7], [1, 2, 5, 6]]),  # 102 and 102
        ([5], 4, [[0]]),
        ([0, 0], 2, [[0, 1]]),
        ([1, 2, 3, 4, 5], 1, [[0, 1, 2, 3, 4]]),
    ],
)
def test_shares_have_about_the_same_work(work: list[float], count: int, expected: list[list[int]]) -> None:
    assert equal_shares(work, count) == expected
