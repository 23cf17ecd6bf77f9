"""The values of a model: each rank reads those that it holds, from files in any published form, or from a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from omniloom.conversion.loading import fill_parameter, load_weights, local_box
from omniloom.conversion.published import open_published
from omniloom.errors import ConfigError
from omniloom.model.build import build as build_module
from omniloom.model.build import parameter_shapes
from omniloom.model.config import LlavaConfig
from omniloom.model.initialize import initialize
from omniloom.model.lora import DOWN, UP, LoraConfig, add_lora, fresh_factor, is_lora, merge_lora
from omniloom.train.checkpoint import TRAINER, CheckpointConfig, Checkpoints, read_weights
from omniloom.train.model_files import ModelConfig
from omniloom.weights.source import InMemory, Joined, Renamed, Source


def load_model(settings: ModelConfig, config: LlavaConfig, *, seed: int) -> nn.Module:
    """The whole model with its weights, in this process: of the folder, in any published form, or of a run.

    What a run has learned beside its matrices (`omniloom.model.lora`) is merged into them.
    """
    model = build_module(config, device="meta")
    start = settings.start_checkpoint()
    add_lora(model, {} if start is None else lora_of_checkpoint(start))
    model.to_empty(device="cpu")
    if start is None:
        fill_model(model, settings, config, seed=seed)
        return model
    Checkpoints(start.parent, CheckpointConfig()).restore(start, model, None)
    merge_lora(model)
    fill_model(model, settings, config, seed=seed, only_fresh=True)
    return model


def fill_model(
    model: nn.Module, settings: ModelConfig, config: LlavaConfig, *, seed: int, only_fresh: bool = False
) -> None:
    """Give a model its values; of a parameter that is cut or sharded, a rank reads what it holds. All ranks call it.

    Args:
        model: with memory for its parameters, laid over ranks or whole.
        settings: say where the values are, and which parts start anew.
        config: of the whole model.
        seed: of what starts anew.
        only_fresh: leave all others as they are.

    Raises:
        ConfigError: a part that starts anew is none of the model's.
        WeightsError: files do not fit the model.
    """
    unknown = [name for name in settings.fresh if name not in _PARTS]
    if unknown:
        raise ConfigError(f"model.fresh: {unknown[0]!r} found; some of {', '.join(_PARTS)} expected.")
    whole = parameter_shapes(config)
    fresh = InMemory(dict(_fresh_values(settings, config, seed=seed)), where="fresh values")
    for name, parameter in model.named_parameters():
        if name in fresh.tensors:
            fill_parameter(parameter, fresh, name)
        elif is_lora(name) and not only_fresh:
            value = {name: fresh_factor(name, tuple(parameter.shape), seed=seed)}
            fill_parameter(parameter, InMemory(value), name)
    if only_fresh or set(settings.fresh) == set(_PARTS):
        return
    start = settings.start_checkpoint()
    if start is None:
        published = open_published(settings.weights_folder, fresh=settings.fresh)
        load_weights(model, Joined(_without(published.source, settings.fresh), fresh), whole=whole)
        published.source.close()
    else:
        _restore(model, start, but=fresh)
        _merge_products(model, start, config, but=fresh)


def learned_factors(start: Path, config: LlavaConfig) -> dict[str, torch.Tensor]:
    """What a run has learned beside its matrices, whole, by name: small beside what it was added to.

    Args:
        start: a checkpoint of the run.
        config: of its model.
    """
    model = build_module(config, device="meta")
    add_lora(model, lora_of_checkpoint(start))
    factors = {name: torch.empty_like(each, device="cpu") for name, each in model.named_parameters() if is_lora(name)}
    if factors:
        read_weights(start, {name: each.requires_grad_(False) for name, each in factors.items()})
    return factors


def lora_of_checkpoint(step: Path) -> dict[str, LoraConfig]:
    """What the run of a checkpoint has learned beside its matrices, by part."""
    try:
        recipe: Mapping[str, Any] = json.loads((step / TRAINER).read_text()).get("recipe", {})
    except (OSError, ValueError):
        return {}  # reading its weights will tell
    told = {name: part.get("lora") for name, part in recipe.get("parts", {}).items()}
    return {
        name: LoraConfig(rank=lora["rank"], alpha=lora["alpha"], matrices=tuple(lora["matrices"]))
        for name, lora in told.items()
        if lora
    }


_PARTS = ("vision_tower", "projector", "language_model")


def _fresh_values(settings: ModelConfig, config: LlavaConfig, *, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Values of the parts that start anew, which are the same whatever ranks there are."""
    generator = torch.Generator().manual_seed(seed)
    module = build_module(config, device="meta")
    for part, child in module.named_children():
        if part in settings.fresh:
            child.to_empty(device="cpu")
            initialize(child, generator=generator)
            yield from ((f"{part}.{name}", value.detach()) for name, value in child.named_parameters())


def _without(source: Source, parts: tuple[str, ...]) -> Source:
    return Renamed(source, {name: name for name in source.tensors if name.partition(".")[0] not in parts})


def _restore(model: nn.Module, start: Path, *, but: Source) -> None:
    """Weights of a run. What starts anew, and factors, which the run has not, keep their values."""
    kept = {name: each.detach().clone() for name, each in model.named_parameters() if name in but.tensors}
    factors = _taken_out(model)
    Checkpoints(start.parent, CheckpointConfig()).restore(start, model, None)
    for module, name, factor in factors:
        module.register_parameter(name, factor)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in kept:
                parameter.copy_(kept[name])


@torch.no_grad()
def _merge_products(model: nn.Module, start: Path, config: LlavaConfig, *, but: Source) -> None:
    """Add to the weights of a run with LoRA its products; of each, a rank computes what it holds of the matrix."""
    factors, settings = learned_factors(start, config), lora_of_checkpoint(start)
    for name, parameter in model.named_parameters():
        linear = name.removesuffix(".weight")
        if name in but.tensors or f"{linear}.{DOWN}" not in factors:
            continue
        down, up = factors[f"{linear}.{DOWN}"], factors[f"{linear}.{UP}"]
        own = parameter.data
        if isinstance(parameter, DTensor):
            own = parameter.to_local()
            for cut in local_box(parameter):
                held = slice(cut.start, cut.stop)
                down, up = (down, up[held]) if cut.axis == 0 else (down[:, held], up)
        if own.numel():
            product = (up.float() @ down.float()) * settings[name.partition(".")[0]].scale
            own.add_(product.to(own))


def _taken_out(model: nn.Module) -> list[tuple[nn.Module, str, nn.Parameter]]:
    found = [
        (module, name, parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if is_lora(name)
    ]
    for module, name, _ in found:
        delattr(module, name)
    return found
