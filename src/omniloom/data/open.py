"""Opening data sets for training and evaluation: from a path to a pipeline."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omniloom.data.leaf import Leaf
from omniloom.data.loader.config import WorkerConfig
from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.loader import Loader
from omniloom.data.pipeline.make import Make
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf as PlanLeaf
from omniloom.data.plan.plan import Plan
from omniloom.data.recipe import Recipe, evaluation_unit, has_user_code, lane_window
from omniloom.data.source import LeafOpener
from omniloom.data.task import DefaultTaskEncoder, TaskEncoder
from omniloom.errors import ConfigError

logger = logging.getLogger("omniloom")

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Blender:
    """A blend of data sets, by path and weight.

    Attributes:
        parts: (path, weight) of each.
    """

    parts: Sequence[tuple[PathLike, float]]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ConfigError("Blender: no data sets given; expected [(path, weight), ...]")
        for path, weight in self.parts:
            if not isinstance(weight, int | float) or not weight >= 0:
                raise ConfigError(f"Blender: weight {weight!r} of {os.fspath(path)}; a number of at least 0 expected")


def get_train_dataset(
    path: PathLike | Blender,
    *,
    split_part: str = "train",
    worker_config: WorkerConfig | None = None,
    batch_size: int | None = 1,
    batch_drop_last: bool = False,
    packing_buffer_size: int | None = None,
    shuffle_buffer_size: int | None = None,
    max_samples_per_sequence: int | None = None,
    virtual_epoch_length: int = 0,
    shuffle_over_epochs_multiplier: int | None = 1,
    parallel_shard_iters: int | None = None,
    task_encoder: TaskEncoder[Any, Any, Any, Any] | None = None,
    repeat: bool = True,
    equal_steps: bool = False,
    dataset_config: str = "dataset.yaml",
    split_config: str = "split.yaml",
    subflavors: dict[str, Any] | None = None,
) -> Dataset:
    """A data set for training: shuffled, endless unless ``repeat=False``, dealt to lanes.

    Args:
        path: a prepared data set, or a `Blender` of some.
        split_part: part of the split.
        worker_config: rank, world and workers; without it, torch.distributed is asked.
        batch_size: samples (or packs) in a micro-batch; ``None``: they come one by one.
        batch_drop_last: leave out a batch that is not full, where data ends.
        packing_buffer_size: samples among which packs are chosen: the budget of a rank, shared by its lanes.
        shuffle_buffer_size: rows of a lane that are shuffled among themselves at least. It holds integers: a large
            one costs neither memory nor time.
        max_samples_per_sequence: neighbours that stay together in a run at most.
        virtual_epoch_length: batches of each rank in one ``for`` loop; 0: no end.
        shuffle_over_epochs_multiplier: epochs that are shuffled as one; -1: with replacement; ``None``: no shuffling
            of runs, rows come in order but for the shuffle buffer.
        parallel_shard_iters: runs that are mixed at least (16).
        task_encoder: what a sample and a batch are.
        repeat: go on for ever.
        equal_steps: with ``repeat=False``, give every rank equally many batches, the last ones flagged as pads.
        dataset_config: name of the description of samples in ``.nv-meta``.
        split_config: name of the split file in ``.nv-meta``.
        subflavors: added to each sample's subflavors.

    Raises:
        DatasetError: the data set is not prepared, has no such part, or lacks shards.
        ConfigError: settings do not fit together.
    """
    config = worker_config or WorkerConfig()
    encoder = task_encoder or DefaultTaskEncoder()
    blender = path if isinstance(path, Blender) else None
    if blender is not None and not repeat:
        raise ConfigError("repeat=False does not go with weights: a blend by weight has no end of its own")
    opener = _opener(encoder, split_part, split_config, dataset_config, subflavors)
    leaves, weights = _open_leaves(opener, blender.parts if blender is not None else [(path, 1.0)])  # type: ignore[list-item]
    shuffle = Shuffle.from_energon(
        shuffle_buffer_size=shuffle_buffer_size,
        max_samples_per_sequence=max_samples_per_sequence,
        parallel_shard_iters=parallel_shard_iters,
        shuffle_over_epochs_multiplier=shuffle_over_epochs_multiplier,
    )
    plan = Plan(
        tuple(PlanLeaf(leaf.name, len(leaf.rows), weights[leaf.name], passes=None if repeat else 1) for leaf in leaves)
        # Leaves that are left out stand at the end, unopened: a saved state may still know them.
        + tuple(PlanLeaf(name, 0, 0.0) for name, weight in weights.items() if not weight),
        shuffle=shuffle,
        seed=config.seed_offset,
    )
    recipe = Recipe(encoder, config, batch_size, batch_drop_last, lane_window(packing_buffer_size, config))
    return recipe.dataset(plan, leaves, virtual_epoch_length=virtual_epoch_length, equal_steps=equal_steps)


def get_val_dataset(
    path: PathLike,
    *,
    split_part: str = "val",
    worker_config: WorkerConfig | None = None,
    batch_size: int | None = 1,
    batch_drop_last: bool = False,
    packing_buffer_size: int | None = None,
    limit: int | None = None,
    task_encoder: TaskEncoder[Any, Any, Any, Any] | None = None,
    equal_steps: bool = False,
    dataset_config: str = "dataset.yaml",
    split_config: str = "split.yaml",
    subflavors: dict[str, Any] | None = None,
) -> Dataset:
    """A data set for evaluation: every sample once, in the order of its split; batch ``b`` goes to rank ``b % ranks``.

    Args:
        path: a prepared data set.
        split_part: part of the split.
        worker_config: rank, world and workers; without it, torch.distributed is asked.
        batch_size: samples in a batch; ``None``: they come one by one.
        batch_drop_last: leave out a last batch that is not full.
        packing_buffer_size: samples among which packs are chosen.
        limit: batches of each rank at most.
        task_encoder: what a sample and a batch are.
        equal_steps: give every rank equally many batches; those that only even out the steps are flagged as pads.
        dataset_config: name of the description of samples in ``.nv-meta``.
        split_config: name of the split file in ``.nv-meta``.
        subflavors: added to each sample's subflavors.
    """
    config = worker_config or WorkerConfig()
    encoder = task_encoder or DefaultTaskEncoder()
    opener = _opener(encoder, split_part, split_config, dataset_config, subflavors)
    leaves, _ = _open_leaves(opener, [(path, 1.0)])
    unit_rows = evaluation_unit(encoder, batch_size=batch_size, packing_buffer_size=packing_buffer_size)
    plan = InOrder(
        tuple(PlanLeaf(leaf.name, len(leaf.rows)) for leaf in leaves),
        unit_rows,
        units=limit * config.ranks if limit else None,
    )
    recipe = Recipe(encoder, config, batch_size, batch_drop_last, packing_buffer_size)
    return recipe.dataset(plan, leaves, virtual_epoch_length=0, equal_steps=equal_steps)


def get_val_datasets(path: PathLike, **settings: Any) -> list[tuple[Dataset, Leaf]]:
    """One data set for evaluation for each leaf of ``path``, with its leaf. Arguments as for `get_val_dataset`."""
    dataset = get_val_dataset(path, **settings)
    return [(dataset, leaf) for leaf in _leaves_of(dataset)]


def get_savable_loader(dataset: Dataset, **settings: Any) -> Loader:
    """A loader whose state can be saved and restored at every step. Arguments as for `Loader`.

    Energon's arguments for its checkpoints within workers are accepted and have no effect: state travels with every
    batch.
    """
    if settings.get("cache_pool") is None:
        settings.pop("cache_pool", None)
    for name in (
        "worker_config",
        "checkpoint_every_sec",
        "checkpoint_every_min_n_samples",
        "n_checkpoints",
        "gc_collect_every_n_steps",
    ):
        settings.pop(name, None)
    return Loader(dataset, **settings)


def get_loader(dataset: Dataset, **settings: Any) -> Loader:
    """The same as `get_savable_loader`: every loader can be saved."""
    return get_savable_loader(dataset, **settings)


def _opener(
    encoder: TaskEncoder[Any, Any, Any, Any],
    split_part: str,
    split_config: str,
    dataset_config: str,
    subflavors: dict[str, Any] | None,
) -> LeafOpener:
    decoder = encoder.decoder
    if decoder is not None and not has_user_code(encoder):
        decoder = replace(decoder, late=True)  # then only the caller's process needs torch
    return LeafOpener(decoder, split_part, split_config, dataset_config, subflavors)


def _open_leaves(opener: LeafOpener, parts: Sequence[tuple[PathLike, float]]) -> tuple[list[Leaf], dict[str, float]]:
    """The leaves of some paths, opened where their weight is not 0, and the weights of all by name.

    A path that comes twice is one leaf with the sum of its weights.
    """
    weights: dict[str, float] = {}
    for path, weight in parts:
        resolved = str(Path(path).resolve())
        if resolved in weights:
            logger.warning("%s comes twice in the mix; it is one data set with the sum of its weights", resolved)
        weights[resolved] = weights.get(resolved, 0.0) + weight
    names = _stable_names(list(weights))
    opened = [opener.open(path, name) for path, name in zip(weights, names, strict=True) if weights[path]]
    if not opened:
        raise ConfigError(f"no sample can be drawn: all weights are 0 ({', '.join(weights)})")
    return opened, dict(zip(names, weights.values(), strict=True))


def _stable_names(paths: list[str]) -> list[str]:
    """Names of leaves by which seeds and cursors go: the last folders of their paths, as many as tell them apart.

    So a data set that is moved, or mounted elsewhere on another node, is still the same leaf.
    """
    for count in range(1, max(len(Path(path).parts) for path in paths) + 1):
        names = ["/".join(Path(path).parts[-count:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return paths


def _leaves_of(dataset: Dataset) -> list[Leaf]:
    stage: Any = dataset.pipeline
    while not isinstance(stage, Make):
        stage = stage.source
    return list(stage.leaves)  # type: ignore[arg-type]
