"""A watch over a run's progress: when no step comes, it names the rank that the others wait for, and its stack.

Each rank has a thread that does nothing while steps come. When none has come for long, it writes where its rank stands
into the run's folder; a rank that writes nothing is the one that stopped. No collective is used: they are what hangs.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError
from omniloom.storage.files import replace_file
from omniloom.train.hooks import Hook

logger = logging.getLogger("omniloom")

FOLDER = "hang"
EXIT_HUNG = 4
"""The run was ended by its watch: no step came."""

_COLLECTIVES = f"{os.sep}torch{os.sep}distributed{os.sep}"


@dataclass(frozen=True, kw_only=True)
class HangConfig:
    """When a run counts as hanging.

    Attributes:
        after_seconds: without progress: no batch, no step; 0: it is not watched. Longer than the longest that a step,
            an evaluation or a checkpoint that is not written in the background takes.
        end: also end the run then, with exit code 4, so that a scheduler may start it again.
    """

    after_seconds: float = 0.0
    end: bool = False

    def __post_init__(self) -> None:
        if self.after_seconds < 0:
            raise ConfigError(f"hang.after_seconds: {self.after_seconds:g} found; it cannot be below 0.")
        if self.end and not self.after_seconds:
            raise ConfigError("hang.end: found without hang.after_seconds, which says after how long a run has to end.")


@dataclass(frozen=True)
class Stand:
    """Where a rank stands.

    Attributes:
        rank, host, pid: which process.
        step: that it is at, counted from 1.
        doing: what it began last.
        seconds: since then.
        told_at: seconds since 1970.
        in_collective: whether it waits for other ranks, as its stack shows.
        stack: of its threads, as text; the main one first.
    """

    rank: int
    host: str
    pid: int
    step: int
    doing: str
    seconds: float
    told_at: float
    in_collective: bool
    stack: str


class HangWatch(Hook):
    """Watches this rank, and tells of all of them when it hangs.

    Args:
        config: when.
        folder: of the run, which all ranks see.
        rank, ranks: of this process, and how many there are.
    """

    def __init__(self, config: HangConfig, folder: Path, *, rank: int, ranks: int) -> None:
        self._config, self._folder, self._rank, self._ranks = config, folder / FOLDER, rank, ranks
        self._step, self._doing, self._since = 1, "starts", time.monotonic()
        self._main = threading.get_ident()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begins(self, step: int) -> None:
        """A run that goes on is at another step than the first."""
        self._step = step + 1

    def waiting(self) -> None:
        """A batch is waited for; with the first one the watch begins."""
        self._mark("waits for a batch")
        if self._thread is None and self._config.after_seconds:
            _record_of(self._folder, self._rank).unlink(missing_ok=True)
            self._thread = threading.Thread(target=self._watch, name="omniloom-hang-watch", daemon=True)
            self._thread.start()

    def batch(self, batch: Any) -> None:
        """A batch has come."""
        del batch
        self._mark("computes")

    def after_step(self, step: int) -> Mapping[str, float]:
        """A step was taken."""
        self._step = step + 1
        self._mark("has taken the step before")
        return {}

    def close(self) -> None:
        """End the watch."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _mark(self, doing: str) -> None:
        self._doing, self._since = doing, time.monotonic()

    def _watch(self) -> None:
        limit, told = self._config.after_seconds, -1.0
        record = _record_of(self._folder, self._rank)
        while not self._ended.wait(min(10.0, limit / 4)):
            since = self._since
            if told >= 0 and since != told:  # it went on: a rank that stops later has told nothing
                told = -1.0
                record.unlink(missing_ok=True)
            if time.monotonic() - since < limit or since == told:
                continue
            told = since
            replace_file(record, json.dumps(asdict(self._stand()), indent=1))
            # Others began to wait a little later than this one, or earlier.
            if self._ended.wait(max(1.0, limit / 2)) or self._since != since:
                continue
            stands = read_stands(self._folder, newer_than=time.time() - 2 * limit - 60)
            if stands and stands[0].rank == self._rank:
                logger.error("%s", verdict(stands, ranks=self._ranks, folder=self._folder))
            if self._config.end:
                self._ended.wait(max(1.0, limit / 2))  # until each rank has read what the others wrote
                logging.shutdown()
                os._exit(EXIT_HUNG)

    def _stand(self) -> Stand:
        stacks = _stacks(self._main)
        return Stand(
            rank=self._rank,
            host=socket.gethostname(),
            pid=os.getpid(),
            step=self._step,
            doing=self._doing,
            seconds=round(time.monotonic() - self._since, 1),
            told_at=time.time(),
            in_collective=any(_COLLECTIVES in stack for stack in stacks),
            stack="\n".join(stacks),
        )


def read_stands(folder: Path, *, newer_than: float) -> list[Stand]:
    """What ranks wrote, in their order; older records are of another time."""
    found = []
    for path in sorted(folder.glob("rank-*.json")):
        try:
            stand = Stand(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue  # another rank is about to write it
        if stand.told_at >= newer_than:
            found.append(stand)
    return sorted(found, key=lambda stand: stand.rank)


def verdict(stands: Iterable[Stand], *, ranks: int, folder: Path) -> str:
    """Which rank stopped, where, and what the others do, in words.

    Args:
        stands: of the ranks that still tell of themselves; at least one.
        ranks: how many there are.
        folder: where the records lie.
    """
    told = list(stands)
    silent = sorted(set(range(ranks)) - {stand.rank for stand in told})
    seconds = max(stand.seconds for stand in told)
    lines = [f"no progress for {seconds:.0f} s at step {min(stand.step for stand in told)}."]
    if silent:
        lines.append(
            f"{_ranks(silent)} of {ranks} told nothing: stopped, dead, without the run's folder, or held in code that "
            "does not let other threads run. Look at that process."
        )
    behind = [stand for stand in told if stand.step == min(each.step for each in told)]
    stopped = [stand for stand in behind if not stand.in_collective]
    if not silent and not stopped:
        lines.append("All ranks wait in collectives: the network, or ranks that do not make the same calls.")
    for stand in stopped:
        lines.append(
            f"Rank {stand.rank} of {ranks} ({stand.host}, pid {stand.pid}) has stopped: at step {stand.step} it "
            f"{stand.doing}. Its stack:\n{stand.stack}"
        )
    others = [stand.rank for stand in told if stand not in stopped]
    if others and (silent or stopped):
        lines.append(f"{_ranks(others)} wait for it." if len(others) > 1 else f"{_ranks(others)} waits for it.")
    return " ".join([*lines, f"All stacks: {folder}"])


def _record_of(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank:05d}.json"


def _ranks(numbers: list[int]) -> str:
    return f"Rank {numbers[0]}" if len(numbers) == 1 else f"Ranks {', '.join(map(str, numbers))}"


def _stacks(main: int) -> list[str]:
    """The stacks of all threads but this one, the main one first."""
    own = threading.get_ident()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = {number: frame for number, frame in sys._current_frames().items() if number != own}
    order = sorted(frames, key=lambda number: number != main)
    return [f"thread {names.get(n, n)}:\n" + "".join(traceback.format_stack(frames[n])) for n in order]
