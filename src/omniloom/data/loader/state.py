"""The state of a rank's loader: plain, small, checked when it is loaded, dealt again to other rank counts.

A rank's state holds the number of batches and the place of each of its lanes, and what the lanes are
cut from: leaves with their rows, the shuffle, the seed. JSON can hold it. Cursors are written as
lists in the order of the leaves, whose names stand once in the head; where weights change, as texts of such lists.
"""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omniloom.data.loader.number_text import numbers_of_text, text_of_numbers
from omniloom.data.plan.lane import check_ranks_divide
from omniloom.errors import StateError

logger = logging.getLogger("omniloom")

FORMAT = 1
CURSOR_FIELDS = ("cursors", "base")
"""Numbers by leaf in the state of any lane; ``base`` where leaves end."""

MOVING_FIELDS = ("counts", "owed", "told_draws", "told_tokens", "since")
"""The same in the state of a lane whose weights change."""

_BY_LEAF = CURSOR_FIELDS + MOVING_FIELDS
_MAY_CHANGE = ("weights", "packer")


@dataclass(slots=True)
class LaneState:
    """Where a lane is.

    Attributes:
        batches: batches that have come out of it in this lap.
        stream: state of its stream after them; ``None`` at its start.
        ended: it has no more batches in this lap.
    """

    batches: int = 0
    stream: dict[str, Any] | None = None
    ended: bool = False


@dataclass(frozen=True)
class Mix:
    """What the lanes of a run are cut from; a state fits only a run with the same.

    Attributes:
        leaves: (stable name, rows, weight) of each leaf.
        settings: everything else that the order hangs on, as plain values.
    """

    leaves: tuple[tuple[str, int, float], ...]
    settings: Mapping[str, Any]


