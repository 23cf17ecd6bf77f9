"""Energon's factories: descriptions of one data set, whose ``build`` gives a `EngineDataset` of its single samples."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from omniloom.data.index.layout import DATASET_YAML, SPLIT_YAML
from omniloom.data.index.media_filter import MediaFilterConfig
from omniloom.data.index.media_prepare import add_media_metadata
from omniloom.data.index.prepare import DEFAULT_WORKERS, prepare_dataset
from omniloom.data.index.sample_types import LEGACY_CLASSES
from omniloom.data.index.source_kind import find_source
from omniloom.data.index.splits import SHUFFLE_SEED
from omniloom.data.leaf import Leaf
from omniloom.data.mix.place import Place
from omniloom.data.mix.subset import Subset
from omniloom.data.mix.values import Range, as_subset
from omniloom.data.plan.in_order import InOrder
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf as PlanLeaf
from omniloom.data.plan.plan import Plan
from omniloom.data.recipe import Recipe, is_crude
from omniloom.data.shards.rows import SubRows
from omniloom.data.side.open import open_side_store
from omniloom.data.side.store import FileStore
from omniloom.data.source import LeafOpener
from omniloom.data.source_tools import prepare_source
from omniloom.energon.adapters.building import accepted
from omniloom.energon.adapters.dataset import EngineDataset
from omniloom.energon.adapters.dataset_types import iter_dataset_content
from omniloom.energon.adapters.encoders import OnlyCooks, SampleDecoder, cooked_by, cooks_itself
from omniloom.energon.adapters.epath import EPath
from omniloom.energon.adapters.opening import DescribedOpener, Description, FactoryCook, arguments_of, sample_of
from omniloom.energon.adapters.preparing import FoundParts, ProgressWrapper, turning
from omniloom.energon.adapters.trust import AS_ENERGON
from omniloom.energon.adapters.workers import WorkerConfig
from omniloom.errors import ConfigError

Paths = str | os.PathLike[str]


@dataclass(kw_only=True, eq=False)
class BaseCoreDatasetFactory:
    """One data set, described; not frozen, as classes of users derive from it.

    Attributes:
        path: where it lies.
        training: shuffle it; each sample still comes once.
        worker_config: rank, world and workers.
        split_part: part of the split.
        subflavors: added to each sample's subflavors, stronger than its own.
        dataset_config: name of the description of samples in ``.nv-meta``.
        split_config: name of the split file in ``.nv-meta``.
        subset: range of its rows.
        shuffle_over_epochs: epochs that are shuffled as one; -1: with replacement; ``None``: in order.
        parallel_shard_iters: runs that are mixed at least.
        max_samples_per_sequence: neighbours that stay together at most.
        decoder: decodes the parts; ``None`` leaves them bytes.
        description: in place of the ``dataset.yaml``; ``None``: that of the data set holds.
        aux: stores that its cooker is handed, by name.
        encoder: task encoder whose cookers make its samples; ``None``: crude samples stay so.
    """

    path: Paths
    training: bool = False
    worker_config: Any = field(default_factory=lambda: WorkerConfig(num_workers=0))
    split_part: str = "train"
    subflavors: Mapping[str, Any] | None = None
    dataset_config: str = DATASET_YAML
    split_config: str = SPLIT_YAML
    subset: Range = None
    shuffle_over_epochs: int | None = 1
    parallel_shard_iters: int | None = None
    max_samples_per_sequence: int | None = None
    decoder: Any = field(default_factory=SampleDecoder)
    description: Description | None = None
    aux: Mapping[str, FileStore[Any]] = field(default_factory=dict)
    encoder: Any = None

    def __post_init__(self) -> None:
        leaf = self.leaf()  # a data set that is not there is told of now, and its own subflavors are known
        self.subflavors = getattr(leaf.cook_row, "subflavors", None)

    def __class_getitem__(cls, _sample_type: Any) -> Any:
        return cls

    @property
    def paths(self) -> tuple[EPath, ...]:
        """Where it lies."""
        return (EPath(self.path),)

    @property
    def name(self) -> str:
        """What it is called in logs."""
        return EPath(self.path).display_name

    def __len__(self) -> int:
        return len(self.leaf().rows)

    def leaf(self) -> Leaf:
        """The data set, opened."""
        opener = DescribedOpener(
            self.decoder,
            self.split_part,
            self.split_config,
            self.dataset_config,
            dict(self.subflavors or {}) or None,
            aux=self.aux,
            trust=AS_ENERGON,
            given=self.description,
        )
        path = str(EPath(self.path))
        return self._in_range(opener.open(path, Path(path).name))

    def _in_range(self, leaf: Leaf) -> Leaf:
        """The leaf without the rows that are out of the range."""
        subset: Subset | None = as_subset(self.subset, Place(None, ("subset",)))
        if subset is not None:
            leaf.rows = SubRows(leaf.rows, *subset.of(len(leaf.rows), where=leaf.path))
        return leaf

    def build(self, worker_rotation_offset: int = 0) -> EngineDataset:
        """The data set of its single samples, each once.

        Args:
            worker_rotation_offset: accepted for Energon's sake; lanes are balanced without it.
        """
        leaf = self.leaf()
        plan: InOrder | Plan
        if self.training:
            shuffle = Shuffle.from_energon(
                shuffle_buffer_size=None,
                max_samples_per_sequence=self.max_samples_per_sequence,
                parallel_shard_iters=self.parallel_shard_iters,
                shuffle_over_epochs_multiplier=self.shuffle_over_epochs,
            )
            whole = PlanLeaf(leaf.name, len(leaf.rows), passes=1)
            plan = Plan((whole,), shuffle=shuffle, seed=self.worker_config.seed_offset)
        else:
            plan = InOrder((PlanLeaf(leaf.name, len(leaf.rows)),), 1)
        own = cooks_itself(self.encoder) and is_crude(leaf.cook_row)
        recipe = Recipe(OnlyCooks(None if own else self.encoder), self.worker_config, None, False, None)
        made = EngineDataset.of(recipe.dataset(plan, [leaf], virtual_epoch_length=0, equal_steps=False))
        return cooked_by(self, made) if own else made

    def as_file_store(self) -> FileStore[Any]:
        """The data set as a store of its parts by name."""
        return open_side_store(str(EPath(self.path)))


class BaseWebdatasetFactory(BaseCoreDatasetFactory):
    """A prepared data set of shards; and Energon's functions that prepare one.

    Derive from it, or from a class below it, for samples that a field map cannot say: ``load_sample`` is handed the
    undecoded parts. A ``dataset.yaml`` that names such a class is opened by it, where code of data sets is trusted.

    Args:
        path: where it lies.
        part_filter: names of the parts that are read, or a function of a name; ``None``: all.
        settings: as `BaseCoreDatasetFactory` has them.
    """

    def __init__(self, path: Paths, *, part_filter: Any = None, **settings: Any) -> None:
        if self._loads_itself() and "description" not in settings:
            settings["description"] = _description({"__class__": "CrudeWebdataset"}, part_filter=part_filter)
        super().__init__(path=path, **settings)

    def load_sample(self, sample: dict[str, Any]) -> Any:
        """The sample of undecoded parts by name; with ``__key__``, ``__restore_key__``, ``__sources__``."""
        return sample_of(self._described, sample)

    def sample_filter(self, _key: str) -> bool:
        """Whether a sample is wanted."""
        return True

    def leaf(self) -> Leaf:
        """The data set, opened; its samples are made by ``load_sample`` where a class has its own."""
        leaf = super().leaf()
        if self._loads_itself():
            self._described = leaf.cook_row
            leaf.cook_row = FactoryCook(self, leaf.cook_row)
        return leaf

    @classmethod
    def open_leaf(cls, path: str, *, config: Mapping[str, Any], opener: LeafOpener) -> Leaf:
        """The data set of a ``dataset.yaml`` that names this class, opened.

        Args:
            path: where it lies.
            config: what it says; all of it is the class's arguments.
            opener: what else is asked for.
        """
        where = f"{path}/.nv-meta/{opener.dataset_config}"
        said = arguments_of(config, where=where)
        if opener.subflavors or "subflavors" in said:
            said["subflavors"] = {**(said.get("subflavors") or {}), **(opener.subflavors or {})}
        engine = {
            "split_part": opener.split_part,
            "split_config": opener.split_config,
            "decoder": None if opener.decoder is None else opener.decoder.eager(),
            "aux": opener.aux,
            "training": True,
            "worker_config": WorkerConfig(num_workers=0),
        }
        try:
            made = cls(path=EPath(path), **{**accepted(cls, engine), **said})
        except TypeError as error:
            raise ConfigError(f"{where}: {cls.__name__} cannot be made of what is said here: {error}") from error
        if made.description is None:
            raise ConfigError(f"{where}: {cls.__name__} says not how samples are made: it has no load_sample")
        return made.leaf()

    def _loads_itself(self) -> bool:
        """Whether a class below those of this module says how samples are made, or which are wanted."""
        kind = type(self)
        own = BaseWebdatasetFactory
        return kind.load_sample is not own.load_sample or kind.sample_filter is not own.sample_filter

    @staticmethod
    def prepare_dataset(
        parent_path: Paths,
        paths: Sequence[Paths],
        *,
        split_parts_ratio: Iterable[tuple[str, float]] | None = None,
        split_parts_patterns: Iterable[tuple[str, str]] | None = None,
        split_config: str = SPLIT_YAML,
        shuffle_seed: int | None = SHUFFLE_SEED,
        progress_fn: ProgressWrapper | None = None,
        workers: int = DEFAULT_WORKERS,
        tar_index_only: bool = False,
        media_filter: MediaFilterConfig | None = None,
        fix_duplicates: bool = False,
        index_sqlite_tmp_path: Paths | None = None,
    ) -> FoundParts:
        """Index shards, as `omniloom.prepare_dataset` does.

        Args:
            parent_path: folder of the data set.
            paths: names of the shards, brace patterns allowed.
            split_parts_ratio: (part, share) of each part.
            split_parts_patterns: (part, pattern of shard names) instead.
            split_config: name of the split file.
            shuffle_seed: shuffle the shards before they are dealt by ratio.
            progress_fn: called as ``progress_fn(iterator, length)`` with the shards, whose wrapper is gone through.
            workers: scanning processes at most.
            tar_index_only: renew only the index files of the shards.
            media_filter: also look at the media that it names.
            fix_duplicates: rewrite shards so that keys are unique.
            index_sqlite_tmp_path: build ``index.sqlite`` beside this file.

        Returns:
            names of the parts that samples have; unpacks to them and the duplicate keys, of which there are none.
        """
        tmp_path = None if index_sqlite_tmp_path is None else Path(index_sqlite_tmp_path).parent
        if fix_duplicates:
            from omniloom.data.index.fix_duplicates import fix_duplicates as fix  # noqa: PLC0415 - rarely needed

            fix(parent_path, num_workers=workers)
        prepared = prepare_dataset(
            parent_path,
            shards=None if tar_index_only else [os.fspath(path) for path in paths],
            split_ratio=None if split_parts_ratio is None else dict(split_parts_ratio),
            split_parts=None
            if split_parts_patterns is None
            else [f"{part}:{pattern}" for part, pattern in split_parts_patterns],
            split_config=split_config,
            shuffle_seed=shuffle_seed if split_parts_ratio is not None else None,
            num_workers=workers,
            duplicate_keys="error",
            tar_index_only=tar_index_only,
            tmp_path=tmp_path,
            progress=turning(progress_fn),
        )
        if media_filter is not None:
            add_media_metadata(parent_path, media_filter=media_filter, num_workers=workers, tmp_path=tmp_path)
        return FoundParts(prepared.facts.part_counts)

    iter_dataset_content = staticmethod(iter_dataset_content)

    @staticmethod
    def add_media_metadata(
        parent_path: Paths,
        *,
        media_filter: MediaFilterConfig,
        workers: int = DEFAULT_WORKERS,
        progress_fn: ProgressWrapper | None = None,
        index_sqlite_tmp_path: Paths | None = None,
    ) -> int:
        """Look at the media of a prepared data set, or of a folder.

        Args:
            parent_path: the data set.
            media_filter: which parts are media.
            workers: processes at most.
            progress_fn: as for `prepare_dataset`, with shards or files.
            index_sqlite_tmp_path: build ``index.sqlite`` beside this file.

        Returns:
            media that something is known of.
        """
        tmp_path = None if index_sqlite_tmp_path is None else Path(index_sqlite_tmp_path).parent
        found = add_media_metadata(
            parent_path,
            media_filter=media_filter,
            num_workers=workers,
            tmp_path=tmp_path,
            progress=turning(progress_fn),
        )
        return found.rows_total


class TypedWebdatasetFactory(BaseWebdatasetFactory):
    """A data set whose description is said by arguments: ``StandardWebdatasetFactory`` and the classes by type.

    Args:
        path: where it lies.
        sample_type: class of the samples; the class that a name such as ``CaptioningWebdataset`` stands for, and the
            ``__sample_type__`` of a class derived from it.
        field_map: which part fills which field.
        sample_loader: ``file.py:function`` in ``.nv-meta`` instead, or a function.
        part_filter: the parts that are read: their names, ``file.py:function`` or a function.
        settings: as `BaseCoreDatasetFactory` has them.
    """

    legacy_class: ClassVar[str | None] = None

    def __init__(
        self,
        path: Paths,
        *,
        sample_type: type | None = None,
        field_map: Mapping[str, str] | None = None,
        sample_loader: Any = None,
        part_filter: Any = None,
        **settings: Any,
    ) -> None:
        made_of = sample_type or getattr(self, "__sample_type__", None)
        said = {"field_map": field_map, "sample_loader": sample_loader, "part_filter": part_filter}
        if self.legacy_class is not None:
            said |= {"__module__": "megatron.energon", "__class__": self.legacy_class}
        elif made_of is None:
            raise ConfigError("sample_type is missing: the class of the samples")
        else:
            said["sample_type"] = {"__module__": made_of.__module__, "__class__": made_of.__name__}
        super().__init__(path, description=_description(said, sample_type=made_of), **settings)


def _description(said: Mapping[str, Any], *, part_filter: Any = None, sample_type: type | None = None) -> Description:
    """What was said by arguments: plain values, and functions and classes apart."""
    whole = {**said, **({} if part_filter is None else {"part_filter": part_filter})}
    functions = {name: one for name, one in whole.items() if callable(one)}
    config = {name: one for name, one in whole.items() if one is not None and not callable(one)}
    return Description(config, sample_type, functions.get("sample_loader"), functions.get("part_filter"))


def _legacy(name: str) -> type[TypedWebdatasetFactory]:
    return type(name, (TypedWebdatasetFactory,), {"legacy_class": name, "__doc__": f"A data set of {name} samples."})


LEGACY_FACTORIES = {name: _legacy(name) for name in [*LEGACY_CLASSES, "CrudeWebdataset"]}
"""``CaptioningWebdataset`` and its kin, by name."""


class CrudeJsonlDatasetFactory(BaseCoreDatasetFactory):
    """A JSONL file, whose records come as plain dicts."""

    def __init__(self, path: Paths, **settings: Any) -> None:
        super().__init__(path=path, **settings)

    @staticmethod
    def prepare_dataset(path: Paths) -> int:
        """Index a JSONL file. Gives the number of its records."""
        return prepare_source(find_source(os.fspath(path))).samples


def get_dataset_from_config(path: Paths, *, sample_type: type | None = None, **settings: Any) -> BaseCoreDatasetFactory:
    """The data set at a path, described.

    Args:
        path: where it lies.
        sample_type: the type that its samples have to be of.
        settings: as `BaseCoreDatasetFactory` has them; ``training`` is true where it is not given.

    Raises:
        ConfigError: its samples are of another type.
    """
    given = {name: one for name, one in {"training": True, **settings}.items() if one is not None}
    source = find_source(os.fspath(path), config_name=given.get("dataset_config", DATASET_YAML))
    kind = BaseWebdatasetFactory if source.kind == "webdataset" else BaseCoreDatasetFactory
    made = kind(path=path, **given)
    found = getattr(made.leaf().cook_row, "sample_type", None)
    if sample_type is not None and isinstance(found, type) and not issubclass(found, sample_type):
        raise ConfigError(f"{path}: samples are {found.__name__}, {sample_type.__name__} expected")
    return made
