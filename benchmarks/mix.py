"""A metadataset of many data sets: time to the first batch and memory; and joins: time and memory to find partners."""

from __future__ import annotations

from typing import Any

from data_mix import SAMPLES_A_SHARD, join_of_two, many_sets
from harness import Context, alternate, row, show_row, values

NAME = "mix"
SETS, SHARDS = 100, 100
JOINED_ROWS = 1_000_000
MORE_BATCHES = 20
SIDES = ("omniloom", "energon")


def run(context: Context) -> dict[str, Any]:
    """Time runs are not watched; memory is sampled in runs of their own."""
    sets, shards = (5, 4) if context.quick else (SETS, SHARDS)
    rows = 2_000 if context.quick else JOINED_ROWS
    mix, join = many_sets(context, sets=sets, shards=shards), join_of_two(context, rows=rows)
    times, memory = [], []
    for workers in (0, 2):
        for watched in (False, True):
            settings = {"data": mix, "workers": workers, "batches": MORE_BATCHES if watched else 0}
            programs = [context.program(side, f"mix_{side}", **settings) for side in SIDES]
            rounds = max(1, context.pairs // 2) if watched else context.pairs
            readings = alternate(programs, rounds=rounds, watch_memory=watched)
            (memory if watched else times).append(
                _row(f"{workers} workers", readings, "first_batch_seconds", watched=watched)
            )
    programs = [context.program(side, f"join_{side}", data=join) for side in SIDES]
    case = f"{rows:,} x {rows:,} rows"
    joins = _row(case, alternate(programs, rounds=context.pairs), "seconds", watched=False)
    watched_joins = alternate(programs, rounds=max(1, context.pairs // 2), watch_memory=True)
    return {
        "title": "Mixes",
        "settings": f"a metadataset that blends {sets} data sets of {shards} shards with {SAMPLES_A_SHARD} short texts "
        f"each, batch 32; the clock runs from get_train_dataset to the first batch, in a process that has imported "
        f"torch. Joins: two data sets with the same {rows:,} keys, each in an order of its own; Energon writes its "
        "index, omniloom its own and Energon's",
        "tables": [
            {"title": "Time from a metadataset to its first batch", "unit": "s", "better": "lower", "rows": times},
            {"title": "Peak memory of that", "unit": "MB", "better": "lower", "rows": memory},
            {"title": "Time to join", "unit": "s", "better": "lower", "rows": [joins]},
            {"title": "Peak memory of joining", "unit": "MB", "better": "lower",
             "rows": [_row(case, watched_joins, "seconds", watched=True)]},
        ],
    }  # fmt: skip


def _row(case: str, readings: dict[str, Any], figure: str, *, watched: bool) -> dict[str, Any]:
    if watched:
        figures = {side: [peak / 1e6 for peak in ones] for side, ones in values(readings, "peak_pss_bytes").items()}
    else:
        figures = values(readings, figure)
    made = row(case, figures)
    show_row(made, "MB" if watched else "s")
    return made
