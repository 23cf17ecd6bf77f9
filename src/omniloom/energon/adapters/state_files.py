"""Files of states by rank, as tools for Energon go through them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from omniloom.data.loader.state import LaneState, read_states
from omniloom.errors import StateError
from omniloom.storage.urls import name_of

_NUMBER = re.compile(r"(\d+)")

Paths = str | os.PathLike[str]


def natural_sort_key(name: str) -> list[int | str]:
    """What to sort names by, so that ``rank2`` comes before ``rank10``."""
    return [int(piece) if piece.isdigit() else piece.lower() for piece in _NUMBER.split(name)]


def detect_and_replicate_pattern(file_list: Sequence[str]) -> Callable[[int], str]:
    """The name of the n-th file of a series, as one finds it from names such as ``state_rank000.pt``.

    Args:
        file_list: names that differ in one number, counted from 0.

    Returns:
        a function of n. The one number of a single name is counted; of several, the last one.

    Raises:
        StateError: the names are no such series.
    """
    names = sorted(file_list, key=natural_sort_key)
    pieces = [_NUMBER.split(name) for name in names]
    same_form = len({len(one) for one in pieces}) == 1
    columns = list(zip(*pieces, strict=True)) if same_form else []
    places = {place for place, column in enumerate(columns) if len(set(column)) > 1}
    if not places and len(columns) > 2:
        places = {len(columns) - 2}
    if not same_form or len(places) != 1 or not all(one[min(places)].isdigit() for one in pieces):
        told = ", ".join(names) or "no file"
        raise StateError(f"{told}: names expected that differ in one number, such as rank000.pt")
    place = min(places)
    if [int(one[place]) for one in pieces] != list(range(len(pieces))):
        raise StateError(f"{', '.join(names)}: numbers from 0 to {len(names) - 1} expected")
    first = pieces[0]
    width = len(first[place]) if first[place].startswith("0") else 1
    before, after = "".join(first[:place]), "".join(first[place + 1 :])
    return lambda number: f"{before}{number:0{width}d}{after}"


class RankStateIterable:
    """The places of the lanes of a run, in the order in which their batches come.

    Args:
        state_files: the states of all ranks, or one file with all of them.

    Attributes:
        num_states: files.
    """

    def __init__(self, state_files: Sequence[Paths]) -> None:
        self.num_states = len(state_files)
        self.file_pattern_func = detect_and_replicate_pattern([name_of(os.fspath(one)) for one in state_files])
        self._state = read_states([os.fspath(one) for one in state_files], where="state_files")

    def get_num_ranks(self) -> int:
        """Ranks that saved the states."""
        return self._state.world_size

    def __len__(self) -> int:
        return self._state.lanes

    def __iter__(self) -> Iterator[LaneState]:
        return (self._state.lane_states[lane] for lane in sorted(self._state.lane_states))
