"""Readers of frames by number and by time, against PyAV that decodes all frames one after the other."""

import io

import av
import pytest
from omniloom.energon.av.av_reader import AVProbeIndex, AVReader, AVReaderByFrames, AVReaderByPts
from tests.contract.made_clips import make_video

from omniloom.errors import ConfigError

KINDS = [("mp4", "libx264"), ("matroska", "libx264"), ("avi", "mpeg4"), ("avi", "libx264")]
FRAMES = 45


@pytest.fixture(params=KINDS, ids="-".join)
def video(request):
    container, codec = request.param
    return make_video(container=container, codec=codec, frames=FRAMES)


def shown(frames):
    return [frame.to_ndarray(format="rgb24").tobytes() for frame in frames]


def all_frames(data):
    with av.open(io.BytesIO(data)) as container:
        return list(container.decode(video=0))


@pytest.mark.parametrize("is_probed", [False, True])
def test_frames_by_number(video, is_probed):
    expected = shown(all_frames(video))
    with av.open(io.BytesIO(video)) as container:
        index = AVProbeIndex(container)
        if not is_probed and len(container.streams.video[0].index_entries) == len(index):
            index = None
        reader = AVReaderByFrames(container, 0, index)
        assert isinstance(reader, AVReader)
        assert len(reader.index) == FRAMES
        for first, last in [(4, 4), (24, 31), (10, 12), (12, 12), (0, 3), (44, 60), (40, None)]:
            wanted = expected[first : None if last is None else last + 1]
            assert shown(reader.seek_read(first, last)) == wanted, (first, last)
        assert list(reader.seek_read(FRAMES, FRAMES + 3)) == []
        with pytest.raises(ConfigError, match="a range from 5 to 4 found"):
            list(reader.seek_read(5, 4))


@pytest.mark.parametrize(("container", "codec"), [kind for kind in KINDS if kind != ("avi", "libx264")])
def test_frames_by_time(container, codec):
    data = make_video(container=container, codec=codec, frames=FRAMES)
    frames = all_frames(data)
    times, expected = [frame.pts for frame in frames], shown(frames)
    with av.open(io.BytesIO(data)) as opened:
        reader = AVReaderByPts(opened, index=AVProbeIndex(opened))
        for first, last in [(0, 0), (7, 12), (3, 3), (30, 44), (12, 20)]:
            found = list(reader.seek_read(times[first], times[last]))
            assert [frame.pts for frame in found] == times[first : last + 1]
            assert shown(found) == expected[first : last + 1]
        between = (times[9] + times[10]) // 2  # the frame that is on the screen then
        assert shown(reader.seek_read(between, between)) == expected[9 if between < times[10] else 10 :][:1]
        assert shown(reader.seek_read(times[40], None)) == expected[40:]
        assert list(reader.seek_read(times[-1] * 100, None)) == []


def test_what_is_passed_over_is_counted():
    data = make_video(container="mp4", codec="libx264", frames=FRAMES)
    with av.open(io.BytesIO(data)) as container:
        index = AVProbeIndex(container)
        reader = AVReaderByFrames(container, index=index)
        key = max(number for number in range(20) if sorted(index, key=lambda one: one.timestamp)[number].is_keyframe)
        list(reader.seek_read(20, 22))
        assert reader.skipped == 20 - key
