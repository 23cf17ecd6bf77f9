"""``omniloom state translate``: a run that Energon began goes on from a border of epochs.

The order of rows is another one here, so that a place within one of Energon's epochs means nothing. Each data set
begins with the epoch that was running (rows that had come in it come again), or with the next one (the others are left
out); a mix that counts epochs begins with an epoch of the whole mix. The blend starts anew with the first batch;
weights that follow a schedule over samples are those of as many samples as the data sets begin behind. It is done on
request only, and tells what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import click

from omniloom.data.loader.state import LaneState, RankState, deal, put_together
from omniloom.data.plan.lane import Lane
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.errors import StateError
from omniloom.tools.energon_state import EnergonState
from omniloom.tools.state_files import expanded, name_of_rank, read_any, write

WHERE = "omniloom state translate"


@dataclass(frozen=True)
class Border:
    """Where a data set goes on.

    Attributes:
        name: its name in the mix.
        rows: its rows.
        read: rows that Energon had read of it, in all epochs.
        epoch: the epoch that it begins with; one of the mix where that counts epochs.
        start: rows that it has behind it there.
        of_mix: whether the mix counts epochs.
    """

    name: str
    rows: int
    read: int
    epoch: int
    start: int
    of_mix: bool = False

    def __str__(self) -> str:
        again = self.read - self.start
        cost = f"{again:,} rows come again" if again >= 0 else f"{-again:,} rows are left out"
        begins = f"epoch {self.epoch} of the mix begins" if self.of_mix else f"epoch {self.epoch} begins"
        return f"{self.name}: {self.read:,} of {self.rows:,} rows read; {begins}, {cost}"


def translated(
    states: Sequence[EnergonState], fresh: RankState, *, numbers: Mapping[int, str] | None = None, skip: bool = False
) -> tuple[RankState, list[Border]]:
    """The state from which a run goes on in omniloom.

    Args:
        states: what Energon saved, of all its ranks.
        fresh: the state of all ranks of the new run before its first batch: says its data sets, lanes and settings.
        numbers: names of the data sets in the new run by their number in Energon's; ``None``: in the same order.
        skip: begin each data set with its next epoch, not with the one that was running.

    Returns:
        the state, and where each data set goes on.

    Raises:
        StateError: data sets do not fit, or the new run is one that cannot begin at a border of epochs.
    """
    plan = _plan_of(fresh)
    read = _rows_read(states, [leaf.name for leaf in plan.leaves], numbers or {})
    _check_sizes(plan, read, _sizes(states))
    count = fresh.lanes
    if not plan.all_end:
        borders = [_own_border(leaf, read.rows[leaf.name], skip=skip) for leaf in plan.leaves]
        epochs = [border.epoch for border in borders]
        streams = {lane: _stream(plan, epochs, Lane(lane, count)) for lane in range(count)}
        lanes = {lane: LaneState(0, stream) for lane, stream in streams.items()}
        return replace(fresh, lap=0, steps=0, in_pass=False, lane_states=lanes), borders
    workers = sum(len(rank["workers"]) for state in states for rank in state.ranks)
    lap = min(_laps(leaf, read.rows[leaf.name], workers) for leaf in _drawn(plan))
    lap += int(skip and any(read.rows[leaf.name] > _behind(leaf, lap) for leaf in _drawn(plan)))
    borders = [
        Border(leaf.name, leaf.rows, read.rows[leaf.name], lap, _behind(leaf, lap), of_mix=True) for leaf in plan.leaves
    ]
    if not plan.repeat:  # the loader counts the passes
        lanes = {lane: LaneState() for lane in range(count)}
        return replace(fresh, lap=lap, steps=0, in_pass=False, lane_states=lanes), borders
    lanes = {lane: LaneState(0, _lap_stream(plan, Lane(lane, count), lap)) for lane in range(count)}
    return replace(fresh, lap=0, steps=0, in_pass=False, lane_states=lanes), borders


def _own_border(leaf: Leaf, read: int, *, skip: bool) -> Border:
    """Where a data set without end goes on: at a border of its own epochs."""
    epochs, rest = divmod(read, leaf.rows) if leaf.rows else (0, 0)
    epoch = epochs + int(skip and rest > 0)
    return Border(leaf.name, leaf.rows, read, epoch, epoch * leaf.rows)


def _drawn(plan: Plan) -> list[Leaf]:
    return [plan.leaves[number] for number in plan.drawn_from]


def _behind(leaf: Leaf, lap: int) -> int:
    """Rows that a data set has given in so many epochs of the mix."""
    return int(leaf.rows * (leaf.passes or 0) * lap)


def _laps(leaf: Leaf, read: int, workers: int) -> int:
    """Epochs of the mix that are done, by the rows read of a data set.

    Where they go through it in part, each of Energon's workers leaves out what is no whole row of its share.
    """
    passes = Fraction(leaf.passes or 0)
    missing = 0 if passes.denominator == 1 else workers
    lap = 0
    while read >= _behind(leaf, lap + 1) - missing * (lap + 1) and _behind(leaf, lap + 1) > missing * (lap + 1):
        lap += 1
    return lap


@dataclass(frozen=True)
class _Read:
    rows: dict[str, int]
    names: dict[int, str]


def _rows_read(states: Sequence[EnergonState], leaves: list[str], numbers: Mapping[int, str]) -> _Read:
    """Rows read of each data set of the new run."""
    workers = [worker["leaf_rows"] for state in states for rank in state.ranks for worker in rank["workers"]]
    count = len(workers[0])
    if any(len(rows) != count for rows in workers):
        raise StateError(f"{WHERE}: these states are of runs with different data sets")
    names = dict(numbers) or (dict(enumerate(leaves)) if count == len(leaves) else {})
    if set(names) != set(range(count)) or set(names.values()) - set(leaves):
        raise StateError(
            f"{WHERE}: Energon's run had {count} data sets (0 to {count - 1}), this one has {len(leaves)}: "
            f"{', '.join(leaves)}. Say for each of Energon's which it is: --data-set NUMBER=NAME."
        )
    rows = dict.fromkeys(leaves, 0)
    for worker in workers:
        for number, found in enumerate(worker):
            rows[names[number]] += found
    return _Read(rows, names)


def _sizes(states: Sequence[EnergonState]) -> dict[int, int]:
    """Rows of a data set, where each worker has been through its share of it at least once."""
    workers = [worker["leaf_epochs"] for state in states for rank in state.ranks for worker in rank["workers"]]
    sizes = {}
    for number, epochs in enumerate(zip(*workers, strict=True)):
        if all(done and rows for done, rows in epochs):
            shares = [Fraction(rows, done) for done, rows in epochs]
            if sum(shares).denominator == 1:
                sizes[number] = int(sum(shares))
    return sizes


def _plan_of(fresh: RankState) -> Plan:
    """The plan that a fresh state tells of, as far as places hang on it. Raises StateError where there are none."""
    settings = fresh.mix.settings
    if "shuffle" not in settings:
        raise StateError(f"{WHERE}: an evaluation has no place to go on from; translate the state of a training run")
    schedule = settings.get("weights", "fixed").split(", ")
    if schedule[1:2] == ["tokens"]:
        raise StateError(
            f"{WHERE}: the new run's weights follow a schedule over tokens, of which Energon's states say nothing. "
            "Write the schedule over samples, or begin with weights that do not change"
        )
    if any(lane.batches or lane.stream for lane in fresh.lane_states.values()):
        raise StateError(f"{WHERE}: the new run has given batches already; save its state before the first one")
    shuffles, passes = settings.get("shuffles", {}), settings.get("passes", {})
    leaves = [
        Leaf(
            name,
            rows,
            weight,
            passes=Fraction(passes[name]) if name in passes else None,
            shuffle=Shuffle(*shuffles[name]) if name in shuffles else None,
        )
        for name, rows, weight in fresh.mix.leaves
    ]
    shuffle, seed = Shuffle(*settings["shuffle"]), settings["seed"]
    plan = Plan(tuple(leaves), shuffle=shuffle, seed=seed, repeat=bool(settings.get("repeat")))
    if passes and not plan.all_end:
        raise StateError(f"{WHERE}: some data sets of the new run end and others do not; there is no border for all")
    return plan


def _check_sizes(plan: Plan, read: _Read, sizes: Mapping[int, int]) -> None:
    """See that data sets have the rows that Energon's had. Raises StateError."""
    for leaf in plan.leaves:
        known = {sizes[number] for number, name in read.names.items() if name == leaf.name and number in sizes}
        if any(not leaf.rows or size % leaf.rows for size in known):  # several epochs may be shuffled as one
            raise StateError(
                f"{WHERE}: data set {leaf.name!r} has {leaf.rows} rows now; Energon's epochs had "
                f"{', '.join(map(str, sorted(known)))}. Are they in the same order? Say --data-set NUMBER=NAME."
            )


