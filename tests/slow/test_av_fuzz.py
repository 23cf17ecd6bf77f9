"""Damaged videos and sounds: whatever is flipped, cut, swapped or put in, the answer is frames or a typed error, soon.

Each attempt runs in a process of its own batch, so that a crash of a decoder is seen as such.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import time
from collections import Counter

import pytest

from omniloom.data.index.media_extract import media_of_file
from omniloom.data.index.media_filter import MediaFilterConfig, MediaFilterStrategy
from omniloom.data.media.audio import read_audio
from omniloom.data.media.av_decoder import AVDecoder
from omniloom.data.media.av_uniform import get_single_frames_uniform
from omniloom.data.media.video import VideoReader
from omniloom.errors import OmniloomError
from omniloom.storage.range_file import RangeFile
from tests.contract.made_clips import make_sound, make_video

pytestmark = pytest.mark.slow

ATTEMPTS = int(os.environ.get("OMNILOOM_FUZZ_ATTEMPTS", "150"))
LONGEST_SECONDS = 10.0
KINDS = {
    "mp4": lambda: make_video(frames=30, tone_hz=440.0, container="mov"),
    "mkv": lambda: make_video(container="matroska", frames=30),
    "hevc": lambda: make_video(container="matroska", codec="libx265", frames=20),
    "webm": lambda: make_video(container="webm", codec="libvpx-vp9", frames=20),
    "avi": lambda: make_video(container="avi", codec="mpeg4", frames=30),
    "mp3": lambda: make_sound("mp3"),
    "wav": lambda: make_sound("wav"),
    "flac": lambda: make_sound("flac"),
    "ogg": lambda: make_sound("ogg"),
    "opus": lambda: make_sound("opus"),
}
SOUNDS = ("mp3", "wav", "flac", "ogg", "opus")


def damaged(data: bytes, source: random.Random) -> bytes:
    """A copy with some bytes flipped, a piece cut off or out, two pieces swapped, or bytes put in."""
    made = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2, 5))):
        kind = source.choice(("flip", "flip", "header", "cut", "hole", "swap", "insert", "zeros"))
        at = source.randrange(max(1, len(made)))
        length = source.choice((1, 4, 64, 1_000))
        if kind == "flip":
            for _ in range(source.choice((1, 10, 200))):
                place = source.randrange(max(1, len(made)))
                made[place : place + 1] = bytes([source.randrange(256)])
        elif kind == "header":
            place = source.randrange(min(400, max(1, len(made))))
            made[place : place + 1] = bytes([source.randrange(256)])
        elif kind == "cut":
            del made[at:]
        elif kind == "hole":
            del made[at : at + length]
        elif kind == "swap":
            other = source.randrange(max(1, len(made)))
            made[at : at + length], made[other : other + length] = made[other : other + length], made[at : at + length]
        elif kind == "insert":
            made[at:at] = source.randbytes(length)
        else:
            made[at : at + length] = bytes(len(made[at : at + length]))
    return bytes(made)


def attempt(data: bytes, *, use: int) -> str:
    """Use a file in every way; tells how one of them ended."""
    ends = []
    for function in (_frames, _decoder, _sound, _metadata):
        try:
            function(data)
            ends.append("fine")
        except OmniloomError as error:
            ends.append(getattr(error, "reason", type(error).__name__))
    return ends[use]


def _frames(data: bytes) -> None:
    with VideoReader(data) as reader:
        frames = reader.uniform_frames(3)
        if frames.pixels.shape[0] != 3 or frames.pixels.ndim != 4:
            raise AssertionError(f"frames of shape {frames.pixels.shape}")
        reader.clip(0.1, 0.4)


def _decoder(data: bytes) -> None:
    decoder = AVDecoder(io.BytesIO(data))
    get_single_frames_uniform(decoder, 2)
    decoder.get_video_clips([(2, 4)], "frames")


def _sound(data: bytes) -> None:
    if not read_audio(data, rate=8_000, channels=1).samples.ndim == 2:
        raise AssertionError("sound has two dimensions")


def _metadata(data: bytes) -> None:
    file = RangeFile(lambda start, stop: data[start:stop], size_bytes=len(data))
    media_of_file(file, "a.mp4", MediaFilterConfig(MediaFilterStrategy.EXTENSION))


def _batch(kind: str, seed: int, pipe: object) -> None:
    source = random.Random(f"{kind}-{seed}")
    data = KINDS[kind]()
    counts: Counter[str] = Counter()
    longest = 0.0
    for _ in range(ATTEMPTS):
        begin = time.monotonic()
        counts[attempt(damaged(data, source), use=2 if kind in SOUNDS else 0)] += 1
        longest = max(longest, time.monotonic() - begin)
    pipe.send((counts, longest))  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", list(KINDS))
def test_damage_ends_in_frames_or_in_a_typed_error(kind: str) -> None:
    seed = int(os.environ.get("OMNILOOM_FUZZ_SEED", "0"))
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_batch, args=(kind, seed, sender))
    process.start()
    sender.close()
    try:
        assert receiver.poll(LONGEST_SECONDS * ATTEMPTS), "hangs"
        counts, longest = receiver.recv()
    except EOFError:
        process.join()
        pytest.fail(f"{kind}: the process ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()
    assert sum(counts.values()) == ATTEMPTS
    assert longest < LONGEST_SECONDS
    print(kind, dict(counts), f"longest {longest:.2f} s")
