"""Videos and sounds as they come (C44): the stated answer or a typed error, each within ten seconds."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path

import av
import pytest

from omniloom.data.media.audio import read_audio
from omniloom.data.media.av_decoder import AVDecoder
from omniloom.data.media.av_open import GuardedFile, Media
from omniloom.data.media.video import VideoReader
from omniloom.errors import SampleError
from tests.contract.made_clips import make_sound, make_video, numbers_of, without_first_packets


@pytest.fixture(autouse=True)
def _in_bounded_time() -> Iterator[None]:
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < 10


def reason_of(source: object) -> str:
    with pytest.raises(SampleError) as caught, VideoReader(source) as reader:
        reader.uniform_frames(4)
    return caught.value.reason


def test_mkv_without_a_frame_count() -> None:
    video = make_video(container="matroska", frames=30, container_options={"live": "1"})
    with VideoReader(video) as reader:
        assert reader.span_seconds[1] == pytest.approx(1.0, abs=0.05)
        assert numbers_of(reader.uniform_frames(3).pixels) == [0, 15, 29]
        assert numbers_of(reader.frames_at([0.7, 0.1]).pixels) == [21, 3]
    facts = AVDecoder(io.BytesIO(video)).get_metadata()
    assert facts.video_num_frames == 30
    assert facts.video_duration == pytest.approx(1.0, abs=0.05)


def test_no_audio_is_none_and_audio_only_is_no_video() -> None:
    silent = AVDecoder(io.BytesIO(make_video(frames=5)))
    assert not silent.has_audio_stream()
    assert silent.get_audio_duration() is None
    sound = make_sound("mp3", duration_seconds=0.5)
    assert reason_of(sound) == "no-video"
    assert not AVDecoder(io.BytesIO(sound)).has_video_stream()


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
def test_an_mp4_cut_before_its_index(kept: float) -> None:
    video = make_video(frames=30)
    assert video.index(b"moov") > len(video) / 4
    cut = video[: int(video.index(b"moov") * kept)]
    with pytest.raises(SampleError, match="no moov box") as caught:
        Media(cut)
    assert caught.value.reason == "no-index"


def test_an_mp4_cut_after_its_index_gives_what_is_there_and_refuses_the_rest(tmp_path: Path) -> None:
    video = make_video(frames=90, target=tmp_path / "a.mp4", container_options={"movflags": "faststart"})
    cut = video[: video.index(b"mdat") + (len(video) - video.index(b"mdat")) // 2]
    with VideoReader(cut) as reader:
        assert numbers_of(reader.frames_at([0.2]).pixels) == [6]
        with pytest.raises(SampleError) as caught:
            reader.uniform_frames(4)
    assert caught.value.reason in ("truncated-media", "corrupt-media")


def test_a_cut_mkv_gives_what_is_there() -> None:
    video = make_video(container="matroska", frames=90, gop=6)
    cut = video[: len(video) // 2]
    with VideoReader(cut) as reader:
        assert numbers_of(reader.frames_at([0.2]).pixels) == [6]
        with pytest.raises(SampleError):
            reader.frames_at([2.9])


@pytest.mark.parametrize(
    ("container", "reasons"),
    [
        ("wav", {"truncated-media"}),
        ("mp3", {"truncated-media"}),
        ("flac", {"truncated-media", "corrupt-media"}),
        ("mp4", {"no-index"}),
    ],
)
def test_a_cut_sound_is_refused(container: str, reasons: set[str]) -> None:
    sound = make_sound(container, duration_seconds=3.0)
    with pytest.raises(SampleError) as caught:
        read_audio(sound[: len(sound) // 2])
    assert caught.value.reason in reasons


def test_the_first_frame_is_no_key_frame() -> None:
    video = without_first_packets(make_video(container="matroska", frames=40, gop=10, bframes=0), 3)
    with VideoReader(video) as reader:
        frames = reader.clip(reader.span_seconds[0], audio=False).frames
        assert numbers_of(frames.pixels) == list(range(10, 40))
        assert numbers_of(reader.frames_at([0.0]).pixels) == [10]


def test_no_key_frame_at_all() -> None:
    video = without_first_packets(make_video(container="matroska", frames=20, gop=100, bframes=0), 1)
    with pytest.raises(SampleError) as caught, VideoReader(video) as reader:
        reader.frames_at([0.3])
    assert caught.value.reason == "no-key-frame"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty-member"),
        (b"hello, this is a text", "not-media"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "not-media"),
        (b"<html><body>404</body></html>", "not-media"),
        (b"\0" * 4_096, "not-media"),
    ],
)
def test_what_is_no_video(data: bytes, reason: str) -> None:
    assert reason_of(data) == reason


def test_frames_of_too_many_pixels_are_refused_by_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omniloom.data.media.av_track.MAX_PIXELS", 64 * 48 - 1)
    with pytest.raises(SampleError, match="64 x 48") as caught:
        VideoReader(make_video(frames=3))
    assert caught.value.reason == "too-large"


def test_a_playlist_fetches_nothing() -> None:
    playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"
    assert reason_of(playlist) == "not-media"
    assert reason_of(b"ffconcat version 1.0\nfile /etc/passwd\n") == "not-media"


def test_damage_between_frames_is_refused_and_may_be_concealed() -> None:
    video = bytearray(make_video(frames=60, gop=30, size=(320, 240)))
    middle = video.index(b"mdat") + (video.index(b"moov") - video.index(b"mdat")) // 2
    for at in range(middle, middle + 400):
        video[at] ^= 0x5A
    with pytest.raises(SampleError) as caught, VideoReader(bytes(video)) as reader:
        reader.clip(0.0, audio=False)
    assert caught.value.reason in ("corrupt-media", "truncated-media")


def test_a_source_that_goes_in_circles_is_given_up() -> None:
    file = GuardedFile(io.BytesIO(b"x"), patience_seconds=0.0)
    time.sleep(0.01)
    with pytest.raises(SampleError) as caught:
        file.read(1)
    assert caught.value.reason == "too-slow"

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            time.sleep(0.05)
            return super().read(size)

    with pytest.raises(SampleError) as caught:
        Media(Slow(make_video(frames=300, size=(640, 480), gop=1)), patience_seconds=0.04)
    assert caught.value.reason == "too-slow"


def test_errors_of_the_source_are_not_taken_for_damage() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "the disk is gone")

    with pytest.raises((OSError, SampleError), match=r"disk is gone|damaged|no container"):
        Media(Broken(b"123"))


def test_pyav_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(ValueError, match=r"omniloom\[av\]"):
        AVDecoder(io.BytesIO(b""))
    assert av.__name__ == "av"
