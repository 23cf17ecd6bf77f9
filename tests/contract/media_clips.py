"""Small clips made by code: a video with sound in three containers, and sound alone."""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np

RATE = 8_000


def clip(container: str, *, codec: str = "mpeg4", frames: int = 12, with_sound: bool = True) -> bytes:
    """A video of 64 x 48 pixels at 8 frames a second whose frames differ, with a tone."""
    import av  # noqa: PLC0415 - an extra

    stream = io.BytesIO()
    with av.open(stream, "w", format=container) as output:
        video: Any = output.add_stream(codec, rate=8)
        video.width, video.height, video.pix_fmt, video.gop_size = 64, 48, "yuv420p", 4
        sound: Any = output.add_stream("pcm_s16le" if container != "mp4" else "aac", rate=RATE) if with_sound else None
        if sound is not None:
            sound.layout = "mono"
        for number in range(frames):
            pixels = np.full((48, 64, 3), (20 * number) % 256, np.uint8)
            pixels[:, : 4 * number + 4] = (200, 30, 40)
            output.mux(video.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        output.mux(video.encode())
        if sound is not None:
            tone = (9_000 * np.sin(np.arange(RATE * frames // 8) / 5)).astype(np.int16)
            for start in range(0, len(tone) - 1_023, 1_024):
                block = av.AudioFrame.from_ndarray(tone[None, start : start + 1_024], format="s16", layout="mono")
                block.sample_rate, block.pts = RATE, start
                output.mux(sound.encode(block))
            output.mux(sound.encode())
    return stream.getvalue()


def tone() -> bytes:
    """Half a second of sound as WAV."""
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((9_000 * np.sin(np.arange(RATE // 2) / 5)).astype("<i2").tobytes())
    return stream.getvalue()
