"""The hooks that a recipe asks for."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import distributed, nn

from omniloom.data.loader.config import WorkerConfig
from omniloom.generate.prompts import Prompter
from omniloom.model.config import LlavaConfig
from omniloom.train.benchmarks import BenchmarkScores
from omniloom.train.hang_watch import HangWatch
from omniloom.train.hooks import Hook
from omniloom.train.in_training import HeldOutLoss
from omniloom.train.meter import Meter, peak_flops
from omniloom.train.parts import counts
from omniloom.train.profiling import Profiler
from omniloom.train.recipe import Recipe
from omniloom.train.sample_answers import SampleAnswers
from omniloom.vlm.task_encoder import LlavaTaskEncoder


def hooks_of(
    recipe: Recipe,
    model: nn.Module,
    *,
    config: LlavaConfig,
    encoder: LlavaTaskEncoder,
    workers: WorkerConfig,
    device: torch.device,
) -> list[Hook]:
    """What looks on while a run goes, in the order in which it is told of steps. All ranks call it.

    Args:
        recipe: of the run.
        model: on its device, laid over ranks.
        config: of the model.
        encoder: makes its batches.
        workers: of this rank.
        device: of the model.
    """
    ranks = distributed.get_world_size() if distributed.is_initialized() else 1
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    folder = Path(recipe.folder)
    meter = Meter(
        config,
        recipe.data,
        trained=[part for part, (trained, _) in counts(model).items() if trained],
        ranks_of_a_replica=ranks // workers.ranks,
        peak=peak_flops(device, told=recipe.log.peak_flops),
    )
    hooks: list[Hook] = [meter]
    if recipe.profile.first_step:
        hooks.append(Profiler(recipe.profile, folder, rank=rank))
    if recipe.hang.after_seconds:
        hooks.append(HangWatch(recipe.hang, folder, rank=rank, ranks=ranks))
    hooks += _held_out(recipe, model, encoder, workers, device)
    return hooks + _benchmarks(recipe, model, encoder, ranks=ranks, rank=rank, shared=ranks > workers.ranks)


def _benchmarks(
    recipe: Recipe, model: nn.Module, encoder: LlavaTaskEncoder, *, ranks: int, rank: int, shared: bool
) -> list[Hook]:
    """What scores the model on benchmarks."""
    settings = recipe.evaluation
    if not settings.benchmarks:
        return []
    scores = BenchmarkScores(
        model, settings.benchmarks, prompter=Prompter.of(encoder), folder=Path(recipe.folder), steps=recipe.loop.steps,
        every_steps=settings.benchmark_every_steps or settings.every_steps, ranks=ranks, shared=shared,
        writing=rank == 0,
    )  # fmt: skip
    return [scores]


def _held_out(
    recipe: Recipe, model: nn.Module, encoder: LlavaTaskEncoder, workers: WorkerConfig, device: torch.device
) -> list[Hook]:
    """What measures on held-out data."""
    settings, data, made = recipe.evaluation, recipe.data, list[Hook]()
    if data.validation is None:
        return made
    if settings.every_steps:
        loss = HeldOutLoss(
            model, data.validation, data=data, settings=settings, encoder=encoder, workers=workers, device=device,
            steps=recipe.loop.steps,
        )  # fmt: skip
        made.append(loss)
    ranks = distributed.get_world_size() if distributed.is_initialized() else 1
    if settings.samples:
        answers = SampleAnswers(
            model, data.validation, data=data, settings=settings, encoder=encoder, folder=Path(recipe.folder),
            writing=ranks == 1 or distributed.get_rank() == 0, ranks=ranks, shared=ranks > workers.ranks,
            steps=recipe.loop.steps,
        )  # fmt: skip
        made.append(answers)
    return made
