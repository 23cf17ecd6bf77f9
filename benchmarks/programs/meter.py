"""The clock that every measured program shares, so that all sides are timed in the same way."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any


def arguments(*names: str) -> argparse.Namespace:
    """Command-line options of a program: ``data`` and other texts as they come, all other names as integers."""
    parser = argparse.ArgumentParser()
    for name in names:
        kind = str if name in {"data", "mode", "out"} else float if name.endswith("seconds") else int
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, required=True)
    return parser.parse_args()


def throughput(
    batches: Iterator[Any], *, size: Callable[[Any], int], warm_up_batches: int, window_seconds: float
) -> dict[str, float]:
    """Pull batches for a time window after a warm-up of a fixed number of batches.

    Buffers that a loader fills before its first batch are full when the window begins.
    """
    for _ in range(warm_up_batches):
        next(batches)
    samples = 0
    started = time.perf_counter()
    deadline = started + window_seconds
    now = started
    while now < deadline:
        samples += size(next(batches))
        now = time.perf_counter()
    return {"samples": samples, "seconds": now - started, "samples_per_second": samples / (now - started)}


def report(**figures: object) -> None:
    """Hand the figures to the runner."""
    print("RESULT " + json.dumps(figures), flush=True)


def check_image_batch(images: Any, *, batch_size: int, height: int, width: int) -> int:
    """Every side must deliver the same kind of batch: one uint8 tensor of (batch, 3, height, width)."""
    found = (str(images.dtype), tuple(images.shape))
    expected = ("torch.uint8", (batch_size, 3, height, width))
    if found != expected:
        raise SystemExit(f"The batch is {found}, expected {expected}.")
    return batch_size
