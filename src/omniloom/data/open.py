"""Opening data sets for training and evaluation: from a path to a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from omniloom.data.leaf import Leaf
from omniloom.data.loader.config import WorkerConfig
from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.loader import Loader
from omniloom.data.mix.flatten import Flat, flatten
from omniloom.data.mix.place import Place
from omniloom.data.mix.read import as_node
from omniloom.data.mix.values import Range, Source, as_subset
from omniloom.data.mixed import MixOpener
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf as PlanLeaf
from omniloom.data.plan.plan import Plan
from omniloom.data.recipe import Recipe, evaluation_unit, lane_window, makes_tensors_late
from omniloom.data.side import open_side_store
from omniloom.data.source import LeafOpener
from omniloom.data.task import DefaultTaskEncoder, TaskEncoder
from omniloom.errors import ConfigError


def get_train_dataset(
    path: Source,
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
    subflavors: Mapping[str, Any] | None = None,
    subset: Range = None,
    trust: bool = False,
) -> Dataset:
    """A data set for training: shuffled, endless unless ``repeat=False``, dealt to lanes.

    Args:
        path: a data set of any kind, a metadataset, or a mix: what `source`, `blend`, `blend_epochized`, `concat`,
            `join` and `Blender` give, or a dict with the content of a metadataset.
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
        subflavors: added to each sample's subflavors, stronger than those of the mix.
        subset: range of the rows, such as ``("0%", "50%")``, of each data set of the mix.
        trust: whether code that a data set or a mix names may be imported; ``OMNILOOM_TRUST=0`` forbids it.

    Raises:
        DatasetError: the data set is not prepared, has no such part, or lacks shards.
        ConfigError: settings do not fit together.
    """
    config = worker_config or WorkerConfig()
    encoder = task_encoder or DefaultTaskEncoder()
    flat = _flat(
        path,
        split_part=split_part,
        training=True,
        subflavors=subflavors,
        multiplier=shuffle_over_epochs_multiplier,
        subset=subset,
    )
    if flat.mode == "weights" and not repeat:
        raise ConfigError("repeat=False does not go with weights: a blend by weight has no end of its own")

    def shuffle(multiplier: int | None) -> Shuffle:
        return Shuffle.from_energon(
            shuffle_buffer_size=shuffle_buffer_size,
            max_samples_per_sequence=max_samples_per_sequence,
            parallel_shard_iters=parallel_shard_iters,
            shuffle_over_epochs_multiplier=multiplier,
        )

    default = shuffle(shuffle_over_epochs_multiplier)
    opener = _opener(encoder, split_config, dataset_config, trust=trust)
    opened = opener.open_training(flat, shuffle=shuffle, default=default, repeat=repeat)
    plan = Plan(
        opened.plan_leaves,
        shuffle=default,
        seed=config.seed_offset,
        repeat=repeat and opened.repeats_as_one,
        weights_in=flat.weights_in or "samples",
        schedule_in=flat.schedule_in or "samples",
    )
    recipe = Recipe(encoder, config, batch_size, batch_drop_last, lane_window(packing_buffer_size, config))
    return recipe.dataset(plan, opened.leaves, virtual_epoch_length=virtual_epoch_length, equal_steps=equal_steps)


def get_val_dataset(
    path: Source,
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
    subflavors: Mapping[str, Any] | None = None,
    subset: Range = None,
    trust: bool = False,
) -> Dataset:
    """A data set for evaluation: every sample once, in the order of its split; batch ``b`` goes to rank ``b % ranks``.

    Args:
        path: a data set of any kind, a metadataset, or a mix, as for `get_train_dataset`. Weights and repetitions do
            not count here: the data sets follow one another.
        split_part: part of the split.
        worker_config: rank, world and workers; without it, torch.distributed is asked.
        batch_size: samples in a batch; ``None``: they come one by one.
        batch_drop_last: leave out a last batch that is not full.
        packing_buffer_size: samples among which packs are chosen.
        limit: batches of each rank at most, also where samples are packed, grouped or made into several.
        task_encoder: what a sample and a batch are.
        equal_steps: give every rank equally many batches; those that only even out the steps are flagged as pads.
        dataset_config: name of the description of samples in ``.nv-meta``.
        split_config: name of the split file in ``.nv-meta``.
        subflavors: added to each sample's subflavors, stronger than those of the mix.
        subset: range of the rows, of each data set of the mix.
        trust: whether code that a data set or a mix names may be imported; ``OMNILOOM_TRUST=0`` forbids it.
    """
    evaluation = _Evaluation(
        split_part=split_part,
        worker_config=worker_config,
        batch_size=batch_size,
        batch_drop_last=batch_drop_last,
        packing_buffer_size=packing_buffer_size,
        limit=limit,
        task_encoder=task_encoder,
        equal_steps=equal_steps,
        dataset_config=dataset_config,
        split_config=split_config,
        subflavors=subflavors,
        subset=subset,
        trust=trust,
    )
    return evaluation.dataset(evaluation.open(path))


def get_val_datasets(path: Source, **settings: Any) -> list[tuple[Dataset, Leaf]]:
    """A data set for evaluation of each leaf of ``path`` alone, with the leaf. Arguments as for `get_val_dataset`.

    The leaf says what it is: ``leaf.name``, ``leaf.path``.
    """
    evaluation = _Evaluation(**settings)
    return [(evaluation.dataset([leaf]), leaf) for leaf in evaluation.open(path)]


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


@dataclass(kw_only=True)
class _Evaluation:
    """The arguments of `get_val_dataset`, under the same names."""

    split_part: str = "val"
    worker_config: WorkerConfig | None = None
    batch_size: int | None = 1
    batch_drop_last: bool = False
    packing_buffer_size: int | None = None
    limit: int | None = None
    task_encoder: TaskEncoder[Any, Any, Any, Any] | None = None
    equal_steps: bool = False
    dataset_config: str = "dataset.yaml"
    split_config: str = "split.yaml"
    subflavors: Mapping[str, Any] | None = None
    subset: Range = None
    trust: bool = False

    def __post_init__(self) -> None:
        self.encoder = self.task_encoder or DefaultTaskEncoder()
        self.config = self.worker_config or WorkerConfig()

    def open(self, path: Source) -> list[Leaf]:
        """The leaves of a mix, in their order."""
        flat = _flat(path, split_part=self.split_part, training=False, subflavors=self.subflavors, subset=self.subset)
        opener = _opener(self.encoder, self.split_config, self.dataset_config, trust=self.trust)
        return opener.open_evaluation(flat)

    def dataset(self, leaves: list[Leaf]) -> Dataset:
        """The data set that goes through some leaves, one after the other."""
        plan = InOrder(
            tuple(PlanLeaf(leaf.name, len(leaf.rows)) for leaf in leaves),
            evaluation_unit(self.encoder, batch_size=self.batch_size, packing_buffer_size=self.packing_buffer_size),
        )
        recipe = Recipe(self.encoder, self.config, self.batch_size, self.batch_drop_last, self.packing_buffer_size)
        whole = recipe.dataset(plan, leaves, virtual_epoch_length=0, equal_steps=self.equal_steps)
        return whole.limited(self.limit) if self.limit else whole


def _flat(
    path: Source,
    *,
    split_part: str,
    training: bool,
    subflavors: Mapping[str, Any] | None,
    subset: Range,
    multiplier: int | None = 1,
) -> Flat:
    outer = as_subset(subset, Place(None, ("subset",)))
    return flatten(
        as_node(path),
        split_part=split_part,
        training=training,
        subflavors=subflavors,
        multiplier=multiplier,
        subset=outer,
    )


def _opener(
    encoder: TaskEncoder[Any, Any, Any, Any], split_config: str, dataset_config: str, *, trust: bool
) -> MixOpener:
    decoder = encoder.decoder
    if decoder is not None and makes_tensors_late(encoder):
        decoder = replace(decoder, late=True)
    opener = LeafOpener(decoder, "", split_config, dataset_config, None, trust=trust)
    return MixOpener(opener, cache(open_side_store))
