"""Small videos and sounds made by code: each frame shows its own number, each sound is a known function of time."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

TICKS = 1_000
"""Ticks a second of the times given to the makers."""

BITS = 12
_BLOCK = 16


def picture(number: int, *, width: int = 64, height: int = 48) -> np.ndarray:
    """(height, width, 3): the bits of a number as black and white blocks, one row of blocks after the other."""
    pixels = np.full((height, width, 3), 128, np.uint8)
    for bit in range(BITS):
        row, column = divmod(bit, width // _BLOCK)
        at = (slice(row * _BLOCK, (row + 1) * _BLOCK), slice(column * _BLOCK, (column + 1) * _BLOCK))
        pixels[at] = 235 if number >> bit & 1 else 20
    return pixels


def number_of(pixels: np.ndarray) -> int:
    """The number that a picture (height, width, 3) shows; its size may have been changed."""
    height, width = pixels.shape[:2]
    columns = 64 // _BLOCK
    number = 0
    for bit in range(BITS):
        row, column = divmod(bit, columns)
        y, x = int((row + 0.5) * height / 3), int((column + 0.5) * width / columns)
        number |= int(pixels[max(0, y - 1) : y + 1, max(0, x - 1) : x + 1].mean() > 128) << bit
    return number


def numbers_of(frames: np.ndarray) -> list[int]:
    """The numbers of pictures (frames, height, width, 3)."""
    return [number_of(pixels) for pixels in frames]


def make_video(
    *,
    container: str = "mp4",
    codec: str = "libx264",
    frames: int = 60,
    fps: int = 30,
    times: Sequence[int] | None = None,
    gop: int = 12,
    bframes: int = 3,
    size: tuple[int, int] = (64, 48),
    rotation: int = 0,
    tone_hz: float | None = None,
    rate: int = 16_000,
    target: Path | None = None,
    container_options: dict[str, str] | None = None,
    codec_options: dict[str, str] | None = None,
) -> bytes:
    """A video of numbered frames.

    Args:
        times: begin of each frame in ticks of 1 ms; ``None``: frame n at ``n / fps``.
        gop: distance of key frames.
        tone_hz: with sound: a sine of this pitch at half the full scale.
        target: where to write it, for options that need a file on the disk.
    """
    buffer = io.BytesIO()
    with av.open(str(target or "") or buffer, "w", format=container, options=container_options or {}) as output:
        stream: Any = output.add_stream(codec, rate=fps)
        stream.width, stream.height = size
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.gop_size = gop
        if codec in ("libx264", "libx265"):
            more = {"x265-params": "log-level=none"} if codec == "libx265" else {"sc_threshold": "0"}
            stream.options = {"bf": str(bframes), "crf": "18", **more, **(codec_options or {})}
            stream.max_b_frames = bframes
        else:
            stream.bit_rate = 1_000_000
            stream.options = codec_options or {}
        if times is not None:
            stream.time_base = stream.codec_context.time_base = Fraction(1, TICKS)
        if rotation:
            stream.set_display_rotation(rotation)
        sound = add_sound(output, container, rate) if tone_hz is not None else None
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(picture(number, width=size[0], height=size[1]), format="rgb24")
            frame.pts = number if times is None else times[number]
            frame.time_base = Fraction(1, fps) if times is None else Fraction(1, TICKS)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
        if sound is not None and tone_hz is not None:
            duration_seconds = frames / fps if times is None else times[-1] / TICKS
            encode_tone(output, sound, tone_hz, rate, duration_seconds)
    return buffer.getvalue() if target is None else target.read_bytes()


def make_large_video(frames: int) -> bytes:
    """A video of noise, about 130 kB a frame, each a key frame; its index comes last."""
    noise = np.random.default_rng(0).integers(0, 256, (480, 640, 3), np.uint8)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as output:
        stream: Any = output.add_stream("mjpeg", rate=30)
        stream.width, stream.height, stream.pix_fmt = 640, 480, "yuvj420p"
        (packet,) = stream.encode(av.VideoFrame.from_ndarray(noise, format="rgb24"))
        for number in range(frames):
            copy: Any = av.Packet(bytes(packet))
            copy.stream, copy.time_base = stream, packet.time_base
            copy.pts = copy.dts = number * (packet.duration or 1)
            copy.is_keyframe = True
            output.mux(copy)
    return buffer.getvalue()


def tone(tone_hz: float, rate: int, duration_seconds: float) -> np.ndarray:
    """(1, samples) float32: a sine at half the full scale."""
    samples = np.arange(round(duration_seconds * rate))
    return (0.5 * np.sin(2 * np.pi * tone_hz * samples / rate)).astype(np.float32)[None]


SOUND_CODECS = {
    "mp4": "aac",
    "mov": "aac",
    "matroska": "aac",
    "webm": "libopus",
    "avi": "libmp3lame",
    "mp3": "libmp3lame",
    "wav": "pcm_s16le",
    "flac": "flac",
    "ogg": "libvorbis",
    "opus": "libopus",
}


def add_sound(output: Any, container: str, rate: int, layout: str = "mono") -> Any:
    """A stream for sound in the codec that is usual in a container."""
    codec = SOUND_CODECS[container]
    if codec == "libvorbis" and codec not in av.codecs_available:
        codec = "vorbis"
    stream = output.add_stream(codec, rate=48_000 if codec == "libopus" else rate)
    stream.layout = "stereo" if codec == "vorbis" else layout
    if codec == "vorbis":
        stream.options = {"strict": "experimental"}
    return stream


def encode_tone(output: Any, stream: Any, tone_hz: float, rate: int, duration_seconds: float) -> None:
    """Encode a sine."""
    samples = tone(tone_hz, rate, duration_seconds)
    frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout="mono")
    frame.sample_rate = rate
    frame.pts = 0
    context = stream.codec_context
    resampler = av.AudioResampler(format=context.format, layout=context.layout, rate=context.sample_rate)
    fifo = av.AudioFifo()
    for made in (*resampler.resample(frame), *resampler.resample(None)):
        made.pts = None
        fifo.write(made)
    place = 0
    while True:
        piece = fifo.read(context.frame_size or 1_024, partial=True)
        if piece is None:
            break
        piece.pts, piece.time_base = place, Fraction(1, context.sample_rate)
        place += piece.samples
        output.mux(stream.encode(piece))
    output.mux(stream.encode(None))


def make_sound(container: str, *, tone_hz: float = 440.0, rate: int = 16_000, duration_seconds: float = 2.0) -> bytes:
    """A sound file with a sine."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        encode_tone(output, add_sound(output, container, rate), tone_hz, rate, duration_seconds)
    return buffer.getvalue()


def without_first_packets(video: bytes, count: int, *, container: str = "matroska") -> bytes:
    """A copy whose first packets are gone, so that it does not begin with a key frame."""
    buffer = io.BytesIO()
    with av.open(io.BytesIO(video)) as source, av.open(buffer, "w", format=container) as output:
        stream = output.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(source.demux(video=0)):
            if packet.dts is not None and number >= count:
                packet.stream = stream
                output.mux(packet)
    return buffer.getvalue()
