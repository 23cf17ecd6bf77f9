"""Logs of every batch, in the lines and files that Energon writes to ``worker_debug_path``, for ``analyze-debug``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omniloom.data.pipeline import running
from omniloom.data.sample import SourceInfo
from omniloom.energon.adapters.formatting import default_get_batch_keys
from omniloom.errors import StateError

if TYPE_CHECKING:
    from omniloom.energon.adapters.workers import WorkerConfig

_BEGUN: set[Path] = set()


def write(config: WorkerConfig, line: Mapping[str, Any], *, worker: int | None = None) -> None:
    """Write one line to the log of a worker, or, with ``None``, of the process that iterates.

    Args:
        config: says where the logs lie; without a path they go to the standard output.
        line: what is written, as one JSON object.
        worker: number of the worker within its rank.
    """
    text = f"{json.dumps(line)}\n"
    if config.worker_debug_path is None:
        sys.stdout.write(text)
        return
    number = config.number * (config.num_workers + 1) + (0 if worker is None else worker + 1)
    path = Path(config.worker_debug_path.format(worker_id=number, pid=os.getpid()))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def begin(config: WorkerConfig) -> None:
    """Empty the logs of this rank that an earlier run left: once a process."""
    if config.worker_debug_path is None:
        return
    for worker in range(config.num_workers + 1):
        number = config.number * (config.num_workers + 1) + worker
        path = Path(config.worker_debug_path.format(worker_id=number, pid=os.getpid()))
        if path not in _BEGUN:
            path.unlink(missing_ok=True)
            _BEGUN.add(path)


def running_worker(config: WorkerConfig) -> int | None:
    """Number of the worker that user code is running in; ``None`` in the process that iterates."""
    if not config.num_workers:
        return None
    try:
        return running.current_batch_index() % config.run_lanes // config.ranks % config.num_workers
    except StateError:
        return None


def _sources(found: Any) -> Iterator[SourceInfo]:
    """The sources in a tuple of them, or in a list of such tuples."""
    if isinstance(found, SourceInfo):
        yield found
    for one in found if isinstance(found, list | tuple) else ():
        yield from _sources(one)


class LoaderLog:
    """The log of one loader.

    The process that iterates writes the lines of its workers, too: what a worker has made ahead and nobody has asked
    for is in no log.

    Args:
        config: rank, world, workers, and where the logs lie.
        loader_id: number of the loader in this process.
        training: whether its data set is one for training.
    """

    def __init__(self, config: WorkerConfig, loader_id: int, *, training: bool) -> None:
        self._config = config
        self._id = loader_id
        self._mode = "train" if training else "val"
        self._passes = -1
        self._in_pass = self._given = 0
        self._steps: dict[int, int] = {}
        self._rows: dict[int, int] = {}
        begin(config)

    def made(self, config: Mapping[str, Any]) -> None:
        """The loader has been made."""
        self._say("SavableLoader.__init__", config=config)

    def begun(self) -> None:
        """A ``for`` loop begins."""
        self._passes += 1
        self._in_pass = 0
        self._say("SavableDataLoader.iter", iter_id=self._passes)

    def yielded(self, batch: Any, *, lane: int, step: int) -> None:
        """A batch is given out.

        Args:
            batch: the batch.
            lane: the lane that it came from.
            step: its number in the epoch.
        """
        config = self._config
        worker = lane // config.ranks % max(1, config.num_workers)
        keys = default_get_batch_keys(batch)
        told = {} if keys is None else {"keys": keys}
        number = self._steps.get(worker, 0)
        self._write_rows(batch, worker)
        if config.should_log(1 if self._mode == "train" else 2):
            line = {"t": "yield_batch", "r": config.number, "w": config.global_worker_id(worker), "m": self._mode}
            write(config, {**line, "idx": number, **told}, worker=worker if config.num_workers else None)
        self._say(
            "SavableDataLoader.yield",
            iter_id=self._passes,
            worker_id=worker,
            worker_idx=number,
            idx=step,
            iter_idx=self._in_pass,
            global_idx=self._given,
            **told,
        )
        self._steps[worker] = number + 1
        self._in_pass, self._given = self._in_pass + 1, self._given + 1

    def stopped(self) -> None:
        """The ``for`` loop has come to the end of the pass."""
        self._say("SavableDataLoader.StopIteration", iter_id=self._passes)

    def _write_rows(self, batch: Any, worker: int) -> None:
        """A line for each row that the batch was made of, where the batch tells its sources."""
        config = self._config
        for source in _sources(getattr(batch, "__sources__", None)):
            count = self._rows.get(worker, 0)
            self._rows[worker] = count + 1
            name = source.file_names[0].partition(".")[0] if source.file_names else str(source.index)
            line = {
                "t": "WebdatasetSampleLoaderDataset._slices_iter.yield",
                "r": config.number,
                "w": worker,
                "index": source.index,
                "key": f"{source.shard_name}/{name}",
                "shard": source.shard_name,
                "count": count,
                "epoch": 0,
                "epoch_count": count,
            }
            write(config, line, worker=worker if config.num_workers else None)

    def _say(self, kind: str, **more: Any) -> None:
        write(self._config, {"t": kind, "r": self._config.number, "w": None, "id": self._id, **more})
