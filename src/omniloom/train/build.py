"""From a recipe to a run, in the order in which things depend on each other."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch
import yaml
from torch import distributed

from omniloom.data.loader.config import WorkerConfig
from omniloom.data.loader.loader import Loader
from omniloom.data.open import get_savable_loader
from omniloom.model.build import build as build_module
from omniloom.model.dropout import add_dropout
from omniloom.model.lora import add_lora
from omniloom.parallel.collectives import Group
from omniloom.parallel.feed import GroupLoader
from omniloom.parallel.plan import gather_each_once, lay_out, parallelize, pipeline_of
from omniloom.storage.files import replace_file
from omniloom.train.balancing import ToldByLoader, balanced_loader
from omniloom.train.checkpoint import Checkpoints
from omniloom.train.data import task_encoder, training_data
from omniloom.train.fault_counts import FaultCounts
from omniloom.train.filling import fill_model
from omniloom.train.hooks import HookedLoader, after_each_step, before_first_step
from omniloom.train.kept_features import KeptFeatures
from omniloom.train.left_out import LeftOut
from omniloom.train.looking_on import hooks_of
from omniloom.train.loop import LoopConfig, Run
from omniloom.train.model_files import RECIPE_FILE, model_config
from omniloom.train.optimizer import make_optimizer
from omniloom.train.parts import dropout_of, freeze, lora_of
from omniloom.train.recipe import Recipe, kept_form, refuse_contradictions
from omniloom.train.taken_ahead import taken_ahead
from omniloom.vlm.task_encoder import LlavaTaskEncoder


def build(recipe: Recipe) -> Run:
    """Everything that a run works with. All ranks call it."""
    refuse_contradictions(recipe)
    device, folder = own_device(), Path(recipe.folder)
    folder.mkdir(parents=True, exist_ok=True)  # a folder that may not be made is told before the model is read
    ranks = lay_out(recipe.parallel, device=device.type)

    config = model_config(recipe.model)
    model = build_module(config, device="meta")
    add_lora(model, lora_of(recipe.parts))
    freeze(model, recipe.parts)
    add_dropout(model, dropout_of(recipe.parts, stages=recipe.parallel.pipeline))
    model = parallelize(model, recipe.parallel, ranks).to_empty(device=device)
    fill_model(model, recipe.model, config, seed=recipe.seed)
    gather_each_once(model)

    workers = WorkerConfig(
        rank=ranks.data_rank, world_size=ranks.data_ranks, data_parallel_group=ranks.data,
        num_workers=recipe.data.num_workers, lanes=recipe.data.lanes, seed_offset=recipe.seed,
        faults=recipe.data.faults.policy(folder),
    )  # fmt: skip
    encoder = task_encoder(recipe.data, recipe.model, config)
    hooks = hooks_of(recipe, model, config=config, encoder=encoder, workers=workers, device=device)
    loop = _loop(recipe, data_ranks=ranks.data_ranks)
    left_out = LeftOut(folder, rank=distributed.get_rank() if distributed.is_initialized() else 0)
    loader = _loader(recipe, encoder, workers, loop) if ranks.loads else None
    own = None if loader is None else left_out.watched(taken_ahead(loader, micro_batches=loop.micro_batches))
    balanced = balanced_loader(own, recipe, config, loop=loop, group=ranks.data)
    hooks += [ToldByLoader(balanced), left_out, FaultCounts(loader)]
    if recipe.features is not None:
        hooks.append(KeptFeatures(model, Path(recipe.features)))

    if not distributed.is_initialized() or distributed.get_rank() == 0:
        replace_file(folder / RECIPE_FILE, yaml.safe_dump(kept_form(recipe), sort_keys=False))
    return Run(
        model=model,
        optimizer=make_optimizer(model, recipe.parts, recipe.optimizer),
        loader=HookedLoader(GroupLoader(balanced, group=ranks.model, device=device), hooks),
        checkpoints=Checkpoints(folder, recipe.checkpoint),
        loop=loop,
        schedule=recipe.schedule,
        log=recipe.log,
        folder=folder,
        group=ranks.data,
        everyone=ranks.everyone,
        pipeline=pipeline_of(model),
        left_out=left_out.write,
        begins=before_first_step(hooks),
        after_step=after_each_step(hooks),
        facts={"recipe": kept_form(recipe)},
        data_sets=_data_sets(loader, group=ranks.everyone, device=device),
    )


def _loader(recipe: Recipe, encoder: LlavaTaskEncoder, workers: WorkerConfig, loop: LoopConfig) -> Loader:
    ahead = recipe.data.batches_ahead(micro_batches=loop.micro_batches)
    return get_savable_loader(training_data(recipe.data, encoder, workers), prefetch_factor=ahead)


def _data_sets(loader: Loader | None, *, group: Group | None, device: torch.device) -> tuple[str, ...]:
    """The names of a mix's data sets on all ranks, whether they load or not; none where there is one data set."""
    names = [] if loader is None else [leaf.name for leaf in loader.dataset.plan.leaves]
    if group is not None:
        told = [names]
        distributed.broadcast_object_list(told, src=0, group=group, device=device)
        names = told[0]
    return tuple(names) if len(names) > 1 else ()


def own_device() -> torch.device:
    """The accelerator of this rank of its machine, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cuda", torch.cuda.current_device())


def _loop(recipe: Recipe, *, data_ranks: int) -> LoopConfig:
    """The loop's settings, with the micro-batches that make the global batch."""
    number = recipe.data.micro_batches(data_ranks=data_ranks)
    return recipe.loop if number is None else replace(recipe.loop, micro_batches=number)