def _lap_stream(plan: Plan, lane: Lane, lap: int) -> dict[str, object]:
    """The place of a lane at which the mix begins one of its epochs."""
    cursors = plan.start_cursors(replace(lane, lap=lap))
    return {"index": 0, "cursors": cursors, "base": cursors, **({"lap": lap} if lap else {})}


def _stream(plan: Plan, epochs: Sequence[int], lane: Lane) -> dict[str, object]:
    """The place of a lane at which each data set has been through so many epochs."""
    cursors = {
        leaf.name: given
        for number, (leaf, epoch) in enumerate(zip(plan.leaves, epochs, strict=True))
        if leaf.rows and epoch and (given := plan.order(number, lane.count).deal.dealt(lane.index, epoch))
    }
    return {"index": 0, "cursors": cursors, "base": cursors}


@click.command(epilog="\b\nExample:\n  omniloom state translate energon_rank*.pt --like fresh --output begun")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="ENERGON_FILES..."
)
@click.option(
    "--like",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="States of the new run before its first batch: a file, or the folder of all ranks'.",
)
@click.option("--output", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the states.")
@click.option("--data-set", "named", multiple=True, metavar="NUMBER=NAME", help="Which data set Energon's is here.")
@click.option("--skip", is_flag=True, help="Leave the rest of the running epochs out; nothing comes again.")
def command(files: tuple[Path, ...], *, like: Path, output: Path, named: tuple[str, ...], skip: bool) -> None:
    """Let a run that Energon began go on in omniloom.

    Each data set begins with the epoch that was running, or the mix where that counts epochs; what that repeats is
    told.
    """
    found = [read_any(path) for path in expanded(files)]
    old = [state for state in found if isinstance(state, EnergonState)]
    if len(old) < len(found):
        raise StateError(f"{WHERE}: states that Energon saved expected, one of omniloom's found among them")
    likes = expanded((like,))
    new = [state for state in map(read_any, likes) if isinstance(state, RankState)]
    if len(new) < len(likes):
        raise StateError(f"{like}: states of the new run expected, one that Energon saved found")
    state, borders = translated(old, put_together(new, where=WHERE), numbers=_numbers(named), skip=skip)
    for border in borders:
        click.echo(str(border))
    output.mkdir(parents=True, exist_ok=True)
    for rank in range(state.world_size):
        target = output / name_of_rank(likes[0], rank)
        write(target, deal(state, rank=rank, world_size=state.world_size, where=WHERE).to_plain())
        click.echo(f"Wrote {target}")


def _numbers(named: tuple[str, ...]) -> dict[int, str]:
    numbers = {}
    for one in named:
        number, equals, name = one.partition("=")
        if not equals or not number.isdigit():
            raise click.UsageError(f"--data-set {one}: expected a number, '=' and a name, such as 0=captions")
        numbers[int(number)] = name
    return numbers
