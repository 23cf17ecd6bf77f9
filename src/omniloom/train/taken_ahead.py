"""Batches that a thread of the trainer takes from its loader while the step before them goes on.

Worker processes make batches; to be handed one, to ask for another and to note the place costs the trainer half a
millisecond, more while the caches are full of something else. A step need not wait for that.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omniloom.data.loader.loader import Loader
from omniloom.data.loader.state import RankState

logger = logging.getLogger("omniloom")

MOST_TAKEN = 16
"""Batches that are taken ahead at most: each holds shared memory of its worker."""

_LEAST_TAKEN = 2
_LOOK_SECONDS = 0.002

_PATIENCE_SECONDS = 10.0


@dataclass(slots=True)
class _Taken:
    """What the thread has got: a batch and the place after it, the end of a pass, or an error."""

    batch: Any = None
    place: RankState | None = None
    error: BaseException | None = None


def taken_ahead(loader: Loader, *, micro_batches: int) -> Loader | TakenAhead:
    """The loader, whose batches of the next step are taken meanwhile; without workers as it is, for it makes them here.

    Args:
        loader: of this rank.
        micro_batches: of a step.
    """
    return (
        TakenAhead(loader, batches=min(max(micro_batches, _LEAST_TAKEN), MOST_TAKEN)) if loader.num_workers else loader
    )


class TakenAhead:
    """A loader whose next batches are taken by a thread. Their order, their errors and saved places are the loader's.

    A saved place is that after the last batch that was given out, whatever has been taken since.

    Args:
        loader: of this rank, whose batches worker processes make. Nobody else may use it meanwhile.
        batches: taken ahead at most.
    """

    def __init__(self, loader: Loader, *, batches: int) -> None:
        self._loader, self._most = loader, batches
        self._given: RankState | None = None
        self._thread: _Taker | None = None

    def __iter__(self) -> Iterator[Any]:
        return _Pass(self)

    def next_batch(self) -> Any:
        """The next batch of the pass. Raises StopIteration at its end, and what the loader raises."""
        if self._thread is None:
            self._thread = _Taker(self._loader, most=self._most)
            self._thread.start()
        taken = self._thread.next()
        if taken.error is not None:
            self._thread = None  # it has ended
            raise taken.error
        if taken.place is None:
            raise StopIteration
        self._given = taken.place
        return taken.batch

    def save_state_rank(self) -> dict[str, Any]:
        """The loader's state after the last batch that was given out."""
        return self._loader.save_state_rank() if self._given is None else self._given.to_plain()

    def restore_state_rank(self, states: Any) -> None:
        """Put the loader in a saved place; what was taken ahead is forgotten."""
        self._stop()
        self._given = None
        self._loader.restore_state_rank(states)

    def close(self) -> None:
        """End the thread, and the loader's workers, for good."""
        if self._stop():
            self._loader.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def _stop(self) -> bool:
        """End the thread; whether it has ended."""
        thread, self._thread = self._thread, None
        if thread is None or thread.stop():
            return True
        logger.warning("a batch has not come for %g seconds; the workers end with this process", _PATIENCE_SECONDS)
        return False


class _Taker(threading.Thread):
    """Takes batches for as long as there is room.

    It looks for room now and then, and is not told of it: whoever is told wakes up in the trainer's place where all
    cores are busy, and the step waits for its turn (with two workers on two cores: 5 to 7 % of the time, against 0.6).
    """

    def __init__(self, loader: Loader, *, most: int) -> None:
        super().__init__(name="omniloom-batches", daemon=True)
        self._loader, self._most = loader, most
        self._count, self._given = 0, 0  # the first is written by the thread alone, the second by its user alone
        self._taken: queue.SimpleQueue[_Taken] = queue.SimpleQueue()
        self._stopping = False

    def run(self) -> None:
        """Go through the loader's passes until something goes wrong."""
        try:
            while not self._stopping:
                self._one_pass()
        except BaseException as error:  # whatever it is, it is raised where the batch is wanted
            self._taken.put(_Taken(error=error))

    def next(self) -> _Taken:
        """What was taken first."""
        taken = self._taken.get()
        self._given += 1
        return taken

    def stop(self) -> bool:
        """Take nothing more; whether the thread has ended."""
        self._stopping = True
        self.join(_PATIENCE_SECONDS)
        return not self.is_alive()

    def _one_pass(self) -> None:
        batches = iter(self._loader)
        while True:
            while self._count - self._given >= self._most and not self._stopping:
                time.sleep(_LOOK_SECONDS)
            if self._stopping:
                return
            self._count += 1
            batch = next(batches, _END)
            if batch is _END:
                self._taken.put(_Taken())
                return
            self._taken.put(_Taken(batch, self._loader.state()))
            del batch  # its memory goes back to the worker as soon as the step lets go of it


class _Pass(Iterator[Any]):
    def __init__(self, loader: TakenAhead) -> None:
        self._loader = loader

    def __next__(self) -> Any:
        return self._loader.next_batch()


_END = object()
