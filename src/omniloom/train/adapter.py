"""What a run with LoRA has learned, as PEFT reads it: ``adapter_config.json`` and ``adapter_model.safetensors``.

Names are those of the modules of transformers' LLaVA, of release 4.52 and later. Parts that were trained as a whole
beside the products, such as the projector, are in the adapter whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from omniloom.errors import ConfigError
from omniloom.model.build import build as build_module
from omniloom.model.config import LlavaConfig
from omniloom.model.families import tables_of
from omniloom.model.lora import DOWN, UP, LoraConfig
from omniloom.storage.files import replace_file
from omniloom.train.checkpoint import read_weights
from omniloom.train.filling import learned_factors, lora_of_checkpoint
from omniloom.train.model_files import RECIPE_FILE, model_config
from omniloom.train.parts import freeze
from omniloom.train.recipe import Recipe, read_recipe
from omniloom.train.trained import run_of
from omniloom.weights.changes import Same
from omniloom.weights.table import Table

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
_BEFORE = "base_model.model."
_FACTORS = {DOWN: "lora_A", UP: "lora_B"}


@dataclass(frozen=True)
class Adapter:
    """Files of an adapter.

    Attributes:
        config: what ``adapter_config.json`` holds.
        tensors: by their names in ``adapter_model.safetensors``.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def write(self, folder: Path) -> None:
        """Write both files."""
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / WEIGHTS_FILE, save(dict(self.tensors), metadata={"format": "pt"}))
        replace_file(folder / CONFIG_FILE, json.dumps(self.config, indent=2) + "\n")


def adapter_of(path: Path, *, base: str = "") -> Adapter:
    """What a run has learned, as an adapter of the model that it began with.

    Args:
        path: of a run (its newest checkpoint), or of one of its steps.
        base: folder or name of that model in the form of transformers; empty: the run's own.

    Raises:
        ConfigError: it is no run with LoRA, or transformers has no single matrix for what was learned.
    """
    step, recipe = _step_of(path)
    config, lora = model_config(recipe.model), lora_of_checkpoint(step)
    if not lora:
        raise ConfigError(f"{step}: a run without LoRA. `omniloom weights convert` writes its weights.")
    factors, table = learned_factors(step, config), tables_of(config)[-1]
    modules = {linear: _module_of(table, linear) for linear in {name.rpartition(".")[0]: None for name in factors}}
    tensors = {}
    for name, factor in factors.items():
        linear, _, last = name.rpartition(".")
        tensors[f"{modules[linear]}.{_FACTORS[last]}.weight"] = factor
    whole = _trained_whole(step, recipe, config)
    learned = [row for row in table.rows if whole.keys() >= set(row.our_names)]
    tensors |= {row.theirs: row.change.apply(*(whole[name] for name in row.our_names)) for row in learned}
    targets = {modules[name]: lora[name.partition(".")[0]] for name in modules}
    saved = sorted({_part_of(row.theirs) for row in learned})
    settings = _config(targets, saved=saved, base=base or recipe.model.folder or "")
    return Adapter(settings, {f"{_BEFORE}{name}": each.contiguous() for name, each in tensors.items()})


def _config(targets: Mapping[str, LoraConfig], *, saved: list[str], base: str) -> dict[str, Any]:
    first = next(iter(targets.values()))
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": base,
        "r": first.rank,
        "lora_alpha": first.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        # Whole names: ends of names would be those of other parts of the model as well.
        "target_modules": sorted(targets),
        "rank_pattern": {name: each.rank for name, each in targets.items() if each.rank != first.rank},
        "alpha_pattern": {name: each.alpha for name, each in targets.items() if each.alpha != first.alpha},
        "modules_to_save": saved or None,
    }


def _step_of(path: Path) -> tuple[Path, Recipe]:
    run = run_of(path)
    if run is None:
        raise ConfigError(f"{path}: no run with a complete checkpoint there. Train it first.")
    recipe = read_recipe(run / RECIPE_FILE)
    start = recipe.checkpoint.place or str(run) if path == run else str(path)
    step = replace(recipe.model, start=start, start_step=None).start_checkpoint()
    if step is None:
        raise ConfigError(f"{path}: a run without a complete checkpoint. Train it first.")
    return step, recipe


def _trained_whole(step: Path, recipe: Recipe, config: LlavaConfig) -> dict[str, Tensor]:
    """The parameters that were trained themselves."""
    model = build_module(config, device="meta")
    beside = {name for name, part in recipe.parts.items() if part.lora is not None}
    freeze(model, {name: replace(part, lora=None) for name, part in recipe.parts.items()})
    found = {
        name: torch.empty(parameter.shape)
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and name.partition(".")[0] not in beside
    }
    read_weights(step, found)
    return found


def _module_of(table: Table, linear: str) -> str:
    """The module of transformers' model that a linear map of ours is."""
    place = table.by_ours.get(f"{linear}.weight")
    if place is None or place.row.change != Same():
        raise ConfigError(f"{linear}: transformers has no matrix of its own for it, so PEFT has no adapter for it.")
    return place.row.theirs.removesuffix(".weight")


def _part_of(name: str) -> str:
    """The part of transformers' model that a tensor is of."""
    words = name.split(".")
    return words[1] if words[0] == "model" else words[0]
