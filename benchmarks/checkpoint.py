"""What a checkpoint costs a training: seconds that it cannot go on, written at once or in the background."""

from __future__ import annotations

from typing import Any

from harness import Context, alternate, row, show_row, values

NAME = "checkpoint"
LAYERS = 12
CASES = {0: "written at once", 1: "written in the background"}


def run(context: Context) -> dict[str, Any]:
    """Both ways; there is no peer, the second is held against the first."""
    rows, written = [], 0.0
    for background, case in CASES.items():
        program = context.program(
            "omniloom", "checkpoint_omniloom", background=background, layers=2 if context.quick else LAYERS
        )
        readings = alternate([program], rounds=context.pairs)
        for figure, told in (("blocked_seconds", "blocked, s"), ("step_seconds", "a step while it is written, s")):
            rows.append(row(f"{case}: {told}", values(readings, figure)))
            show_row(rows[-1], "")
        written = values(readings, "written_mb")["omniloom"][0]
    return {
        "title": "A checkpoint",
        "unit": "",
        "better": "lower",
        "settings": f"a language model of {LAYERS} layers, width 768, with AdamW's states, {written:,.0f} MB a "
        "checkpoint, to a local disk; 4 steps after each of 3 checkpoints, on one thread",
        "rows": rows,
    }
