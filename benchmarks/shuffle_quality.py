"""How well an epoch is mixed: how far samples move, and how many neighbours stay neighbours."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from data_text import text_dataset
from harness import Context, row, run_once, say, show_row
from peers import ensure_prepared

NAME = "shuffle_quality"
BATCH_SIZE, RUN_LENGTH = 64, 100


def run(context: Context) -> dict[str, Any]:
    """One epoch of each side per setting: orders are deterministic, so nothing is repeated."""
    folder = text_dataset(context.data_dir, records=20_000)
    ensure_prepared(context, folder, sample_type="TextSample", field_map={"text": "txt"})
    displacement, neighbours, contents = [], [], set()
    for workers in (0, 2):
        for shuffle in (100, 1_000):
            case = f"{workers} workers, shuffle buffer {shuffle:,}"
            moved: dict[str, list[float]] = {}
            kept: dict[str, list[float]] = {}
            for side in ("omniloom", "energon"):
                measured = _measure(context, side, folder, workers=workers, shuffle=shuffle)
                if measured is not None:
                    moved[side], kept[side] = [measured[0]], [measured[1]]
                    contents.add(measured[2])
            displacement.append(row(case, moved, bars={"energon": 1.0}))
            neighbours.append(row(case, kept, bars={"energon": 1.0}))
            show_row(displacement[-1], "of 1/3")
            show_row(neighbours[-1], "neighbours kept")
    say("")
    return {
        "title": "Shuffle quality",
        "settings": f"one epoch of 20,000 records, batch {BATCH_SIZE}, runs of {RUN_LENGTH} neighbours",
        "tables": [
            {
                "title": "Mean displacement, as a share of a perfect shuffle's",
                "unit": "of 1/3",
                "better": "higher",
                "rows": displacement,
            },
            {
                "title": "Samples followed by one of their 10 next neighbours",
                "unit": "share",
                "better": "lower",
                "rows": neighbours,
            },
        ],
        "facts": {"every_side_delivered_the_same_samples": len(contents) == 1},
    }


def _measure(
    context: Context, side: str, folder: Path, *, workers: int, shuffle: int
) -> tuple[float, float, int] | None:
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "order.npy"
        program = context.program(
            side,
            f"order_{side}",
            data=folder,
            workers=workers,
            batch_size=BATCH_SIZE,
            shuffle=shuffle,
            run_length=RUN_LENGTH,
            out=out,
        )
        if program is None:
            return None
        content = run_once(program)["content"]
        rows = np.load(out)
    moved = np.abs(rows - np.arange(len(rows))).mean() / (len(rows) / 3)
    steps = np.diff(rows)
    return float(moved), float(((steps > 0) & (steps <= 10)).mean()), int(content)
