"""A model's config as JSON, in the file ``omniloom.json`` beside its weights: every field under its own name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError
from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, RopeConfig, VisionConfig
from omniloom.model.families.family import Config

FILE = "omniloom.json"
FORMAT = 1
_KINDS: Mapping[str, type[Any]] = {"language": DecoderConfig, "vision": VisionConfig, "llava": LlavaConfig}
_PARTS: Mapping[str, type[Any]] = {
    "rope": RopeConfig,
    "language": DecoderConfig,
    "vision": VisionConfig,
    "projector": ProjectorConfig,
}


def config_to_json(config: Config) -> bytes:
    """The file's content."""
    (kind,) = (name for name, of in _KINDS.items() if isinstance(config, of))
    told = {"format": FORMAT, "kind": kind, "config": asdict(config)}
    return (json.dumps(told, indent=2) + "\n").encode()


def config_from_json(path: Path) -> Config:
    """The config of a file.

    Raises:
        ConfigError: it is missing, is not such a file, is of a later format, or has fields that are not known.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: not a readable {FILE}: {error}") from error
    match told:
        case {"format": int(number), "kind": str(kind), "config": dict(values)} if kind in _KINDS:
            if number != FORMAT:
                raise ConfigError(f"{path}: has format {number}; this program reads {FORMAT}. Use a newer one.")
            config: Config = _built(_KINDS[kind], values, path)
            return config
        case _:
            raise ConfigError(f"{path}: expected an object with format, kind ({', '.join(_KINDS)}) and config")


def _built(kind: type[Any], values: Mapping[str, Any], path: Path) -> Any:
    known = {field.name for field in fields(kind)}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise ConfigError(f"{path}: {kind.__name__} has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    filled = {}
    for name, value in values.items():
        if name in _PARTS and isinstance(value, Mapping):
            filled[name] = _built(_PARTS[name], value, path)
        else:
            filled[name] = tuple(value) if isinstance(value, list) else value
    try:
        return kind(**filled)
    except TypeError as error:
        raise ConfigError(f"{path}: {error}") from error
