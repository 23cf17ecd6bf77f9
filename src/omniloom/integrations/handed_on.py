"""A loader's batches for a program that takes some of them before it uses them, and saves its state in between.

Such a program (Lightning, Accelerate) fetches a batch ahead to know which one is the last. The state to save is then
not the loader's own but that after the last batch that was used; and a batch that was fetched for a pass which ended
before it was used comes first in the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from omniloom.data.loader import collective
from omniloom.data.loader.loader import Loader
from omniloom.data.loader.state import RankState
from omniloom.errors import StateError

STATES = "omniloom_states"
"""Under this name the states of all ranks stand in the state of a job."""


class HandedOn:
    """The batches of a loader, and the place after the last one that was used.

    Args:
        loader: the loader.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self._place: RankState = loader.state()
        self._unused: deque[tuple[Any, RankState]] = deque()  # given out, with the place after each

    def batches(self) -> Iterator[Any]:
        """The batches of a pass, or of what is left of it; first those that were given out before and not used."""
        if not self._unused:
            self.loader.begin_pass()
        again, self._unused = self._unused, deque()
        for batch, place in again:
            self._unused.append((batch, place))
            yield batch
        for batch in self.loader:
            self._unused.append((batch, self.loader.state()))
            yield batch

    def use(self, count: int | None = None) -> None:
        """Take note that so many batches more were used; ``None``: all that were given out."""
        for _ in range(len(self._unused) if count is None else min(count, len(self._unused))):
            self._place = self._unused.popleft()[1]

    def job_state(self) -> dict[str, Any]:
        """The places of all ranks, as plain values, on the first rank of the data-parallel group; elsewhere nothing.

        Every rank of the group has to call it.
        """
        config = self.loader.worker_config
        states = collective.gather_states(self._place.to_plain(), config, collective.first_rank(config))
        return {} if states is None else {STATES: states}

    def restore(self, job_state: Mapping[str, Any]) -> None:
        """Go on from what `job_state` gave on the first rank, also on another number of ranks.

        Raises:
            StateError: it is no such state, or one that does not fit this run.
        """
        if STATES not in job_state:
            raise StateError(f"no {STATES!r} among {sorted(map(str, job_state))[:5]}: not the state of a job's loaders")
        self.loader.restore_state_global(job_state[STATES])
        self._place, self._unused = self.loader.state(), deque()
