"""Families of models: a config and a table of tensor names each, both read both ways.

Our names in every table are those of a whole LLaVA model (``language_model.``, ``vision_tower.``, ``projector.``),
also in the tables of single towers and language models, so that parts can be put together without renaming.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError
from omniloom.model.config import DecoderConfig, LlavaConfig, VisionConfig
from omniloom.model.families.clip import CLIP
from omniloom.model.families.dinov2 import DINOV2, DINOV2_REGISTERS
from omniloom.model.families.family import Config, Family, fitting_table
from omniloom.model.families.internvit import INTERNVIT, INTERNVL_VISION
from omniloom.model.families.internvl import make_internvl
from omniloom.model.families.llama import LLAMA
from omniloom.model.families.llava import make_llava
from omniloom.model.families.mistral import MISTRAL
from omniloom.model.families.other_decoders import OTHER_DECODERS
from omniloom.model.families.qwen import QWEN2, QWEN3
from omniloom.model.families.radio import RADIO
from omniloom.model.families.siglip import SIGLIP, SIGLIP2_NAFLEX
from omniloom.weights.table import Table

__all__ = [
    "FAMILIES",
    "Family",
    "family_of",
    "fitting_table",
    "read_config",
    "read_config_file",
    "tables_of",
    "write_config",
]


def read_config(given: Mapping[str, Any]) -> Config:
    """Our config of what config.json holds.

    Raises:
        ConfigError: a model type that is not here, a field that is missing or cannot be honoured.
    """
    kind = given.get("model_type") or _KIND_OF_ARCHITECTURE.get(str(given.get("architectures")))
    for family in FAMILIES.values():
        if kind in family.model_types:
            config: Config = family.read(given)
            return config
    known = sorted(one for family in FAMILIES.values() for one in family.model_types)
    raise ConfigError(
        f"config.json: model_type {kind!r} is not known here; {', '.join(known)} are. "
        "For other language models use `hf:PATH`, which runs transformers' own code."
    )


def read_config_file(path: Path) -> Config:
    """Our config of a config.json, or of the one in a folder.

    Raises:
        ConfigError: the file is absent, is not JSON, or as for `read_config`.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: not a readable config.json: {error}.") from error
    if not isinstance(given, dict):
        raise ConfigError(f"{file}: holds {type(given).__name__}, expected an object of fields.")
    try:
        return read_config(given)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error


def family_of(config: Config, *, form: str = "llava") -> Family:
    """The family that writes this config; a whole model may be written as ``llava`` or ``internvl``.

    Raises:
        ConfigError: there is none.
    """
    name = form if isinstance(config, LlavaConfig) else config.family
    if name not in FAMILIES:
        raise ConfigError(f"a model of family {name!r} has no files of its own here; {', '.join(FAMILIES)} have.")
    return FAMILIES[name]


def write_config(config: Config, *, form: str = "llava") -> dict[str, Any]:
    """What config.json holds.

    Raises:
        ConfigError: the form has no word for a part of the config.
    """
    return family_of(config, form=form).write(config)


def tables_of(config: Config, *, form: str = "llava") -> tuple[Table, ...]:
    """One table for each generation of key names; the first is the one that is written."""
    return family_of(config, form=form).tables(config)


def _read_part(given: Mapping[str, Any]) -> DecoderConfig | VisionConfig:
    part = read_config(given)
    if isinstance(part, LlavaConfig):
        raise ConfigError(f"config.json: a part of the model is a whole model, {given.get('model_type')!r}.")
    return part


# Files of programs outside transformers that leave the model type out.
_KIND_OF_ARCHITECTURE = {"['RADIOModel']": "radio"}
_ALL = (
    *(LLAMA, MISTRAL, QWEN2, QWEN3, OTHER_DECODERS),
    *(CLIP, SIGLIP, SIGLIP2_NAFLEX, INTERNVIT, INTERNVL_VISION, RADIO, DINOV2, DINOV2_REGISTERS),
    make_llava(_read_part, write_config, tables_of),
    make_internvl(_read_part, write_config, tables_of),
)
FAMILIES: Mapping[str, Family] = {family.name: family for family in _ALL}
