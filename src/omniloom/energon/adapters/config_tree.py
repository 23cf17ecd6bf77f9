"""What a data set is made of, as the tree of wrappers that Energon's ``config()`` tells.

Its ``slice_offsets`` (which worker reads which rows) have no place here: each epoch is dealt anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from omniloom.data.cook import find_cooker
from omniloom.data.index.tar_rows import TarRows
from omniloom.data.leaf import Leaf
from omniloom.data.loader.dataset import Dataset
from omniloom.data.pipeline.make import make_of
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.plan import Leaf as PlanLeaf
from omniloom.data.recipe import is_crude
from omniloom.data.stateless import get_stateless
from omniloom.data.task import DefaultTaskEncoder

_ENCODERS = "megatron.energon.task_encoder.base"
_FACTORIES = "megatron.energon.flavors.webdataset"
_LOAD = f"{_FACTORIES}.base_webdataset.BaseWebdatasetFactory._load_sample_raw"
_FIELDS = f"{_FACTORIES}.default_generic_webdataset.DefaultGenericWebdatasetFactory.__init__.<locals>.<lambda>"
_PARALLEL_SLICES = 16

Tree = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a getter was asked for.

    Attributes:
        encoder: the task encoder.
        training: whether it is for training.
        settings: the getter's other arguments.
    """

    encoder: Any
    training: bool
    settings: Mapping[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        """One of the other arguments."""
        return self.settings.get(name, default)


def tree_of(dataset: Dataset, asked: Asked) -> Tree:
    """The tree of a data set that a getter made."""
    config = dataset.worker_config.config()  # type: ignore[attr-defined]
    encoder = asked.encoder
    tree = _samples(dataset, asked, config)
    first = "preencode_sample" if encoder.overrides("preencode_sample") else "encode_sample"
    always = isinstance(encoder, DefaultTaskEncoder)
    if encoder.overrides(first) or always:
        tree = mapped(tree, encoder.step(first))
    tree = _packed(tree, asked, config)
    if encoder.overrides("batch_group_criterion"):
        tree = {
            "type": "GroupBatchDataset",
            "bucket": name_of(encoder.step("batch_group_criterion")),
            "batcher": name_of(encoder.step("batch")),
            "batcher_stateless": False,
            "drop_last": bool(asked.get("batch_drop_last", False)),
            "worker_config": config,
            "dataset": tree,
        }
    elif dataset.batch_size is not None:
        tree = {
            "type": "BatchDataset",
            "batch_size": dataset.batch_size,
            "batcher": name_of(encoder.step("batch")),
            "batcher_stateless": _stateless(encoder.step("batch")),
            "drop_last": bool(asked.get("batch_drop_last", False)),
            "worker_config": config,
            "dataset": tree,
        }
    if (encoder.overrides("encode_batch") or always) and tree["type"] in ("BatchDataset", "GroupBatchDataset"):
        tree = mapped(tree, encoder.step("encode_batch"))
    if dataset.virtual_epoch_length:
        length = dataset.virtual_epoch_length
        tree = {"type": "EpochizeDataset", "dataset": tree, "length": length, "worker_config": config}
    if asked.get("limit"):
        more = {"length": asked.get("limit"), "reset_after_epoch": True, "worker_config": config}
        tree = {"type": "LimitDataset", "dataset": tree, **more}
    return tree


def mapped(tree: Tree, function: Any, **config: Any) -> Tree:
    """A function over a tree."""
    more = {"map_fn_config": config} if config else {}
    return {
        "type": "MapDataset",
        "dataset": tree,
        "map_fn": name_of(function),
        **more,
        "map_fn_stateless": _stateless(function),
    }


def name_of(function: Any) -> str:
    """The full name of a function; the ready-made steps have Energon's."""
    if isinstance(function, str):
        return function
    while isinstance(function, partial):
        function = function.func
    module = getattr(function, "__module__", "<unknown>")
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{_ENCODERS if module.startswith('omniloom.') else module}.{name}"


def _stateless(function: Any) -> bool:
    return isinstance(function, str) or function.__module__.startswith("omniloom.") or get_stateless(function)


def _samples(dataset: Dataset, asked: Asked, config: Tree) -> Tree:
    """The cooked samples of all leaves, blended, repeated, shuffled."""
    leaves: Sequence[Any] = make_of(dataset.pipeline).leaves
    plan = dataset.plan
    trees = [_leaf(work, leaf, asked, config) for work, leaf in zip(leaves, plan.leaves, strict=True)]
    if isinstance(plan, InOrder):
        if len(trees) == 1:
            return trees[0]
        return {"type": "ConcatDataset", "datasets": trees}
    counts = all(leaf.passes is not None for leaf in plan.leaves)
    if len(trees) > 1:
        total = sum(leaf.weight for leaf in plan.leaves) or 1
        rules = [leaf.passes for leaf in plan.leaves]
        if counts:
            trees = [
                one if passes == 1 else _repeated(one, _plain(passes), config)
                for one, passes in zip(trees, rules, strict=True)
            ]
            weights = [_plain(leaf.rows * leaf.passes) for leaf in plan.leaves]  # type: ignore[operator]
        else:
            trees = [_repeated(one, None, config) for one in trees]
            weights = [leaf.weight / total for leaf in plan.leaves]
        parts = [list(part) for part in zip(trees, weights, strict=True)]
        trees = [{"type": "BlendDataset", "dataset_weights": parts, "worker_config": config}]
    (tree,) = trees
    if plan.endless and (counts or len(plan.leaves) == 1):
        tree = _repeated(tree, None, config)
    size = asked.get("shuffle_buffer_size")
    if size is not None and size > 1:
        tree = {"type": "ShuffleBufferDataset", "dataset": tree, "size": size, "worker_config": config}
    return tree


def _repeated(tree: Tree, times: Any, config: Tree) -> Tree:
    return {"type": "RepeatDataset", "dataset": tree, "repeats": times, "worker_config": config}


def _plain(number: Any) -> Any:
    return int(number) if number == int(number) else float(number)


def _leaf(work: Leaf, leaf: PlanLeaf, asked: Asked, config: Tree) -> Tree:
    """The samples of one data set, cooked where they are crude."""
    slices = asked.get("parallel_shard_iters")
    multiplier = asked.get("shuffle_over_epochs_multiplier", 1) if asked.training else 1
    tree = {
        "type": "WebdatasetSampleLoaderDataset",
        "joins": len(getattr(work.rows, "columns", ())) or 1,
        "len": leaf.rows,
        "worker_config": config,
        "shuffle_over_epochs": multiplier if asked.training else None,
        "parallel_slice_iters": (slices or _PARALLEL_SLICES) if asked.training else 1,
    }
    rows = work.rows
    shards = rows.index.shards if isinstance(rows, TarRows) else ()
    crude = is_crude(work.cook_row)
    cook: Any = work.cook_row
    decoder = cook.decoder
    said = {
        "type": "CrudeWebdataset" if crude else "StandardWebdatasetFactory",
        "training": asked.training,
        "_path": work.path,
        "shards": [{"name": one.name, "count": one.samples, "_path": one.path} for one in shards],
        "sample_excludes": sorted(f"{one.name}/{key}" for one in shards for key in one.excluded_keys),
        "shuffle_over_epochs": multiplier,
        "parallel_shard_iters": slices,
        "max_samples_per_sequence": asked.get("max_samples_per_sequence"),
        "subset": None if asked.get("subset") is None else str(asked.get("subset")),
        "subflavors": dict(getattr(cook, "subflavors", None) or {}),
        "sample_loader": name_of(getattr(cook, "loader", _FIELDS)),
        **({} if decoder is None else decoder.config()),
    }
    tree = mapped(tree, _LOAD, **said)
    cooker = find_cooker(asked.encoder.cookers, said["subflavors"], where=work.path) if crude else None
    if cooker is None:
        return tree
    told = {"cook": name_of(cooker.cook), "has_subflavors": cooker.has_subflavors, "aux": {}}
    return mapped(tree, asked.encoder.step("cook_crude_sample"), cooker=told)


def _packed(tree: Tree, asked: Asked, config: Tree) -> Tree:
    """Packs of encoded samples; without packing, what comes after the second step of encoding."""
    encoder, size = asked.encoder, asked.get("packing_buffer_size")
    if size is None:
        return mapped(tree, encoder.step("postencode_sample")) if encoder.overrides("postencode_sample") else tree
    return {
        "type": "PackingDataset",
        "buffer_size": size,
        "pre_packer": name_of(encoder.step("select_samples_to_pack")),
        "final_packer": name_of(encoder.step("pack_selected_samples")),
        "final_packer_stateless": _stateless(encoder.step("pack_selected_samples")),
        "worker_config": config,
        "dataset": tree,
    }
