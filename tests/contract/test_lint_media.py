"""What lint says of video and sound: sound clips pass, broken ones are refused with a reason (C44)."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from omniloom.data.index.lint_media import media_faults
from omniloom.data.media.decoder import SampleDecoder
from omniloom.errors import ConfigError
from tests.contract.corruption import archive, linted, prepared
from tests.contract.media_clips import clip, tone

pytest.importorskip("av", reason="extra 'av'")

MP4, MKV, WAV = clip("mp4"), clip("matroska"), tone()
DECODER = SampleDecoder(late=True)


def test_sound_clips_pass(tmp_path: Path) -> None:
    root = prepared(tmp_path / "d", archive([("a", {"mp4": MP4, "wav": WAV}), ("b", {"mkv": MKV, "avi": clip("avi")})]))
    report = linted(root, DECODER)
    assert (report.errors, report.findings, report.samples) == (0, [], 2)


@pytest.mark.parametrize(
    ("part", "data", "reasons"),
    [
        ("mp4", MP4[: len(MP4) // 2], {"no-index"}),
        ("mp4", b"", {"empty-member"}),
        ("mp4", b"<html>", {"not-media"}),
        ("wav", WAV[:20], {"not-media", "corrupt-media", "no-frames"}),
    ],
)
def test_broken_clips_are_refused(part: str, data: bytes, reasons: set[str], tmp_path: Path) -> None:
    report = linted(prepared(tmp_path / "d", archive([("a", {part: data}), ("b", {"txt": b"fine"})])), DECODER)
    assert report.quarantine == ["s.tar/a"]
    assert {finding.reason for finding in report.findings} <= reasons


def test_a_clip_that_ends_early_is_told_of() -> None:
    assert [reason for reason, _ in media_faults(MKV[: len(MKV) // 2])] == ["ends-early"]
    assert media_faults(MKV) == []


def test_media_parts_become_decoders_that_decode_what_they_are_asked_for() -> None:
    video = SampleDecoder().decode("x.MP4", MP4)
    assert tuple(video.get_video().video_clips[0].shape) == (12, 3, 48, 64)
    assert SampleDecoder(av_decode="raw").decode("mp4", MP4) == MP4
    assert SampleDecoder(guess_content=True).decode("bin", MKV).has_video_stream()
    lazy = SampleDecoder(av_decode="torch", lazy=True).decode("wav", WAV)
    assert not lazy.is_decoded
    assert lazy.get().audio_clips[0].shape == (1, 4_000)
    assert type(SampleDecoder().decode("mp4", MP4).stream) is io.BytesIO
    with pytest.raises(ConfigError, match="av_decode='all' found; expected one of AVDecoder, torch"):
        SampleDecoder(av_decode="all")