@dataclass(slots=True)
class RankState:
    """The state of one rank's loader, or, put together, of all ranks.

    Attributes:
        lanes: lanes of the run.
        world_size: data-parallel ranks that shared them.
        lap: how often a data set that ends was gone through.
        steps: batches that each rank has had in this lap.
        in_pass: a batch has come since the last pass ended.
        lane_states: state of each lane that is held here, by lane index.
        mix: what the lanes are cut from.
    """

    lanes: int
    world_size: int
    lap: int
    steps: int
    in_pass: bool
    lane_states: dict[int, LaneState]
    mix: Mix
    rank: int = 0

    def to_plain(self) -> dict[str, Any]:
        """The state as plain dicts, lists, strings and numbers."""
        names = [leaf[0] for leaf in self.mix.leaves]
        return {
            "omniloom_loader_state": FORMAT,
            "lanes": self.lanes,
            "world_size": self.world_size,
            "rank": self.rank,
            "lap": self.lap,
            "steps": self.steps,
            "in_pass": self.in_pass,
            "leaves": [list(leaf) for leaf in self.mix.leaves],
            "settings": copy.deepcopy(dict(self.mix.settings)),
            "lane_states": {str(i): pack_lane(lane, names) for i, lane in self.lane_states.items()},
        }

    @classmethod
    def from_plain(cls, plain: Any, *, where: str) -> RankState:
        """Read a state. Raises StateError when it is none, or of another format."""
        if not isinstance(plain, Mapping) or "omniloom_loader_state" not in plain:
            found = f"a {type(plain).__name__}" + (
                f" with {sorted(map(str, plain))[:5]}" if isinstance(plain, dict) else ""
            )
            raise StateError(f"{where}: {found} found, the state of an omniloom loader expected")
        if plain["omniloom_loader_state"] != FORMAT:
            raise StateError(
                f"{where}: state format {plain['omniloom_loader_state']} found, {FORMAT} expected. "
                "Load it with the version of omniloom that wrote it."
            )
        try:
            leaves = tuple((str(name), int(rows), float(weight)) for name, rows, weight in plain["leaves"])
            names = [leaf[0] for leaf in leaves]
            lanes = _count(plain, "lanes", least=1)
            return cls(
                lanes=lanes,
                world_size=_count(plain, "world_size", least=1),
                rank=_count(plain, "rank"),
                lap=_count(plain, "lap"),
                steps=_count(plain, "steps"),
                in_pass=bool(plain["in_pass"]),
                lane_states={_lane_of(i, lanes): unpack_lane(one, names) for i, one in plain["lane_states"].items()},
                mix=Mix(leaves, dict(plain["settings"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise damaged(where, error) from error


def damaged(where: str, error: Exception) -> StateError:
    """What is raised of something that says it is a state, and cannot be read as one."""
    told = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return StateError(f"{where}: the state is damaged: {told}.\n  Go on from another one that was saved.")


def _count(plain: Mapping[str, Any], name: str, *, least: int = 0) -> int:
    value = plain[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name!r} is {value!r:.40}, a whole number from {least} on expected")
    return value


def _lane_of(text: Any, lanes: int) -> int:
    """The number of a lane of its name in a state."""
    index = int(text)
    if not 0 <= index < lanes:
        raise ValueError(f"it has a lane {index} of {lanes}")
    return index


def pack_lane(lane: LaneState, names: Sequence[str]) -> dict[str, Any]:
    """A lane's state as plain values, numbers by leaf in the order of the leaves, as lists or as texts of lists."""
    stream = lane.stream
    if stream is not None:
        lists = {f: [stream[f].get(name, 0) for name in names] for f in _BY_LEAF if f in stream}
        moves = any(field in stream for field in MOVING_FIELDS)  # many lists: as texts they take half the room
        stream = {**stream, **({f: text_of_numbers(numbers) for f, numbers in lists.items()} if moves else lists)}
    return {"batches": lane.batches, "stream": stream} | ({"ended": True} if lane.ended else {})


def unpack_lane(plain: Mapping[str, Any], names: Sequence[str]) -> LaneState:
    """A lane's state of its plain form."""
    stream = plain["stream"]
    if stream is not None:
        lists = {
            f: numbers_of_text(stream[f]) if isinstance(stream[f], str) else stream[f] for f in _BY_LEAF if f in stream
        }
        by_name = {f: {n: rows for n, rows in zip(names, found, strict=True) if rows} for f, found in lists.items()}
        if not all(isinstance(number, int) for found in by_name.values() for number in found.values()):
            raise ValueError(f"the place of a lane is {lists!r:.80}, whole numbers expected")
        stream = {**stream, **by_name}
    return LaneState(_count(plain, "batches"), stream, bool(plain.get("ended", False)))


def check_fits(state: RankState, mix: Mix, *, where: str) -> bool:
    """Whether a state is of exactly this mix.

    Returns:
        True when it is; False when weights were changed or leaves added, which is allowed and logged.

    Raises:
        StateError: rows, seed, shuffle or the like differ, so that the order would be another one.
    """
    saved, ours = {leaf[0]: leaf for leaf in state.mix.leaves}, {leaf[0]: leaf for leaf in mix.leaves}
    for name, rows, _ in state.mix.leaves:
        if name in ours and ours[name][1] != rows and rows and ours[name][1]:  # 0: was left out, and not counted
            raise StateError(
                f"{where}: data set {name!r} had {rows} rows when the state was saved and has {ours[name][1]} now.\n"
                "  Go on with the data set as it was, or start a new run."
            )
    drawn = {name for name in saved if name in ours and saved[name][1] and ours[name][1]}
    for name in state.mix.settings:
        value, found = (_of_leaves(one.settings.get(name), drawn) for one in (state.mix, mix))
        if found != value and name not in _MAY_CHANGE:
            raise StateError(
                f"{where}: saved with {name}={value!r}, but this run has {name}={found!r}.\n"
                "  The order of samples hangs on it: use the saved value, or start a new run."
            )
    gone = [name for name in saved if name not in ours]
    if gone:
        raise StateError(
            f"{where}: the state knows data sets that this run does not have: {', '.join(gone)}.\n"
            "  Keep them in the mix with weight 0 to leave them out from now on."
        )
    rules = [name for name in _MAY_CHANGE if state.mix.settings.get(name) != mix.settings.get(name)]
    if state.mix.leaves == mix.leaves and not rules:
        return True
    changes = [f"weight of {n!r} {saved[n][2]:g} -> {ours[n][2]:g}" for n in saved if saved[n][2] != ours[n][2]]
    changes += [f"{name!r} added" for name in ours if name not in saved]
    changes += [f"the {name}: {state.mix.settings.get(name)!r} -> {mix.settings.get(name)!r}" for name in rules]
    logger.warning("%s: the mix has changed since the state was saved: %s", where, ", ".join(changes) or "its order")
    return False


def _of_leaves(setting: Any, names: Collection[str]) -> Any:
    """A setting; of one by leaf, what it says of these leaves."""
    return {name: one for name, one in setting.items() if name in names} if isinstance(setting, Mapping) else setting


def put_together(states: Sequence[RankState], *, where: str) -> RankState:
    """All ranks' states as one. Raises StateError when they are not those of one moment, or some are missing."""
    first = states[0]
    for state in states:
        if (state.lanes, state.world_size, state.lap, state.steps, state.mix) != (
            first.lanes, first.world_size, first.lap, first.steps, first.mix,
        ):  # fmt: skip
            raise StateError(
                f"{where}: states of different moments or runs: rank {first.rank} of {first.world_size} after "
                f"{first.steps} steps with {first.lanes} lanes, rank {state.rank} of {state.world_size} after "
                f"{state.steps} steps with {state.lanes} lanes."
            )
    lane_states: dict[int, LaneState] = {}
    for state in states:
        twice = lane_states.keys() & state.lane_states.keys()
        if twice:
            raise StateError(f"{where}: two states hold lane {min(twice)}; the same rank's state was given twice")
        lane_states |= state.lane_states
    missing = sorted(set(range(first.lanes)) - set(lane_states))
    if missing:
        ranks = sorted({index % first.world_size for index in missing})
        raise StateError(
            f"{where}: {len(missing)} of {first.lanes} lanes are missing. "
            f"Give the states of all {first.world_size} ranks; absent: {', '.join(map(str, ranks))}."
        )
    return replace(first, rank=0, lane_states=lane_states)


def deal(state: RankState, *, rank: int, world_size: int, where: str) -> RankState:
    """The part of a state that a rank needs. Raises StateError when the lanes cannot be dealt so."""
    check_ranks_divide(state.lanes, world_size, where=where)
    wanted = range(rank, state.lanes, world_size)
    missing = [index for index in wanted if index not in state.lane_states]
    if missing:
        raise StateError(
            f"{where}: saved by rank {state.rank} of {state.world_size}, but this is rank {rank} of {world_size}; "
            f"{len(missing)} of its {len(wanted)} lanes are not in this state.\n"
            "  Give the states of all ranks, as a list or as the folder they are in: restore_state_rank(FOLDER) "
            "deals them again."
        )
    # The steps of the whole job are kept, in micro-batches: they count from the same border on any ranks.
    steps = state.steps * state.world_size // world_size
    mine = {i: state.lane_states[i] for i in wanted}
    return replace(state, world_size=world_size, steps=steps, lane_states=mine, rank=rank)


def write_state(path: str | Path, plain: Mapping[str, Any]) -> None:
    """Write a state as JSON: complete or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
    try:
        with partial.open("w", encoding="utf-8") as file:
            json.dump(plain, file, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_states(source: object, *, where: str) -> RankState:
    """The state that a plain dict, a file, a folder of files or a list of any of these holds.

    Raises:
        StateError: something is missing, or is not a state.
    """
    if isinstance(source, Mapping):
        return RankState.from_plain(source, where=where)
    if isinstance(source, str | Path):
        path = Path(source)
        if path.is_dir():
            files = sorted(p for p in path.iterdir() if p.suffix in (".json", ".pt", ".pth"))
            if not files:
                raise StateError(f"{path}: no state in this folder (*.json, *.pt)")
            return read_states(files, where=str(path))
        return RankState.from_plain(_read_file(path), where=str(path))
    if isinstance(source, Sequence):
        states = [read_states(one, where=where) for one in source]
        if not states:
            raise StateError(f"{where}: an empty list of states")
        return states[0] if len(states) == 1 else put_together(states, where=where)
    raise StateError(f"{where}: a {type(source).__name__} found; a state, a path or a list of these expected")


def _read_file(path: Path) -> Any:
    if not path.is_file():
        raise StateError(f"{path}: no such file")
    if path.suffix == ".json":
        try:
            return json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise StateError(f"{path}: not a complete JSON file: {error}") from None
    import torch  # noqa: PLC0415 - only a state that torch saved needs it

    try:
        return torch.load(path, weights_only=True)
    except Exception as error:
        raise StateError(f"{path}: cannot be read by torch.load(weights_only=True): {error}") from error
