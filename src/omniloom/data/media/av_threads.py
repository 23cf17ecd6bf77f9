"""How many pieces of a video are decoded at once where nobody says.

Pieces between key frames do not need each other, so they are decoded side by side, each by a decoder of its own without
threads: that takes nearly the n-th part of the time, where FFmpeg's own threads wait for one another's frames.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Sequence

MOST_THREADS = 4
"""More are used only where they are asked for: each holds frames and a decoder."""

_given: list[int] = []


def give_threads(count: int) -> None:
    """From now on a video of this process takes so many: a worker of a loader works on several samples at once."""
    _given[:] = [count]


def spare_threads() -> int:
    """Threads for a video: the cores of this process, but one where others use them.

    Others do in threads beside the main one, and in processes that multiprocessing started: whoever made these made
    as many as there are cores.
    """
    if threading.current_thread() is not threading.main_thread():
        return 1
    if _given:
        return _given[0]
    if multiprocessing.parent_process() is not None:
        return 1
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # as torchrun sets it
    return max(1, min(MOST_THREADS, len(os.sched_getaffinity(0)) // ranks))


def equal_shares(work: Sequence[float], count: int) -> list[list[int]]:
    """Deal tasks to at most `count` that do about the same: the largest first, each to who has least so far.

    Args:
        work: of each task, at least 0; a task without work stays with the one before it.
        count: how many there are, at least 1.

    Returns:
        Places of tasks in ascending order, for each that has any.
    """
    groups: list[list[int]] = []
    for place, amount in enumerate(work):
        if amount or not groups:
            groups.append([])
        groups[-1].append(place)
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for group in sorted(groups, key=lambda places: work[places[0]], reverse=True):
        least = loads.index(min(loads))
        shares[least] += group
        loads[least] += work[group[0]]
    return [sorted(share) for share in shares if share]
