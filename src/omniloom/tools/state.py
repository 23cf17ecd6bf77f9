"""``omniloom state``: look at saved places of loaders, see whether they are whole, deal them to other ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from omniloom.data.loader.state import RankState, deal, put_together
from omniloom.data.plan.lane import check_ranks_divide
from omniloom.errors import ConfigError
from omniloom.tools import state_translate
from omniloom.tools.energon_state import EnergonState
from omniloom.tools.state_files import expanded, name_of_rank, read_any, write

_ARGUMENT = click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="FILES..."
)
WHERE = "omniloom state"


@click.group(epilog="\b\nExample:\n  omniloom state show checkpoint/")
def command() -> None:
    """Show and check saved loader states, deal them to ranks."""


@command.command(epilog="\b\nExample:\n  omniloom state show state_rank0.pt state_rank1.pt")
@_ARGUMENT
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a state.")
def show(files: tuple[Path, ...], *, as_json: bool) -> None:
    """Tell what states hold: those of omniloom's loaders, and those that Energon 7 saved."""
    for path in expanded(files):
        found = read_any(path)
        told = found.to_told() if isinstance(found, EnergonState) else _told(found)
        if as_json:
            click.echo(json.dumps({"file": str(path), **told}))
            continue
        click.echo(f"{path}:")
        for name, value in told.items():
            click.echo(f"  {name.replace('_', ' ')}: {_text(value)}")


@command.command(epilog="\b\nExample:\n  omniloom state check checkpoint/ --world-size 16")
@_ARGUMENT
@click.option("--world-size", type=click.IntRange(1), help="See whether so many ranks can go on from it, too.")
def check(files: tuple[Path, ...], *, world_size: int | None) -> None:
    """See that states are those of all ranks at one moment."""
    state = _together(files)
    if world_size is not None:
        check_ranks_divide(state.lanes, world_size, where=WHERE)
    click.echo(f"Sound: {state.lanes} lanes of {state.world_size} ranks after {state.steps:,} steps.")
    fitting = [str(ranks) for ranks in range(1, state.lanes + 1) if state.lanes % ranks == 0]
    click.echo(f"So many ranks can go on from it: {', '.join(fitting)}.")


@command.command(epilog="\b\nExample:\n  omniloom state redeal state_rank*.json dealt --new-world-size 16")
@_ARGUMENT
@click.argument("output", type=click.Path(path_type=Path, file_okay=False))
@click.option("--new-world-size", prompt=True, type=click.IntRange(1), help="Data-parallel ranks to deal them to.")
def redeal(files: tuple[Path, ...], output: Path, *, new_world_size: int) -> None:
    """Deal the states of all ranks to another number of ranks.

    Loaders do it by themselves when they are given the folder of all states. The files are named as the first one is.
    """
    paths = expanded(files)
    state = _together(paths)
    check_ranks_divide(state.lanes, new_world_size, where=WHERE)
    output.mkdir(parents=True, exist_ok=True)
    for rank in range(new_world_size):
        mine = deal(state, rank=rank, world_size=new_world_size, where=WHERE)
        target = output / name_of_rank(paths[0], rank)
        write(target, mine.to_plain())
        click.echo(f"Wrote {target}")


def _together(files: tuple[Path, ...]) -> RankState:
    states = [read_any(path) for path in expanded(files)]
    ours = [state for state in states if isinstance(state, RankState)]
    if len(ours) < len(states):
        raise ConfigError(
            "states that Energon saved are shown only, as its order is another one; a run goes on from them by "
            "`omniloom state translate`"
        )
    return put_together(ours, where=WHERE)


def _told(state: RankState) -> dict[str, Any]:
    return {
        "saved_by": "omniloom",
        "rank": f"{state.rank} of {state.world_size}",
        "lanes": f"{len(state.lane_states)} of {state.lanes}",
        "steps": state.steps,
        "lap": state.lap,
        "batches": sum(lane.batches for lane in state.lane_states.values()),
        "data_sets": {name: {"rows": rows, "weight": weight} for name, rows, weight in state.mix.leaves},
        "settings": dict(state.mix.settings),
    }


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(f"\n    {name}: {one}" for name, one in value.items()) or "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


command.add_command(state_translate.command, name="translate")
