"""The loop of a run: it fits on a screen."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

from omniloom.errors import ConfigError, OmniloomError
from omniloom.train.batches import Feed, PackedMicroBatch
from omniloom.train.changes import changed_settings
from omniloom.train.checkpoint import Checkpoints, Resumed
from omniloom.train.metrics import LogConfig, StepLog, peak_memory_bytes
from omniloom.train.optimizer import set_learning_rate
from omniloom.train.schedule import ScheduleConfig, learning_rate
from omniloom.train.step import Pipeline, StepResult, train_step
from omniloom.train.stopping import StopWatch

logger = logging.getLogger("omniloom")


class TrainingError(OmniloomError, RuntimeError):
    """Too many steps in a row could not be used."""


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """How long a run goes, and what it bears.

    Attributes:
        steps: of the whole run.
        micro_batches: of each rank in a step.
        clip_norm: gradients are scaled down to this norm; 0: not.
        most_norm: steps with a greater gradient norm are left out, once warmed up; 0: none is.
        most_skips: so many left-out steps in a row end the run.
        limit_seconds: save and stop after this time; 0: no limit.
    """

    steps: int
    micro_batches: int = 1
    clip_norm: float = 1.0
    most_norm: float = 0.0
    most_skips: int = 10
    limit_seconds: float = 0.0

    def __post_init__(self) -> None:
        if min(self.steps, self.micro_batches, self.most_skips) < 1:
            raise ConfigError(
                f"steps {self.steps}, micro_batches {self.micro_batches} and most_skips {self.most_skips} found; at "
                "least 1 of each expected."
            )
        if min(self.clip_norm, self.most_norm, self.limit_seconds) < 0:
            raise ConfigError(
                f"clip_norm {self.clip_norm:g}, most_norm {self.most_norm:g} and limit_seconds {self.limit_seconds:g} "
                "found; they cannot be below 0."
            )


@dataclass(kw_only=True)
class Run:
    """All that a loop works with.

    Attributes:
        model: on its device, sharded where there are ranks.
        optimizer: of its trained parameters.
        loader: of this rank.
        checkpoints: of the run.
        loop, schedule, log: how it goes.
        folder: of the run.
        group: data-parallel ranks; ``None``: this process alone.
        everyone: all ranks, which stop together, where they are more than `group`.
        pipeline: takes the gradients where the model is cut into stages.
        left_out: called with a step that was left out, its loss and its norm; all ranks call it.
        begins: called once, with the number of steps that were taken before this process; all ranks call it.
        after_step: called with the number of steps taken, for evaluation and the like; all ranks call it.
        facts: what each checkpoint says of the run, such as its recipe.
        data_sets: names of the data sets of a mix, whose losses are told apart; empty: there is one.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loader: Any
    checkpoints: Checkpoints
    loop: LoopConfig
    schedule: ScheduleConfig
    log: LogConfig
    folder: Path
    group: distributed.ProcessGroup | None = None
    everyone: distributed.ProcessGroup | None = None
    pipeline: Pipeline | None = None
    left_out: Callable[[int, float, float], None] | None = None
    begins: Callable[[int], None] | None = None
    after_step: Callable[[int], Mapping[str, float]] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    data_sets: Sequence[str] = ()


