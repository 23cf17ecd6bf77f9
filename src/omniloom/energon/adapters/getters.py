"""`get_train_dataset` and its kin as Energon's users call them: every argument of any version, and its trust."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omniloom.data import open as engine
from omniloom.data.leaf import Leaf
from omniloom.data.mix.values import Source
from omniloom.energon.adapters.building import accepted
from omniloom.energon.adapters.config_tree import Asked
from omniloom.energon.adapters.dataset import EngineDataset
from omniloom.energon.adapters.encoders import DefaultTaskEncoder, SampleDecoder, TaskEncoder
from omniloom.energon.adapters.epath import EPath
from omniloom.energon.adapters.loader_interface import own_loader
from omniloom.energon.adapters.mix_rules import check_mix
from omniloom.energon.adapters.mixes import load_dataset
from omniloom.energon.adapters.own_factory import names_own_factory
from omniloom.energon.adapters.trust import AS_ENERGON
from omniloom.energon.adapters.workers import WorkerConfig
from omniloom.errors import ConfigError

logger = logging.getLogger("omniloom")

_DECODER_ARGUMENTS = ("image_decode", "av_decode", "video_decode_audio", "guess_content")
_IGNORED = {
    "handler": "errors are dealt with by WorkerConfig(global_error_handler=, faults=)",
    "ignore_decoder_errors": "errors are dealt with by WorkerConfig(global_error_handler=, faults=)",
    "sample_type": "the data set's own type is used",
}


@dataclass(frozen=True)
class SourceDataset:
    """What an evaluation data set was made of, as `get_val_datasets` names it.

    Attributes:
        name: stable name in the mix.
        paths: where it lies.
        subflavors: what the mix and its configuration say of its samples.
    """

    name: str
    paths: tuple[EPath, ...]
    subflavors: Mapping[str, Any]

    @classmethod
    def of(cls, leaf: Leaf) -> SourceDataset:
        """That of a leaf."""
        return cls(leaf.name, (EPath(leaf.path),), getattr(leaf.cook_row, "subflavors", None) or {})


def get_train_dataset(path: Source, *, task_encoder: Any = None, **settings: Any) -> EngineDataset:
    """A data set for training. Arguments as for `omniloom.get_train_dataset`, and Energon's old ones.

    Args:
        path: a data set of any kind, or a mix.
        task_encoder: what a sample and a batch are.
        settings: as for `omniloom.get_train_dataset`. ``image_decode``, ``av_decode`` and ``video_decode_audio`` set
            the decoder; ``auto_decode=False`` leaves bytes; ``handler`` has no effect. ``packing_buffer_size`` is
            that of a worker, as in Energon.
    """
    encoder, config = _prepared(task_encoder, settings)
    own = own_loader(path)
    if own is None:
        check_mix(path, split_part=settings.get("split_part", "train"), training=True)
    if own is not None or _builds(encoder, "build_train_datasets") or _own_factories(path, settings, training=True):
        return _built(encoder, path, own=own, training=True, **settings)
    asked = Asked(encoder, True, dict(settings))
    if settings.get("packing_buffer_size") is not None:
        settings["packing_buffer_size"] *= config.run_lanes // config.ranks
    return EngineDataset.of(engine.get_train_dataset(path, task_encoder=encoder, trust=AS_ENERGON, **settings), asked)


def get_val_dataset(path: Source, *, task_encoder: Any = None, **settings: Any) -> EngineDataset:
    """A data set for evaluation. Arguments as for `omniloom.get_val_dataset`, and Energon's old ones."""
    encoder, _ = _prepared(task_encoder, settings)
    _without_shuffling(settings)
    own = own_loader(path)
    if own is None:
        check_mix(path, split_part=settings.get("split_part", "val"), training=False)
    if own is not None or _builds(encoder, "build_val_datasets") or _own_factories(path, settings, training=False):
        return _built(encoder, path, own=own, training=False, **settings)
    asked = Asked(encoder, False, dict(settings))
    return EngineDataset.of(engine.get_val_dataset(path, task_encoder=encoder, trust=AS_ENERGON, **settings), asked)


def get_val_datasets(path: Source, *, task_encoder: Any = None, **settings: Any) -> list[tuple[EngineDataset, Any]]:
    """A data set for evaluation of each leaf of ``path`` alone, with what it was made of.

    That is a `SourceDataset`, or the factory, where a task encoder or a loader of the user's own makes the data set.
    """
    encoder, _ = _prepared(task_encoder, settings)
    _without_shuffling(settings)
    own = own_loader(path)
    if own is None:
        check_mix(path, split_part=settings.get("split_part", "val"), training=False)
    if own is not None or _builds(encoder, "build_val_datasets") or _own_factories(path, settings, training=False):
        found, rest = _loaded(encoder, path, own=own, training=False, **settings)
        return [(_put_together(encoder, [one], None, training=False, **rest), one.dataset) for one in found.datasets]
    made = engine.get_val_datasets(path, task_encoder=encoder, trust=AS_ENERGON, **settings)
    asked = Asked(encoder, False, dict(settings))
    return [(EngineDataset.of(dataset, asked), SourceDataset.of(leaf)) for dataset, leaf in made]


