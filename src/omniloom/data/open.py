"""Opening data sets for training and evaluation: from a path to a pipeline."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omniloom.data.index.dataset import dataset_config, open_dataset
from omniloom.data.index.dataset_yaml import describe_samples
from omniloom.data.kinds import SAMPLE_CLASSES
from omniloom.data.leaf import CrudeCook, FieldCook, Leaf, TarRows
from omniloom.data.loader.config import WorkerConfig
from omniloom.data.loader.dataset import Dataset, Pipeline
from omniloom.data.loader.finish import finisher
from omniloom.data.loader.loader import Loader
from omniloom.data.pipeline import seeding
from omniloom.data.pipeline.batch import Batch, Call, Map
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.pack import Pack
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf as PlanLeaf
from omniloom.data.plan.plan import Plan
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
    opener = _Opener(encoder, split_part, split_config, dataset_config, subflavors)
    leaves, weights = opener.leaves(blender.parts if blender is not None else [(path, 1.0)])  # type: ignore[list-item]
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
    recipe = _Recipe(encoder, config, batch_size, batch_drop_last, _lane_window(packing_buffer_size, config))
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
    opener = _Opener(encoder, split_part, split_config, dataset_config, subflavors)
    leaves, _ = opener.leaves([(path, 1.0)])
    unit_rows = packing_buffer_size or batch_size or 1
    plan = InOrder(
        tuple(PlanLeaf(leaf.name, len(leaf.rows)) for leaf in leaves),
        unit_rows,
        units=limit * config.ranks if limit else None,
    )
    recipe = _Recipe(encoder, config, batch_size, batch_drop_last, packing_buffer_size)
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


@dataclass(frozen=True)
class _Opener:
    encoder: TaskEncoder[Any, Any, Any, Any]
    split_part: str
    split_config: str
    dataset_config: str
    subflavors: dict[str, Any] | None

    def leaves(self, parts: Sequence[tuple[PathLike, float]]) -> tuple[list[Leaf], dict[str, float]]:
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
        opened = [self._leaf(path, name) for path, name in zip(weights, names, strict=True) if weights[path]]
        if not opened:
            raise ConfigError(f"no sample can be drawn: all weights are 0 ({', '.join(weights)})")
        return opened, dict(zip(names, weights.values(), strict=True))

    def _leaf(self, path: str, name: str) -> Leaf:
        index = open_dataset(path, split_part=self.split_part, split_config=self.split_config)
        where = f"{path}/.nv-meta/{self.dataset_config}"
        config = dataset_config(path, name=self.dataset_config)
        cook = self._cook(config, where)
        return Leaf(name, TarRows(index, split_config=self.split_config, wanted=cook.wanted), cook, path)

    def _cook(self, config: dict[str, Any], where: str) -> FieldCook | CrudeCook:
        described = describe_samples(config, where=where)
        subflavors = {**(config.get("subflavors") or {}), **(self.subflavors or {})} or None
        decoder = self.encoder.decoder
        if decoder is not None and not _has_user_code(self.encoder):
            decoder = replace(decoder, late=True)  # then only the caller's process needs torch
        if described.crude:
            return CrudeCook(decoder, subflavors)
        if described.type_name not in SAMPLE_CLASSES:
            raise ConfigError(
                f"{where}: sample type {described.module}.{described.type_name} is not one of omniloom's: "
                f"{', '.join(SAMPLE_CLASSES)}, CrudeWebdataset"
            )
        if described.fields is None:
            raise ConfigError(
                f"{where}: no field_map; `sample_loader` runs code of the data set, which is not done here.\n"
                "  Write a field_map, or declare the data set crude and make the samples in encode_sample."
            )
        return FieldCook(SAMPLE_CLASSES[described.type_name], described.fields, decoder, subflavors)


def _stable_names(paths: list[str]) -> list[str]:
    """Names of leaves by which seeds and cursors go: the last folders of their paths, as many as tell them apart.

    So a data set that is moved, or mounted elsewhere on another node, is still the same leaf.
    """
    for count in range(1, max(len(Path(path).parts) for path in paths) + 1):
        names = ["/".join(Path(path).parts[-count:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return paths


def _has_user_code(encoder: TaskEncoder[Any, Any, Any, Any]) -> bool:
    names = ("encode_sample", "postencode_sample", "batch", "encode_batch", "select_samples_to_pack")
    return any(encoder.overrides(name) for name in (*names, "pack_selected_samples"))


def _lane_window(packing_buffer_size: int | None, config: WorkerConfig) -> int | None:
    """A lane's share of the rank's packing buffer."""
    if packing_buffer_size is None:
        return None
    return max(1, packing_buffer_size * config.ranks // config.run_lanes)


@dataclass(frozen=True)
class _Recipe:
    """How a pipeline is put together."""

    encoder: TaskEncoder[Any, Any, Any, Any]
    config: WorkerConfig
    batch_size: int | None
    drop_last: bool
    window: int | None

    def dataset(
        self, plan: Plan | InOrder, leaves: list[Leaf], *, virtual_epoch_length: int, equal_steps: bool
    ) -> Dataset:
        user_code = _has_user_code(self.encoder)
        late = self.encoder.decoder is not None and not user_code
        return Dataset(
            self._pipeline(plan, leaves),
            plan,
            self.config,
            self.batch_size,
            virtual_epoch_length=virtual_epoch_length,
            equal_steps=equal_steps,
            finish=finisher(late=late, pin=bool(self.config.pin_memory)),
            user_code=user_code,
            paths=tuple(leaf.path for leaf in leaves),
        )

    def _pipeline(self, plan: Plan | InOrder, leaves: list[Leaf]) -> Pipeline:
        stage = self._samples(plan, leaves)
        if self.batch_size is None:
            return stage
        if self.batch_size < 1:
            raise ConfigError(f"batch_size={self.batch_size} found; at least 1, or None for single samples, expected")
        encoder = self.encoder
        calls: list[Call] = [("batch", seeding.BATCH if encoder.overrides("batch") else 0, encoder.batch)]
        if _steps(encoder)[1]:
            number = seeding.ENCODE_BATCH if encoder.overrides("encode_batch") else 0
            calls.append(("encode_batch", number, encoder.encode_batch))
        return Batch(stage, self.batch_size, tuple(calls), drop_last=self.drop_last)

    def _samples(self, plan: Plan | InOrder, leaves: list[Leaf]) -> Make | Map | Pack:
        encoder = self.encoder
        encode = encoder.encode_sample if _steps(encoder)[0] else None
        make = Make(plan, tuple(leaves), encode=encode, seed=self.config.seed_offset, ahead=_rows_ahead(leaves))
        postencode = encoder.postencode_sample if encoder.overrides("postencode_sample") else None
        if self.window is not None:
            missing = [n for n in ("select_samples_to_pack", "pack_selected_samples") if not encoder.overrides(n)]
            if missing:
                raise ConfigError(
                    f"packing_buffer_size needs a task encoder that says how to pack: {type(encoder).__name__} has no "
                    f"{' and no '.join(missing)}"
                )
            return Pack(
                make,
                window_samples=self.window,
                select=encoder.select_samples_to_pack,
                pack=encoder.pack_selected_samples,
                postencode=postencode,
            )
        return make if postencode is None else Map(make, ("postencode_sample", seeding.POSTENCODE, postencode))


def _rows_ahead(leaves: list[Leaf]) -> int:
    """Rows to decode ahead: a few where images are decoded, none where a thread costs more than it saves."""
    return 4 if any(leaf.decodes_images() for leaf in leaves) else 0


def _steps(encoder: TaskEncoder[Any, Any, Any, Any]) -> tuple[bool, bool]:
    """Whether there is something to do in encode_sample and in encode_batch."""
    encodes, converts = encoder.overrides("encode_sample"), encoder.overrides("encode_batch")
    if isinstance(encoder, DefaultTaskEncoder):
        encodes, converts = encodes or encoder.converts[0], converts or encoder.converts[1]
    return encodes, converts


def _leaves_of(dataset: Dataset) -> list[Leaf]:
    stage: Any = dataset.pipeline
    while not isinstance(stage, Make):
        stage = stage.source
    return list(stage.leaves)  # type: ignore[arg-type]
