"""What a ``dataset.yaml`` says besides the kind of its samples: parts, decoder, split, subflavors, range."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from omniloom.errors import ConfigError

logger = logging.getLogger("omniloom")

OLD_DECODER_KEYS = ("image_decode", "av_decode", "video_decode_audio")
"""Options of the decoder that old versions of Energon had here."""

IDLE_KEYS: dict[str, str] = {
    "max_samples_per_sequence": "give it to get_train_dataset",
    "parallel_shard_iters": "give it to get_train_dataset",
    "shuffle_over_epochs": "give shuffle_over_epochs_multiplier to get_train_dataset, or say it in a mix",
    "handler": "give a fault policy to WorkerConfig",
    "ignore_decoder_errors": "give a fault policy to WorkerConfig",
}
"""Keys that Energon takes here and that have no effect in omniloom, and what to do instead."""

_KEYS = (
    "__module__",
    "__class__",
    "sample_type",
    "field_map",
    "sample_loader",
    "part_filter",
    "subflavors",
    "split_part",
    "split_config",
    "subset",
    "decoder",
    "source",
    "auto_decode",
    *OLD_DECODER_KEYS,
    *IDLE_KEYS,
)
_CLASS_KEYS = ("__module__", "__class__")
_UNSET: Any = object()


@dataclass(frozen=True, kw_only=True)
class DatasetSettings:
    """Settings of a data set.

    Attributes:
        subflavors: of its samples; weaker than those of a mix.
        split_part: part of the split, whatever is asked for; ``None``: what is asked for.
        split_config: name of the split file, likewise.
        part_filter: names of the parts that are read, or ``file.py:function``; ``None``: all.
        subset: value of ``range``, if any.
        decoder_options: options of the decoder that differ; ``None``: parts stay bytes; empty: as the caller says.
        own_decoder: a decoder's class of the user's own, ``__module__`` and ``__class__``, with its arguments.
    """

    subflavors: Mapping[str, Any] = field(default_factory=dict)
    split_part: str | None = None
    split_config: str | None = None
    part_filter: frozenset[str] | str | None = None
    subset: Any = None
    decoder_options: Mapping[str, Any] | None = field(default_factory=dict)
    own_decoder: Mapping[str, Any] | None = None


def read_settings(config: Mapping[str, Any], *, where: str) -> DatasetSettings:
    """Read the settings of a ``dataset.yaml``.

    Args:
        config: its content.
        where: its name, for messages.

    Raises:
        ConfigError: an unknown key, with the nearest known one, or a value of the wrong kind.
    """
    for name in config:
        if name not in _KEYS:
            near = get_close_matches(name, _KEYS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Known are {', '.join(_KEYS)}."
            raise ConfigError(f"{where}: unknown key {name!r}.{hint}")
        if name in IDLE_KEYS:
            logger.warning("%s: %s has no effect here; %s", where, name, IDLE_KEYS[name])
    subflavors = config.get("subflavors")
    _check(subflavors is None or isinstance(subflavors, Mapping), where, "subflavors", subflavors, "a mapping")
    for name in ("split_part", "split_config"):
        value = config.get(name)
        _check(value is None or isinstance(value, str), where, name, value, "a text")
    return DatasetSettings(
        subflavors=subflavors or {},
        split_part=config.get("split_part"),
        split_config=config.get("split_config"),
        part_filter=_part_filter(config.get("part_filter"), where),
        subset=_range(config.get("subset"), where),
        decoder_options=_decoder_options(config, where),
        own_decoder=config["decoder"] if _is_own_decoder(config.get("decoder")) else None,
    )


def _part_filter(value: Any, where: str) -> frozenset[str] | str | None:
    if value is None or isinstance(value, str):
        return value
    usable = isinstance(value, list) and all(isinstance(part, str) for part in value)
    _check(usable, where, "part_filter", value, "a list of parts, or file.py:function")
    return frozenset(value)


def _range(value: Any, where: str) -> Any:
    if value is None:
        return None
    plain = {key: one for key, one in value.items() if key not in _CLASS_KEYS} if isinstance(value, Mapping) else {}
    _check(set(plain) == {"range"}, where, "subset", value, "a mapping such as {range: [0%, 50%]}")
    return plain["range"]


def _decoder_options(config: Mapping[str, Any], where: str) -> Mapping[str, Any] | None:
    if config.get("auto_decode") is False or config.get("decoder", _UNSET) is None:
        return None
    old = {name: config[name] for name in OLD_DECODER_KEYS if name in config}
    value = config.get("decoder", _UNSET)
    if value is _UNSET or _is_own_decoder(value):
        return old
    known = isinstance(value, Mapping) and value.get("__class__") == "SampleDecoder"
    _check(known, where, "decoder", value, "null, or a mapping with __class__: SampleDecoder and its options")
    return old | {name: option for name, option in value.items() if name not in _CLASS_KEYS}


def _is_own_decoder(value: Any) -> bool:
    """Whether a value names a class that is not the ready-made decoder."""
    return isinstance(value, Mapping) and set(_CLASS_KEYS) <= set(value) and value["__class__"] != "SampleDecoder"


def _check(fine: bool, where: str, name: str, value: Any, expected: str) -> None:
    if not fine:
        raise ConfigError(f"{where}: {name} is {value!r:.100}; expected {expected}.")
