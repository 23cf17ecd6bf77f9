"""omniloom: frames at equal distances out of a clip in memory, or the bytes that this reads."""

from collections.abc import Iterator
from pathlib import Path

import torch
from meter import arguments, report, throughput
from video_file import CountingFile

from omniloom import AVDecoder, VideoReader, get_single_frames_uniform

options = arguments("data", "mode", "frames", "window_seconds")
torch.set_num_threads(1)
clip = Path(options.data).read_bytes()


def frames_of(file: CountingFile) -> torch.Tensor:
    if options.mode in ("near", "one_thread"):
        with VideoReader(file, threads=1) as reader:
            tolerance_seconds = 1.0 if options.mode == "near" else 0.0
            return reader.uniform_frames(options.frames, tolerance_seconds=tolerance_seconds).tensor()
    return get_single_frames_uniform(AVDecoder(file), options.frames)


def clips() -> Iterator[torch.Tensor]:
    while True:
        yield frames_of(CountingFile(clip))


if options.mode == "bytes":
    file = CountingFile(clip)
    frames_of(file)
    report(read_bytes=file.read_bytes)
else:
    first = next(clips())
    report(
        checksum=int(first.to(torch.int64).sum()),
        **throughput(clips(), size=lambda _: 1, warm_up_batches=1, window_seconds=options.window_seconds),
    )