def _builds(encoder: Any, name: str) -> bool:
    """Whether a task encoder puts data sets together in a way of its own."""
    return isinstance(encoder, TaskEncoder) and (encoder.builds(name) or encoder.builds("build_cook_crude_sample"))


def _own_factories(path: Source, settings: Mapping[str, Any], *, training: bool) -> bool:
    """Whether a data set is described by a factory with a ``build`` of its own."""
    part = settings.get("split_part", "train" if training else "val")
    config = settings.get("dataset_config")
    return names_own_factory(path, split_part=part, training=training, dataset_config=config)


def _built(encoder: Any, path: Source, *, own: Any, training: bool, **settings: Any) -> EngineDataset:
    """What a task encoder's own method makes of the data sets of a mix, or of a loader of the user's own."""
    found, rest = _loaded(encoder, path, own=own, training=training, **settings)
    return _put_together(encoder, found.datasets, found.blend_mode, training=training, **rest)


def _loaded(
    encoder: Any, path: Source, *, own: Any, training: bool, worker_config: Any, **settings: Any
) -> tuple[Any, dict[str, Any]]:
    """The data sets of a mix or of a loader of the user's own, and the settings of what is made of them."""
    part = settings.pop("split_part", "train" if training else "val")
    multiplier = settings.pop("shuffle_over_epochs_multiplier", 1)
    opening = {
        name: settings.pop(name)
        for name in ("subflavors", "subset", "max_samples_per_sequence", "parallel_shard_iters")
        if name in settings
    }
    names = {name: settings.pop(name) for name in ("dataset_config", "split_config") if name in settings}
    found = (own or load_dataset(path, **names)).get_datasets(
        training=training,
        split_part=part,
        worker_config=worker_config,
        shuffle_over_epochs_multiplier=multiplier,
        decoder=encoder.decoder,
        encoder=encoder,
        **opening,
    )
    return found, {"worker_config": worker_config, "batch_size": 1, **settings}


def _put_together(
    encoder: Any, datasets: list[Any], blend_mode: Any, *, training: bool, **settings: Any
) -> EngineDataset:
    """What a task encoder's method makes of data sets; it is given what its version of the signature has."""
    build = encoder.build_train_datasets if training else encoder.build_val_datasets
    mode = {"blend_mode": blend_mode} if training else {}
    made: EngineDataset = build(**accepted(build, {"datasets": datasets, **mode, **settings}))
    return made


def _prepared(task_encoder: Any, settings: dict[str, Any]) -> tuple[Any, Any]:
    """The task encoder and the worker config; the settings have that, and no arguments any more of old versions."""
    encoder = _encoder(task_encoder, settings)
    config = settings["worker_config"] = settings.get("worker_config") or WorkerConfig()
    if isinstance(encoder, TaskEncoder):
        encoder.count_by_rank(config.ranks)
    return encoder, config


def _encoder(task_encoder: Any, settings: dict[str, Any]) -> Any:
    """The task encoder, with the decoder that old arguments ask for; takes them out of the settings."""
    encoder = task_encoder or DefaultTaskEncoder()
    for name, instead in _IGNORED.items():
        if settings.pop(name, None) is not None:
            logger.warning("argument %s has no effect: %s", name, instead)
    options = {name: settings.pop(name) for name in _DECODER_ARGUMENTS if name in settings}
    auto_decode = settings.pop("auto_decode", True)
    for name in ("dataset_config", "split_config"):
        if settings.get(name, "") is None:
            del settings[name]
    if options:
        warnings.warn(
            f"{', '.join(options)}: set `decoder = SampleDecoder(...)` on the task encoder instead",
            FutureWarning,
            stacklevel=3,
        )
    if not options and auto_decode:
        return encoder
    decoder = SampleDecoder(**options) if auto_decode else None
    if options and encoder.decoder not in (SampleDecoder(), decoder):
        raise ConfigError(
            f"{', '.join(options)}: {type(encoder).__name__} has a decoder of its own, which says something else. "
            "Say it there alone"
        )
    encoder = copy.copy(encoder)
    encoder.decoder = decoder
    return encoder


def _without_shuffling(settings: dict[str, Any]) -> None:
    """Take out of the settings of an evaluation what says nothing there."""
    if settings.pop("parallel_shard_iters", None) not in (None, 1):
        raise ConfigError("parallel_shard_iters: an evaluation goes through its shards in order; leave it out")
    settings.pop("shuffle_over_epochs_multiplier", None)
