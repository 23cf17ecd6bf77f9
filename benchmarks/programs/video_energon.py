"""Energon: frames at equal distances out of a clip in memory, or the bytes that this reads."""

from collections.abc import Iterator
from pathlib import Path

import torch
from megatron.energon.av import AVDecoder, get_single_frames_uniform
from meter import arguments, report, throughput
from video_file import CountingFile

options = arguments("data", "mode", "frames", "window_seconds")
torch.set_num_threads(1)
clip = Path(options.data).read_bytes()


def clips() -> Iterator[torch.Tensor]:
    while True:
        yield get_single_frames_uniform(AVDecoder(CountingFile(clip), suppress_warnings=True), options.frames)


if options.mode == "bytes":
    file = CountingFile(clip)
    get_single_frames_uniform(AVDecoder(file, suppress_warnings=True), options.frames)
    report(read_bytes=file.read_bytes)
else:
    first = next(clips())
    report(
        checksum=int(first.to(torch.int64).sum()),
        **throughput(clips(), size=lambda _: 1, warm_up_batches=1, window_seconds=options.window_seconds),
    )
