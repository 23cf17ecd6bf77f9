"""`Sharder`: how Energon deals the samples of a data set to workers, for code that has to know it.

omniloom deals each epoch anew to lanes, see `omniloom.data.plan.lane`; nothing here is used for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise, zip_longest
from typing import Any

from omniloom.energon.adapters.dataset_types import ShardInfo


class Sharder:
    """Shares of workers, contiguous in the order of the samples; the longer ones lie far apart."""

    @classmethod
    def split_samples_to_workers(
        cls, start_samples: int, end_samples: int, worker_config: Any, *, rotation_offset: int = 0
    ) -> list[int]:
        """Where the shares of this rank's workers begin, and where the last one ends.

        Args:
            start_samples: the first sample.
            end_samples: the one after the last.
            worker_config: rank, world and workers.
            rotation_offset: which workers get one more, where they do not all get the same: so many further on.
        """
        workers = max(1, worker_config.num_workers)
        everywhere = workers * worker_config.world_size
        share, more = divmod(end_samples - start_samples, everywhere)
        counts = [0] * everywhere
        for turn, worker in enumerate(_far_apart(list(range(everywhere)))):
            counts[worker] = share + ((turn - rotation_offset) % everywhere < more)
        borders = list(accumulate(counts, initial=start_samples))
        return borders[worker_config.rank * workers : (worker_config.rank + 1) * workers + 1]

    @classmethod
    def shard_workers(
        cls,
        shards: Sequence[ShardInfo],
        worker_config: Any,
        *,
        max_samples_per_sequence: int | None,
        subset: Any = None,
        rotation_offset: int = 0,
    ) -> tuple[tuple[int, ...], ...]:
        """Borders of the pieces of each worker's share: at its ends, between shards, and within long pieces.

        Args:
            shards: the shards in their order.
            worker_config: rank, world and workers.
            max_samples_per_sequence: samples of a piece, at about which longer ones are cut.
            subset: a `DatasetSubset`.
            rotation_offset: as for `split_samples_to_workers`.
        """
        inner = list(accumulate(shard.count for shard in shards))
        total = inner[-1] if inner else 0
        start, end = _range(total, subset)
        borders = cls.split_samples_to_workers(start, end, worker_config, rotation_offset=rotation_offset)
        return _pieces(borders, inner, max_samples_per_sequence)

    @classmethod
    def slice_workers(
        cls,
        total_samples: int,
        worker_config: Any,
        *,
        max_samples_per_sequence: int | None,
        subset: Any = None,
        rotation_offset: int = 0,
    ) -> tuple[tuple[int, ...], ...]:
        """The same for samples that lie in no shards, such as those of a join."""
        start, end = _range(total_samples, subset)
        borders = cls.split_samples_to_workers(start, end, worker_config, rotation_offset=rotation_offset)
        return _pieces(borders, [], max_samples_per_sequence)


def _range(total: int, subset: Any) -> tuple[int, int]:
    start, end = (0, total) if subset is None else subset.compute_subset(total)
    return start, end


def _pieces(borders: Sequence[int], inner: Sequence[int], longest: int | None) -> tuple[tuple[int, ...], ...]:
    """Borders of the pieces of each share."""
    return tuple(
        _cut([first, *(one for one in inner if first < one < last), last], longest) for first, last in pairwise(borders)
    )


def _cut(borders: Sequence[int], longest: int | None) -> tuple[int, ...]:
    """The borders with more of them in pieces that are longer than one and a half times the longest."""
    found = [borders[0]]
    for first, last in pairwise(borders):
        length = last - first
        parts = round(length / longest) if longest and length > 1.5 * longest else 1
        found += [first + int(part * length / parts) for part in range(1, parts)]
        if length:
            found.append(last)
    return tuple(found)


def _far_apart(workers: list[int]) -> list[int]:
    """Workers in an order whose neighbours lie far apart: the halves of a list, so ordered, by turns."""
    if len(workers) <= 2:
        return workers
    middle = len(workers) // 2
    halves = zip_longest(_far_apart(workers[:middle]), _far_apart(workers[middle:]))
    return [worker for pair in halves for worker in pair if worker is not None]
