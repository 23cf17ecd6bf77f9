"""Video: 8 frames at equal distances out of a clip of 720p, and the bytes that are read for them."""

from __future__ import annotations

import statistics
from typing import Any

from data_video import video_clip
from harness import Context, alternate, row, show_row, values

NAME = "video"
FRAMES = 8
KEY_FRAME_DISTANCES = {250: "key frames every 250 frames (x264's default)", 60: "key frames every 2 s"}


def run(context: Context) -> dict[str, Any]:
    """Measure clips a second of the same frames, of frames within a second, and bytes a clip."""
    seconds = 10 if context.quick else 60
    rows, equal, bytes_read = [], {}, {}
    for distance, title in KEY_FRAME_DISTANCES.items():
        clip = video_clip(context.data_dir, seconds=seconds, key_frame_distance=distance)
        settings = {"data": clip, "frames": FRAMES, "window_seconds": context.window_seconds}
        programs = [
            context.program(side, f"video_{side}", mode="frames", **settings) for side in ("omniloom", "energon")
        ]
        readings = alternate(programs, rounds=context.pairs)
        rows.append(row(title, values(readings, "samples_per_second"), bars={"energon": 2.0}))
        show_row(rows[-1], "clips/s")
        equal[title] = len({one["checksum"] for ones in readings.values() for one in ones}) == 1
        beside = [context.program("omniloom", "video_omniloom", mode="one_thread", **settings), programs[1]]
        figures = values(alternate(beside, rounds=context.pairs), "samples_per_second")
        rows.append(row(f"{title}; one thread", figures, bars={"energon": 2.0}))
        show_row(rows[-1], "clips/s")
        near = context.program("omniloom", "video_omniloom", mode="near", **settings)
        figures = values(alternate([near], rounds=context.pairs), "samples_per_second")
        rows.append(row(f"{title}; one thread, any frame within 1 s will do", figures))
        show_row(rows[-1], "clips/s")
        counted = [context.program(side, f"video_{side}", mode="bytes", **settings) for side in ("omniloom", "energon")]
        found = values(alternate(counted, rounds=1), "read_bytes")
        bytes_read[title] = {
            "clip_bytes": clip.stat().st_size,
            **{side: statistics.median(figures) for side, figures in found.items()},
        }
    return {
        "title": "Frames of a video",
        "unit": "clips/s",
        "better": "higher",
        "settings": f"{FRAMES} frames at equal distances, first to last, out of a clip of {seconds} s, 1280 x 720, 30 "
        f"frames a second, H.264 (x264, medium, crf 23), from memory, by the same call with the same arguments; ours "
        "takes the cores of a process that has no workers, Energon's one core, so a row tells of ours on one, too; "
        f"window {context.window_seconds:g} s",
        "rows": rows,
        "facts": {"same_pixels": equal, "bytes_read": bytes_read},
    }
