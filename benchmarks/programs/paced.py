"""A consumer that takes one batch a step, as a training step of fixed length does, and its clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any


def paced(
    batches: Iterator[Any],
    *,
    size: Callable[[Any], int],
    started: float,
    step_seconds: float,
    warm_up_batches: int,
    window_seconds: float,
) -> dict[str, float]:
    """Samples a second of a consumer that needs ``step_seconds`` a batch, and the time to the first batch.

    Args:
        batches: the loader.
        size: samples of a batch, which it checks.
        started: `time.perf_counter` before the data set was opened.
        step_seconds: length of a step; 0: as fast as batches come.
        warm_up_batches: batches before the window.
        window_seconds: length of the window.
    """
    size(next(batches))
    first_batch_seconds = time.perf_counter() - started
    for _ in range(warm_up_batches):
        next(batches)
        time.sleep(step_seconds)
    samples, waited = 0, 0.0
    begin = now = time.perf_counter()
    while now - begin < window_seconds:
        asked = now
        samples += size(next(batches))
        came = time.perf_counter()
        waited += came - asked
        time.sleep(step_seconds)
        now = time.perf_counter()
    seconds = now - begin
    return {
        "samples": samples,
        "samples_per_second": samples / seconds,
        "first_batch_seconds": first_batch_seconds,
        "waited_share": waited / seconds,
    }
