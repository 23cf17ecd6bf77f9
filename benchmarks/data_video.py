"""Makes the clips of the video benchmark: a camera that pans over a textured scene, with the noise of a sensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT, FPS = 1_280, 720, 30
_SCENE = (2_560, 1_600)


def video_clip(data_dir: Path, *, seconds: int, key_frame_distance: int) -> Path:
    """An H.264 clip of 720p with x264's usual settings, made once.

    Args:
        data_dir: where it is kept.
        seconds: its length.
        key_frame_distance: frames from one key frame to the next; 250 is x264's own default.
    """
    path = data_dir / f"clip-{seconds}s-{key_frame_distance}.mp4"
    if path.exists():
        return path
    import av  # noqa: PLC0415 - only where clips are made

    scene, noise = _scene(), np.random.default_rng(1).normal(0, 2.5, (16, HEIGHT, WIDTH, 1)).astype(np.float32)
    partial = path.with_suffix(".partial.mp4")
    with av.open(str(partial), "w") as output:
        stream = output.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.options = {"preset": "medium", "crf": "23"}
        stream.gop_size = key_frame_distance
        for number in range(seconds * FPS):
            phase = number / FPS
            x = int((_SCENE[0] - WIDTH) * (0.5 + 0.5 * np.sin(phase * 0.31)))
            y = int((_SCENE[1] - HEIGHT) * (0.5 + 0.5 * np.sin(phase * 0.23)))
            view = scene[y : y + HEIGHT, x : x + WIDTH] + noise[number % 16]
            frame = av.VideoFrame.from_ndarray(view.clip(0, 255).astype(np.uint8), format="rgb24")
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    partial.replace(path)
    return path


def _scene() -> np.ndarray:
    """A texture with the spectrum of photographs: each octave half as strong as the one before it."""
    random = np.random.default_rng(0)
    scene = np.full((_SCENE[1], _SCENE[0], 3), 128.0, np.float32)
    for octave in range(1, 9):
        size = (5 * 2**octave, 3 * 2**octave)
        field = Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), np.uint8))
        scene += (np.asarray(field.resize(_SCENE, Image.Resampling.BICUBIC), np.float32) - 128) * 1.6**-octave * 1.5
    return scene.clip(0, 255)
