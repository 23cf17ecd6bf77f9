"""What samples cost, data set by data set: tokens, learned ones, tiles, and what is left out. No pixel is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.table import Table

from omniloom.data.loader.dataset import Dataset
from omniloom.data.sample import SampleKey
from omniloom.errors import DatasetError, SampleError, SkipSample, StorageError
from omniloom.tools.inspect_samples import make_stage
from omniloom.vlm.encoded import EncodedPack
from omniloom.vlm.packing import best_fit

_SHARES = (0.5, 0.9, 1.0)


@dataclass
class LeafFigures:
    """What was counted of a data set.

    Attributes:
        name: the data set.
        tokens: length of each sample.
        learned: learned tokens of each sample.
        images: images of each sample.
        tiles: tiles of each sample.
        left_out: samples that are left out, by reason.
    """

    name: str
    tokens: list[int] = field(default_factory=list)
    learned: list[int] = field(default_factory=list)
    images: list[int] = field(default_factory=list)
    tiles: list[int] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def to_json(self, *, capacity: int) -> dict[str, Any]:
        """The figures as JSON, with the fill of packs of ``capacity`` tokens."""
        median, ninth, longest = (int(value) for value in np.quantile(self.tokens or [0], _SHARES))
        packs = best_fit(self.tokens, capacity=capacity)
        return {
            "data_set": self.name,
            "samples": len(self.tokens),
            "tokens": {"mean": _mean(self.tokens), "median": median, "p90": ninth, "max": longest},
            "learned_share": round(sum(self.learned) / max(1, sum(self.tokens)), 4),
            "images": _mean(self.images),
            "tiles": _mean(self.tiles),
            "fill_of_packs": round(sum(self.tokens) / (capacity * max(1, len(packs))), 4),
            "left_out": dict(sorted(self.left_out.items())),
        }


def figures_of(dataset: Dataset, rows: Sequence[tuple[int, int]]) -> list[LeafFigures]:
    """Figures of each data set by some of its rows.

    Args:
        dataset: made with a `LlavaTaskEncoder`.
        rows: (number of the leaf, row) of each.
    """
    make = make_stage(dataset)
    found = [LeafFigures(leaf.name) for leaf in make.leaves]
    for number, row in rows:
        figures = found[number]
        try:
            made = make.make(SampleKey(number, 0, row))
        except (SampleError, SkipSample, DatasetError, StorageError) as error:
            figures.left_out[error.reason if isinstance(error, SampleError) else type(error).__name__] += 1
            continue
        for sample in made.samples if isinstance(made, EncodedPack) else [made]:
            figures.tokens.append(sample.total_tokens)
            figures.learned.append(int((sample.labels >= 0).sum()))
            figures.images.append(len(sample.num_tiles))
            figures.tiles.append(sum(sample.num_tiles))
    return found


def figures_table(figures: Sequence[LeafFigures], *, capacity: int) -> Table:
    """The figures as a table, one data set a row."""
    table = Table(title=f"packs of {capacity:,} tokens", title_justify="left")
    table.add_column("data set")
    for name in ("samples", "mean", "median", "90 %", "longest", "learned", "images", "tiles", "fill", "left out"):
        table.add_column(name, justify="right")
    for row in (each.to_json(capacity=capacity) for each in figures):
        tokens = row["tokens"]
        left_out = ", ".join(f"{reason} {count}" for reason, count in row["left_out"].items())
        table.add_row(
            row["data_set"],
            f"{row['samples']:,}",
            *(f"{tokens[name]:,.0f}" for name in ("mean", "median", "p90", "max")),
            f"{row['learned_share']:.1%}",
            f"{row['images']:.2f}",
            f"{row['tiles']:.2f}",
            f"{row['fill_of_packs']:.1%}",
            left_out or "0",
        )
    return table


def _mean(values: Sequence[int]) -> float:
    return round(sum(values) / max(1, len(values)), 2)
