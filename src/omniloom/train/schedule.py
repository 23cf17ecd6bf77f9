"""Learning rates over a run: pure functions of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from omniloom.errors import ConfigError

Decay = Literal["cosine", "linear", "constant", "wsd"]


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """How the learning rate goes.

    Attributes:
        decay: ``cosine`` and ``linear`` go from the peak to the end over all steps after the warm-up; ``constant``
            stays; ``wsd`` stays and then goes down linearly over the last ``decay_steps`` (warm-up, stable, decay).
        peak: highest rate.
        end: rate of the last step.
        warmup_steps: steps that go up linearly from 0; the first step has ``peak / warmup_steps``.
        warmup_share: the same as a share of all steps (Megatron's ``--lr-warmup-fraction``); not both.
        decay_steps: steps that ``wsd`` goes down over, and that the others take in place of all (Megatron's
            ``--lr-decay-iters``); ``None``: all, for ``wsd`` a tenth.
    """

    decay: Decay = "cosine"
    peak: float = 1e-3
    end: float = 0.0
    warmup_steps: int = 0
    warmup_share: float = 0.0
    decay_steps: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.end <= self.peak:
            raise ConfigError(f"schedule: end {self.end:g} and peak {self.peak:g} found; 0 <= end <= peak expected.")
        if self.warmup_steps < 0 or not 0 <= self.warmup_share < 1 or (self.warmup_steps and self.warmup_share):
            raise ConfigError(
                f"schedule: warmup_steps {self.warmup_steps} and warmup_share {self.warmup_share:g} found; one of "
                "them, not negative, the share below 1, expected."
            )
        if self.decay_steps is not None and self.decay_steps < 1:
            raise ConfigError(f"schedule: decay_steps {self.decay_steps} found; at least 1 expected.")

    def warmup(self, steps: int) -> int:
        """Steps that go up, of a run of so many."""
        return self.warmup_steps or round(self.warmup_share * steps)


def learning_rate(config: ScheduleConfig, step: int, *, steps: int) -> float:
    """The rate of a step.

    Args:
        config: the schedule.
        step: number of the step, from 0.
        steps: steps of the run.
    """
    warmup = config.warmup(steps)
    if step < warmup:
        return config.peak * (step + 1) / warmup
    if config.decay == "constant":
        return config.peak
    if config.decay == "wsd":
        decay = config.decay_steps if config.decay_steps is not None else max(1, steps // 10)
        done = (step - (steps - decay) + 1) / decay
        return config.peak - (config.peak - config.end) * min(1.0, max(0.0, done))
    last = config.decay_steps if config.decay_steps is not None else steps
    done = min(1.0, (step - warmup + 1) / max(1, last - warmup))
    share = (1 + math.cos(math.pi * done)) / 2 if config.decay == "cosine" else 1 - done
    return config.end + (config.peak - config.end) * share
