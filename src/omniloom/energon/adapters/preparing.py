"""What Energon's functions that prepare data sets take and give: a wrapper that shows progress, and the parts found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from omniloom.data.index.media_prepare import MediaProgress
from omniloom.data.index.prepare import Progress

ProgressWrapper = Callable[..., Iterable[Any]]
"""Given an iterator and its length, gives the same and shows how far it is."""


class FoundParts(set[str]):
    """The names of the parts that samples have; ``found_types, duplicates = parts`` gives them and an empty list.

    Energon's function gives a set, and its signature and documentation say a pair. So this is the set to whoever asks
    what is in it, how many there are, or makes another set of it; and it goes through as the pair. Duplicate keys are
    none, since they are an error.
    """

    def __iter__(self) -> Iterator[Any]:
        return iter((set(self), []))


def turning(progress_fn: ProgressWrapper | None) -> Callable[[Progress | MediaProgress], None] | None:
    """A function to report progress to, which takes one step for each shard or file through what the wrapper gives."""
    if progress_fn is None:
        return None
    steps: list[Iterator[Any]] = []
    taken = 0

    def report(progress: Progress | MediaProgress) -> None:
        nonlocal taken
        done, total = progress[:2]
        if not steps:
            steps.append(iter(progress_fn(iter(range(total)), total)))
        while taken < done:
            next(steps[0], None)
            taken += 1
        if done == total:
            next(steps[0], None)  # the wrapper sees the end

    return report
