"""How many samples could not be used, and why: told with the steps of a run, and at its end."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from omniloom.train.hooks import Hook

logger = logging.getLogger("omniloom")


class FaultCounts(Hook):
    """Tells of the samples that this rank's loader has left out since the process began.

    Args:
        loader: has ``stats()``; ``None``: another rank loads for this one.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def after_step(self, step: int) -> Mapping[str, float]:
        """``left_out_samples``, and ``left_out/<reason>`` of each reason; nothing where nothing was left out."""
        del step
        reasons, _ = self._found()
        if not reasons:
            return {}
        return {"left_out_samples": reasons.total(), **{f"left_out/{name}": n for name, n in sorted(reasons.items())}}

    def close(self) -> None:
        """Say it once more, for people."""
        reasons, samples = self._found()
        if reasons:
            logger.warning("%s", left_out_in_words(reasons, samples))

    def _found(self) -> tuple[Counter[str], int]:
        return (Counter(), 0) if self._loader is None else left_out_of(self._loader.stats())


def left_out_of(stats: Mapping[str, Any]) -> tuple[Counter[str], int]:
    """Samples left out by reason, and how many were looked at, by what a loader tells of itself."""
    reasons: Counter[str] = Counter()
    yielded = 0
    for of_set in stats["datasets"].values():
        reasons.update(of_set["skipped"])
        yielded += of_set["yielded"]
    return reasons, yielded + reasons.total()


def left_out_in_words(reasons: Counter[str], samples: int) -> str:
    """Such as ``3 of 64 samples were left out: 2 no-target, 1 placeholder-count``."""
    told = ", ".join(f"{number:,} {name}" for name, number in reasons.most_common())
    return f"{reasons.total():,} of {samples:,} samples were left out: {told}"
