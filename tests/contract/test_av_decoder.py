"""`AVDecoder` under Energon's names: inclusive ranges, units, metadata, pickling, decoding of parts."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from omniloom.data.media.av_decoder import AVDecoder
from omniloom.data.media.av_index import AVProbeIndex
from omniloom.data.media.av_parts import AVWebdatasetDecoder, decode_av
from omniloom.data.media.av_uniform import get_clips_uniform, get_single_frames_uniform
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.media.metadata import AVMetadata
from omniloom.errors import ConfigError, SampleError
from tests.contract.made_clips import make_sound, make_video, numbers_of, tone

VIDEO_KINDS = [
    ("mp4", "libx264"),
    ("matroska", "libx264"),
    ("avi", "mpeg4"),
    ("avi", "libx264"),
    ("webm", "libvpx-vp9"),
]


def shown(clips: list[torch.Tensor]) -> list[list[int]]:
    return [numbers_of(clip.permute(0, 2, 3, 1).numpy()) for clip in clips]


@pytest.fixture(scope="module")
def video() -> bytes:
    return make_video(frames=60, tone_hz=440.0, container="mov")


@pytest.mark.parametrize(("container", "codec"), VIDEO_KINDS)
def test_ranges_include_their_ends_and_what_begins_after_the_end_is_left_out(container: str, codec: str) -> None:
    decoder = AVDecoder(io.BytesIO(make_video(container=container, codec=codec, frames=45)))
    clips, times = decoder.get_video_clips([(3, 5), (0, 0), (44, 50), (100, 110)], "frames")
    assert shown(clips) == [[3, 4, 5], [0], [44]]
    assert [start for start, _ in times] == pytest.approx([0.1, 0.0, 44 / 30], abs=0.002)
    assert times[0][1] == pytest.approx(0.2, abs=0.002)
    seconds = [(0.5 / 30, 2.5 / 30), (0.51, 0.51), (1.4, float("inf")), (9.0, 10.0)]
    clips, _ = decoder.get_video_clips(seconds)
    assert shown(clips) == [[0, 1, 2], [15], [42, 43, 44]]
    assert clips[0].dtype == torch.uint8
    assert clips[0].shape == (3, 3, 48, 64)


def test_overlapping_ranges_share_frames(video: bytes) -> None:
    clips, _ = AVDecoder(io.BytesIO(video)).get_video_clips([(10, 14), (12, 12), (0, 11), (12, 13)], "frames")
    assert shown(clips) == [list(range(10, 15)), [12], list(range(12)), [12, 13]]


def test_units_and_ranges_that_make_no_sense(video: bytes) -> None:
    decoder = AVDecoder(io.BytesIO(video))
    with pytest.raises(ConfigError, match="'frames' or 'seconds'"):
        decoder.get_video_clips([(0, 1)], "minutes")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="before its first"):
        decoder.get_video_clips([(2, 1)])
    with pytest.raises(ConfigError, match="'samples' or 'seconds'"):
        decoder.get_audio_clips([(0, 1)], "minutes")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="mode 'rb'"):
        AVDecoder(io.StringIO("x"))  # type: ignore[arg-type]


def test_uniform_frames_and_clips(video: bytes) -> None:
    decoder = AVDecoder(io.BytesIO(video))
    frames, times = get_single_frames_uniform(decoder, 4, return_timestamps=True)
    assert shown([frames]) == [[0, 20, 39, 59]]
    assert times == pytest.approx([0, 20 / 30, 39 / 30, 59 / 30])
    small = get_single_frames_uniform(decoder, 2, video_out_frame_size=(32, 24))
    assert small.shape == (2, 3, 24, 32)
    data = get_clips_uniform(decoder, 0.5, 3, request_video=True, request_audio=True)
    assert data.video_clips is not None
    assert data.audio_clips is not None
    assert [len(clip) for clip in data.video_clips] == [16, 16, 15]  # the range ends at the end of the video
    assert [clip.shape for clip in data.audio_clips] == [(1, 8_000)] * 3
    with pytest.raises(ConfigError, match="request_video"):
        get_clips_uniform(decoder, 1.0, 2)
    with pytest.raises(SampleError, match="no audio") as caught:
        get_clips_uniform(AVDecoder(io.BytesIO(make_video(frames=3))), 0.1, 2, request_audio=True)
    assert caught.value.reason == "no-audio"


def test_audio_keeps_the_number_type_of_its_codec() -> None:
    decoder = AVDecoder(io.BytesIO(make_sound("wav", rate=16_000, duration_seconds=2.0)))
    expected = np.round(tone(440.0, 16_000, 2.0) * 32_768)
    (clip,), times = decoder.get_audio_clips([(0.25, 0.75)])
    assert clip.dtype == torch.int16
    assert clip.shape == (1, 8_000)
    assert np.abs(clip.numpy() - expected[:, 4_000:12_000]).max() <= 1
    assert times == [(0.25, 0.75)]
    (clip,), _ = decoder.get_audio_clips([(100, 200)], "samples")
    assert np.abs(clip.numpy() - expected[:, 100:200]).max() <= 1
    assert decoder.get_audio_clips([(5.0, 6.0)]) == ([], [])
    whole = decoder.get_audio()
    assert whole.audio_clips is not None
    assert whole.audio_clips[0].shape == (1, 32_000)
    assert whole.audio_timestamps == [(0, 2.0)]


@pytest.mark.parametrize("duration", [0.0123, 0.4567, 0.99547])
def test_audio_clips_at_equal_distances_have_one_length(duration: float) -> None:
    decoder = AVDecoder(io.BytesIO(make_sound("wav", rate=44_100, duration_seconds=1.7)))
    data = get_clips_uniform(decoder, duration, 10, request_audio=True)
    assert data.audio_clips is not None
    assert {clip.shape[1] for clip in data.audio_clips} == {round(duration * 44_100)}


def test_metadata_of_video_and_sound(video: bytes) -> None:
    decoder = AVDecoder(io.BytesIO(video))
    facts = decoder.get_metadata(get_audio_num_samples=True)
    assert (facts.video_num_frames, facts.video_fps, facts.video_width, facts.video_height) == (60, 30.0, 64, 48)
    assert facts.video_duration == pytest.approx(2.0)
    assert facts.audio_duration == pytest.approx(2.0, abs=0.1)
    assert (facts.audio_channels, facts.audio_sample_rate) == (1, 16_000)
    assert facts.audio_num_samples == pytest.approx(32_000, abs=1_100)
    assert decoder.get_video_fps() == 30.0
    assert decoder.get_audio_samples_per_second() == 16_000
    assert decoder.get_video_duration(get_frame_count=True) == (pytest.approx(2.0), 60)
    assert decoder.get_metadata(get_video=False, get_audio=False) == AVMetadata()


def test_a_decoder_is_opened_once_and_leaves_its_stream_usable(video: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = av.open
    monkeypatch.setattr(av, "open", lambda *args, **kwargs: (calls.append(1), original(*args, **kwargs))[1])
    stream = io.BytesIO(video)
    decoder = AVDecoder(stream)
    decoder.get_metadata()
    stream.seek(17)
    get_single_frames_uniform(decoder, 3)
    stream.seek(0)
    decoder.get_audio_clips([(0.0, 0.5)])
    assert len(calls) == 1
    decoder.close()
    assert decoder.has_video_stream()
    assert len(calls) == 2


def test_a_decoder_is_pickled_with_its_stream(video: bytes) -> None:
    decoder = AVDecoder(io.BytesIO(video))
    decoder.get_metadata()
    copy = pickle.loads(pickle.dumps(decoder))
    assert shown([get_single_frames_uniform(copy, 3)]) == shown([get_single_frames_uniform(decoder, 3)])
    assert "BytesIO" in repr(copy)


def test_everything_at_once(video: bytes) -> None:
    decoder = AVDecoder(io.BytesIO(video))
    frames = decoder.get_frames()
    assert frames is not None
    assert frames.video_clips is not None
    assert shown(frames.video_clips) == [list(range(60))]
    assert frames.audio_clips == []
    both = decoder.get_frames(video_decode_audio=True)
    assert both is not None
    assert both.audio_clips
    sound = AVDecoder(io.BytesIO(make_sound("ogg"))).get_frames()
    assert sound is not None
    assert sound.audio_clips
    assert sound.video_clips == []
    assert AVDecoder(io.BytesIO(b"no media at all")).get_frames() is None


def test_parts_are_decoded_as_the_options_say(video: bytes) -> None:
    assert isinstance(decode_av(video), AVDecoder)
    assert decode_av(video, av_decode="raw") is video
    assert decode_av(video, av_decode="torch").video_clips[0].shape == (60, 3, 48, 64)
    assert isinstance(decode_av(video, av_decode="pyav"), av.container.InputContainer)
    with pytest.raises(ConfigError, match="'AVDecoder', 'torch'"):
        decode_av(video, av_decode="numpy")
    for data, reason in ((b"", "empty-member"), (b"text", "not-media")):
        with pytest.raises(SampleError) as caught:
            decode_av(data, av_decode="pyav")
        assert caught.value.reason == reason
    handler = AVWebdatasetDecoder(video_decode_audio=False)
    assert isinstance(handler("clip.MP4", video), AVDecoder)
    assert isinstance(handler("mp4", video), AVDecoder)
    assert handler("jpg", video) is None
    assert isinstance(SampleDecoder().decode("0001.mov", video), AVDecoder)
    assert SampleDecoder(av_decode="raw").decode("0001.mov", video) == video


def test_a_probed_index_finds_key_frames(video: bytes) -> None:
    with av.open(io.BytesIO(video)) as container:
        index = AVProbeIndex(container, 0)
        assert len(index) == 60
        keys = [place for place, entry in enumerate(index) if entry.is_keyframe]
        assert keys == [0, 12, 24, 36, 48]
        tick = index[12].timestamp // 12
        assert index.search_timestamp(13 * tick) == 12
        assert index.search_timestamp(13 * tick, backward=False) == 24
        assert index.search_timestamp(24 * tick, backward=False) == 24
        assert index.search_timestamp(59 * tick, backward=False) == -1
        assert index.search_timestamp(-5) == 0
        assert index[index.search_timestamp(14 * tick + 1, any_frame=True)].timestamp == 14 * tick
        assert index.times() == [number * tick for number in range(60)]


def test_real_clips_are_decoded_like_a_plain_decode() -> None:
    folder = Path(__file__).resolve().parents[2] / "../shared/data/video"
    if not folder.is_dir():
        pytest.skip("shared data are not here")
    for path in (folder / "h265_video.mp4", folder / "av1_video.mkv", folder / "nasa_13013.mp4"):
        data = path.read_bytes()
        with av.open(io.BytesIO(data)) as container:
            every = [(frame.pts, frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
            base = container.streams.video[0].time_base
        frames, times = get_single_frames_uniform(AVDecoder(io.BytesIO(data)), 6, return_timestamps=True)
        by_time = {float(pts * base): pixels for pts, pixels in every}
        for pixels, seconds in zip(frames.permute(0, 2, 3, 1).numpy(), times, strict=True):
            assert np.array_equal(pixels, by_time[seconds])
