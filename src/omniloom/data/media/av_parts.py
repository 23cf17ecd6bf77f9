"""Parts of a sample that are video or sound, decoded as the options of a sample decoder say."""

from __future__ import annotations

import io
from typing import Any

from omniloom.data.media.av_decoder import AVDecode, AVDecoder
from omniloom.data.media.av_kinds import AV_DECODES, AV_EXTENSIONS
from omniloom.data.media.av_open import load_av
from omniloom.errors import ConfigError, SampleError


def check_av_decode(av_decode: str) -> None:
    """See that an option is known.

    Raises:
        ConfigError: it is not.
    """
    if av_decode not in AV_DECODES:
        raise ConfigError(f"av_decode={av_decode!r}; expected one of {', '.join(map(repr, AV_DECODES))}")


def decode_av(data: bytes, *, av_decode: str = "AVDecoder", video_decode_audio: bool = False) -> Any:
    """A part that is video or sound.

    Args:
        data: content of the file.
        av_decode: ``AVDecoder``: a decoder of the bytes, which decodes what it is asked for; ``torch``: an `AVData`
            with all frames or all sound; ``pyav``: an open container of PyAV; ``raw``: the bytes.
        video_decode_audio: with ``torch``: the sound of a video too.

    Raises:
        SampleError: ``empty-member``, and with ``torch`` and ``pyav`` what opening and decoding raise.
        ConfigError: an unknown option, or PyAV is not installed.
    """
    check_av_decode(av_decode)
    if av_decode == "raw":
        return data
    if not data:
        raise SampleError("the media have no bytes", reason="empty-member")
    decoder = AVDecoder(io.BytesIO(data))
    if av_decode == "AVDecoder":
        return decoder
    if av_decode == "torch":
        return decoder.get_frames(video_decode_audio=video_decode_audio)
    return _open_plain(data)


class AVWebdatasetDecoder:
    """A handler of parts by extension, under Energon's names.

    Args:
        video_decode_audio: with ``torch``: the sound of a video too.
        av_decode: see `decode_av`.
    """

    def __init__(self, video_decode_audio: bool, av_decode: AVDecode = "AVDecoder") -> None:
        check_av_decode(av_decode)
        self.video_decode_audio = video_decode_audio
        self.av_decode = av_decode

    def read_av_data(self, data: bytes) -> AVDecoder:
        """A decoder of bytes."""
        return AVDecoder(io.BytesIO(data))

    def __call__(self, key: str, data: bytes) -> Any:
        """The value of a part by its extension or name; ``None`` for what is neither video nor sound."""
        if key.rpartition(".")[2].lower() not in AV_EXTENSIONS:
            return None
        return decode_av(data, av_decode=self.av_decode, video_decode_audio=self.video_decode_audio)


def _open_plain(data: bytes) -> Any:
    """An open container of PyAV without threads of its own."""
    av = load_av()
    try:
        container = av.open(io.BytesIO(data), "r")
    except (av.error.FFmpegError, ValueError) as error:
        raise SampleError(
            f"{len(data):,} bytes are no media that can be opened: {error}", reason="not-media"
        ) from error
    for stream in container.streams:
        if stream.codec_context is not None:
            stream.codec_context.thread_type = "NONE"
            stream.codec_context.thread_count = 1
    return container
