"""The floor under any loader of this data: one os.pread a sample, of the span in the index, and nothing else."""

import itertools
import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

from meter import arguments, report, throughput

options = arguments("data", "batch_size", "shuffle", "window_seconds")


def spans() -> list[tuple[int, int, int]]:
    """(file descriptor, start, length) of every sample, shuffled within blocks of the shuffle buffer's size."""
    rows = []
    for tar in sorted(Path(options.data).glob("*.tar")):
        packed = tar.with_suffix(".tar.idx").read_bytes()
        offsets = struct.unpack(f"<{len(packed) // 8}Q", packed)
        descriptor = os.open(tar, os.O_RDONLY)
        rows += [(descriptor, start, stop - start) for start, stop in itertools.pairwise(offsets)]
    draw = random.Random(0)
    shuffled = []
    for first in range(0, len(rows), options.shuffle):
        block = rows[first : first + options.shuffle]
        draw.shuffle(block)
        shuffled += block
    return shuffled


def batches(rows: list[tuple[int, int, int]]) -> Iterator[list[bytes]]:
    size = options.batch_size
    while True:
        for first in range(0, len(rows), size):
            yield [os.pread(descriptor, length, start) for descriptor, start, length in rows[first : first + size]]


report(**throughput(batches(spans()), size=len, warm_up_batches=10, window_seconds=options.window_seconds))
