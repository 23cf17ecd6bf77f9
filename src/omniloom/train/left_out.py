"""Which samples were in the steps that were left out, for looking at them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omniloom.storage.files import replace_file
from omniloom.train.hooks import Hook

FOLDER = "left-out"


class LeftOut(Hook):
    """Remembers the keys of a step's batches, and writes them down where the step is left out.

    Args:
        folder: of the run; files lie in its ``left-out``.
        rank: of this process. Each that loads writes a file of its own.
    """

    def __init__(self, folder: Path, *, rank: int) -> None:
        self._folder, self._rank = folder / FOLDER, rank
        self._batches: list[dict[str, Any]] = []

    def watched(self, loader: Any) -> Any:
        """The loader, whose batches are remembered as this rank loads them, whichever rank learns them then."""
        return _Watched(loader, self._batches)

    def write(self, step: int, loss: float, norm: float) -> None:
        """Write down the batches of a step."""
        if not self._batches:
            return
        told = {
            "step": step,
            "loss": loss if math.isfinite(loss) else str(loss),
            "gradient_norm": norm if math.isfinite(norm) else str(norm),
            "batches": self._batches,
        }
        replace_file(self._folder / f"step-{step:08d}.rank-{self._rank:05d}.json", json.dumps(told, indent=1) + "\n")

    def after_step(self, step: int) -> Mapping[str, float]:
        """Forget the step's batches."""
        del step
        self._batches.clear()
        return {}


class _Watched:
    """A loader whose batches' keys are noted."""

    def __init__(self, loader: Any, noted: list[dict[str, Any]]) -> None:
        self._loader, self._noted = loader, noted

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            keys, again = getattr(batch, "document_keys", None), getattr(batch, "__restore_key__", None)
            self._noted.append({"samples": keys, "restore_key": again})
            yield batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
