"""A profile of some steps: torch's trace, to be opened in a browser, and a table of what took longest."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from omniloom.errors import ConfigError
from omniloom.train.hooks import Hook

logger = logging.getLogger("omniloom")

FOLDER = "profile"
_TABLE_ROWS = 40


@dataclass(frozen=True, kw_only=True)
class ProfileConfig:
    """Which steps are profiled.

    Attributes:
        first_step: the first of them, counted from 1; 0: none.
        steps: how many.
        ranks: whose; each writes its own files.
        memory: also follow what takes memory.
        stacks: also keep the lines of Python that led there; slower.
    """

    first_step: int = 0
    steps: int = 3
    ranks: tuple[int, ...] = (0,)
    memory: bool = False
    stacks: bool = False

    def __post_init__(self) -> None:
        if self.first_step < 0 or self.steps < 1:
            raise ConfigError(
                f"profile: first_step {self.first_step} and steps {self.steps} found; at least 0 and 1 expected."
            )


class Profiler(Hook):
    """Profiles a window of steps into the run's folder.

    Args:
        config: which steps.
        folder: of the run.
        rank: of this process.
    """

    def __init__(self, config: ProfileConfig, folder: Path, *, rank: int) -> None:
        self._config, self._folder, self._rank = config, folder, rank
        self._wanted = config.first_step > 0 and rank in config.ranks
        self._taken = 0
        self._running: Any = None
        self._begun = 0

    def begins(self, step: int) -> None:
        """A run that goes on is at another step than the first."""
        self._taken = step

    def waiting(self) -> None:
        """Start with the first step of the window that comes."""
        next_step = self._taken + 1
        last = self._config.first_step + self._config.steps - 1
        if not self._wanted or self._running is not None or not self._config.first_step <= next_step <= last:
            return
        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])
        self._running = profile(
            activities=activities,
            record_shapes=True,
            profile_memory=self._config.memory,
            with_stack=self._config.stacks,
        )
        self._begun = next_step
        self._running.start()

    def after_step(self, step: int) -> Mapping[str, float]:
        """Stop with the last step of the window."""
        self._taken = step
        if self._running is not None and step >= self._config.first_step + self._config.steps - 1:
            self._write(step)
        return {}

    def close(self) -> None:
        """Write what there is of a window that the run did not reach the end of."""
        if self._running is not None:
            self._write(self._taken)

    def _write(self, step: int) -> None:
        running, self._running, self._wanted = self._running, None, False
        running.stop()
        folder = self._folder / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        name = f"steps-{self._begun:08d}-{step:08d}.rank-{self._rank:05d}"
        running.export_chrome_trace(str(folder / f"{name}.json.gz"))
        order = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        table = running.key_averages().table(sort_by=order, row_limit=_TABLE_ROWS)
        (folder / f"{name}.txt").write_text(table)
        logger.info("profile of the steps %d to %d: %s", self._begun, step, folder / f"{name}.json.gz")