def train(run: Run) -> int:
    """Train to the end, or until told to stop; goes on from the newest checkpoint of the run. Returns the steps taken.

    Raises:
        TrainingError: too many steps in a row gave no finite loss or gradient.
    """
    device = next(run.model.parameters()).device
    step, skips = _resume(run)
    if run.begins is not None:
        run.begins(step)
    watch = StopWatch(limit_seconds=run.loop.limit_seconds)
    log = StepLog(run.folder, run.log, steps=run.loop.steps, first_step=step, writing=_first_rank())
    feed = Feed(run.loader, device, sets=len(run.data_sets))
    run.model.train()
    with watch.listening(), _completing(run.checkpoints):
        while step < run.loop.steps:
            started, waited = time.perf_counter(), feed.seconds_waited
            rate = learning_rate(run.schedule, step, steps=run.loop.steps)
            set_learning_rate(run.optimizer, rate)
            micro_batches = feed.take(run.loop.micro_batches)
            result = train_step(
                run.model, run.optimizer, micro_batches, clip_norm=run.loop.clip_norm, group=run.group,
                most_norm=run.loop.most_norm or float("inf"), pipeline=run.pipeline,
            )  # fmt: skip
            step += 1
            skips = _guard(run, result, step, skips)
            seconds = time.perf_counter() - started
            extra = run.after_step(step) if run.after_step is not None else {}
            values = _rates(micro_batches, seconds) | {"data_wait_seconds": feed.seconds_waited - waited}
            values |= {"peak_memory_bytes": peak_memory_bytes(device), "skipped_steps": skips}
            log.step(step, {**_outcome(result, run.data_sets), "learning_rate": rate, **values, **extra})
            reason = watch.reason(group=run.everyone or run.group)
            if run.checkpoints.due(step, last=step == run.loop.steps or reason is not None):
                run.checkpoints.save(
                    step, run.model, run.optimizer, trainer={"skips": skips, **run.facts}, loader=_loader_state(run)
                )
            if reason is not None:
                logger.warning("stopped after step %d of %d: %s", step, run.loop.steps, reason)
                break
        run.checkpoints.finish()  # while signals are listened to: a second one would cost the last checkpoint
    log.close()
    return step


@contextmanager
def _completing(checkpoints: Checkpoints) -> Iterator[None]:
    """Where the run fails, the checkpoint that is being written is completed, if all ranks are sure to fail alike."""
    try:
        yield
    except Exception as error:
        if isinstance(error, TrainingError) or not distributed.is_initialized():
            checkpoints.finish()
        raise


def _resume(run: Run) -> tuple[int, int]:
    """Steps that were taken, and how many of the last were left out; the state of everything is put back."""
    path = run.checkpoints.latest()
    if path is None:
        return 0, 0
    changed = changed_settings(run.checkpoints.trainer(path).get("recipe", {}), run.facts.get("recipe", {}))
    if changed and _first_rank():
        logger.warning("%s was saved with other settings: %s", path, "; ".join(changed))
    resumed: Resumed = run.checkpoints.restore(path, run.model, run.optimizer)
    run.loader.restore_state_rank(resumed.loader)
    logger.info("goes on from %s", path)
    if resumed.step >= run.loop.steps:
        logger.info("all of its %d steps have been taken; loop.steps says how many more are to come", run.loop.steps)
    return resumed.step, int(resumed.trainer.get("skips", 0))


def _loader_state(run: Run) -> dict[str, Any]:
    state: dict[str, Any] = run.loader.save_state_rank()
    return state


def _guard(run: Run, result: StepResult, step: int, skips: int) -> int:
    """Left-out steps in a row. Raises TrainingError when they are too many."""
    if result.applied:
        return 0
    logger.warning(
        "step %d left out: loss %g, gradient norm %g (%d in a row)", step, result.loss, result.gradient_norm, skips + 1
    )
    if run.left_out is not None:
        run.left_out(step, result.loss, result.gradient_norm)
    if skips + 1 >= run.loop.most_skips:
        raise TrainingError(
            f"step {step}: {skips + 1} steps in a row had no finite loss or too great a gradient (loss "
            f"{result.loss:g}, norm {result.gradient_norm:g}). Lower the learning rate, or look at "
            f"the samples of these steps, which {run.folder}/left-out names."
        )
    return skips + 1


def _outcome(result: StepResult, data_sets: Sequence[str]) -> dict[str, float | int]:
    """Of all ranks; of a data set, where something of it was learned."""
    told: dict[str, float | int] = {
        "loss": result.loss,
        "gradient_norm": result.gradient_norm,
        "learned_tokens": result.learned_tokens,
    }
    for name, loss, tokens in zip(data_sets, result.group_losses, result.group_tokens, strict=True):
        if tokens:
            told |= {f"loss/{name}": loss / tokens, f"learned_tokens/{name}": tokens}
    return told


def _rates(micro_batches: list[PackedMicroBatch], seconds: float) -> dict[str, float | int]:
    """Of this rank: tokens with image features and all."""
    return {
        "tokens_per_second": sum(each.tokens for each in micro_batches) / seconds,
        "images_per_second": sum(each.num_images for each in micro_batches) / seconds,
        "step_seconds": seconds,
    }


def _first_rank() -> bool:
    return not distributed.is_initialized() or distributed.get_rank() == 0
