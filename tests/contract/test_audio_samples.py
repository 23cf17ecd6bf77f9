"""Sound out of files: the right samples at any rate, span and number of channels, from every container."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.media.audio import read_audio
from omniloom.data.media.video import VideoReader
from omniloom.errors import ConfigError, SampleError
from tests.contract.made_clips import make_sound, make_video, number_of, tone

SHARED = Path(__file__).resolve().parents[2] / "../shared/data/audio"
LOSSLESS = ("wav", "flac")
CONTAINERS = ("wav", "flac", "mp3", "ogg", "opus", "mp4", "matroska", "webm")


def pitch_hz(samples: np.ndarray, rate: int) -> float:
    """The strongest frequency of one channel."""
    windowed = samples * np.hanning(len(samples))
    return float(np.abs(np.fft.rfft(windowed)).argmax() * rate / len(samples))


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_gives_the_tone_at_any_rate(container: str) -> None:
    sound = make_sound(container, tone_hz=440.0, duration_seconds=2.0)
    stored = read_audio(sound)
    assert stored.samples.dtype == np.float32
    assert stored.duration_seconds == pytest.approx(2.0, abs=0.15)
    for rate in (8_000, 22_050, 48_000):
        audio = read_audio(sound, rate=rate, channels=1)
        assert audio.rate == rate
        assert audio.samples.shape[0] == 1
        assert audio.duration_seconds == pytest.approx(stored.duration_seconds, abs=2 / 8_000)
        middle = audio.samples[0, rate // 2 : rate + rate // 2]
        assert pitch_hz(middle, rate) == pytest.approx(440, abs=1.5)
        # FFmpeg spreads one channel over two with the same power, which is how the Vorbis file was made.
        assert np.abs(middle).max() == pytest.approx(0.5 * math.sqrt(0.5 if container == "ogg" else 1), abs=0.05)


@pytest.mark.parametrize("container", LOSSLESS)
def test_lossless_sound_is_the_sine_that_was_stored(container: str) -> None:
    audio = read_audio(make_sound(container, rate=16_000, duration_seconds=1.5))
    expected = tone(440.0, 16_000, 1.5)
    assert audio.samples.shape == expected.shape
    assert np.abs(audio.samples - expected).max() <= 1 / 32_768


@pytest.mark.parametrize("container", ["wav", "flac", "mp3", "mp4", "ogg"])
@settings(max_examples=15, deadline=None)
@given(start=st.floats(0.1, 1.8), length=st.floats(0.01, 0.6), rate=st.sampled_from([None, 8_000, 44_100]))
def test_a_span_is_what_the_whole_has_there(container: str, start: float, length: float, rate: int | None) -> None:
    sound = _SOUNDS.setdefault(container, make_sound(container))
    whole = read_audio(sound, rate=rate)
    span = read_audio(sound, rate=rate, start_seconds=start, stop_seconds=start + length)
    at = round(start * whole.rate) - round(whole.start_seconds * whole.rate)
    there = whole.samples[:, max(0, at) : max(0, at) + span.samples.shape[1]]
    assert span.start_seconds == pytest.approx(max(start, whole.start_seconds), abs=1 / whole.rate)
    assert there.shape == span.samples.shape
    assert np.abs(there - span.samples).max(initial=0) < 2e-3


_SOUNDS: dict[str, bytes] = {}


def test_channels_are_averaged_and_repeated() -> None:
    if not SHARED.is_dir():
        pytest.skip("shared data are not here")
    stereo = read_audio(SHARED / "recording1.wav")
    mono = read_audio(SHARED / "recording1.wav", channels=1)
    assert stereo.samples.shape[0] == 2
    assert np.allclose(mono.samples[0], stereo.samples.mean(axis=0), atol=1e-5)
    single = read_audio(SHARED / "audio_sample.wav", channels=2)
    assert np.array_equal(single.samples[0], single.samples[1])
    assert np.array_equal(single.samples[:1], read_audio(SHARED / "audio_sample.wav").samples)


def test_filling_puts_the_first_sample_at_the_start() -> None:
    sound = make_sound("wav", rate=16_000, duration_seconds=1.0)
    audio = read_audio(sound, start_seconds=-0.25, stop_seconds=1.25, fill=True)
    assert audio.samples.shape == (1, 24_000)
    assert audio.start_seconds == -0.25
    assert not audio.samples[:, :4_000].any()
    assert not audio.samples[:, 20_000:].any()
    assert np.abs(audio.samples[:, 4_000:20_000] - tone(440.0, 16_000, 1.0)).max() <= 1 / 32_768


def test_a_clip_has_its_frames_and_its_sound_in_step() -> None:
    video = make_video(container="mov", frames=90, tone_hz=500.0)
    with VideoReader(video) as reader:
        clip = reader.clip(1.0, 2.0, rate=8_000, channels=1)
        whole = read_audio(reader.media, rate=8_000, channels=1)
    assert [number_of(pixels) for pixels in clip.frames.pixels] == list(range(30, 60))
    assert clip.audio is not None
    assert clip.audio.samples.shape == (1, 8_000)
    assert clip.audio.start_seconds == 1.0
    at = 8_000 - round(whole.start_seconds * 8_000)
    assert np.abs(clip.audio.samples - whole.samples[:, at : at + 8_000]).max() < 2e-3


def test_a_clip_of_a_silent_video_has_no_sound() -> None:
    with VideoReader(make_video(frames=6)) as reader:
        assert reader.clip(0.0, 0.1).audio is None


def test_what_is_not_there_is_refused() -> None:
    sound = make_sound("wav", duration_seconds=1.0)
    with pytest.raises(SampleError) as caught:
        read_audio(sound, start_seconds=3.0)
    assert caught.value.reason == "out-of-range"
    with pytest.raises(SampleError) as caught:
        read_audio(make_video(frames=4))
    assert caught.value.reason == "no-audio"
    with pytest.raises(ConfigError, match="start < stop"):
        read_audio(sound, start_seconds=1.0, stop_seconds=0.5)
    with pytest.raises(ConfigError, match="at least 1"):
        read_audio(sound, rate=0)
    with pytest.raises(ConfigError, match="start < stop"):
        read_audio(sound, start_seconds=math.inf)
