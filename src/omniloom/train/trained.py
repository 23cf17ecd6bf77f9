"""A trained model opened for use: from the folder of a run, or of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from omniloom.conversion.published import Published, companions_of
from omniloom.errors import ConfigError
from omniloom.generate.prompts import Prompter
from omniloom.model.build import build as build_module
from omniloom.model.llava import Llava
from omniloom.storage.urls import redacted
from omniloom.train.build import own_device
from omniloom.train.checkpoint_places import place_of_checkpoints
from omniloom.train.data import DataConfig, task_encoder
from omniloom.train.filling import fill_model, load_model
from omniloom.train.model_files import RECIPE_FILE, ModelConfig, model_config
from omniloom.train.recipe import read_recipe
from omniloom.weights.source import InMemory


@dataclass(frozen=True)
class Trained:
    """A model ready to answer.

    Attributes:
        model: in evaluation mode, on its device.
        prompter: makes its prompts.
        name: what identifies it: the folder, and the step of a run.
    """

    model: Llava
    prompter: Prompter
    name: str


def run_of(path: Path) -> Path | None:
    """The folder of the run that a path is of, or a step of; ``None`` where it is none."""
    return next((folder for folder in (path, path.parent) if (folder / RECIPE_FILE).is_file()), None)


def open_run(path: Path) -> Published:
    """What a run has trained, as `omniloom.conversion` knows models; it is read into memory whole.

    Args:
        path: of a run (its newest checkpoint), or of one of its steps.

    Raises:
        ConfigError: there is no complete checkpoint.
    """
    settings, _, name = _settings_of(path)
    config = model_config(settings)
    tensors = dict(load_model(settings, config, seed=0).named_parameters())
    companions = {} if settings.folder is None else companions_of(settings.weights_folder)
    source = InMemory({key: value.detach() for key, value in tensors.items()}, where=name)
    return Published(path, "omniloom", config, source, companions=companions)


def open_trained(path: Path, *, template: str | None = None, cut: Callable[[Llava], None] | None = None) -> Trained:
    """Open a model.

    Args:
        path: of a run, of one of its steps, or of a model with its weights.
        template: chat template; ``None``: the run's, or ``vicuna_v1``.
        cut: lays a model without values over the ranks of a job; each then reads its slices alone. ``None``: the model
            is whole.

    Raises:
        ConfigError: there is neither a run with a complete checkpoint nor a model.
    """
    settings, data, name = _settings_of(path)
    config = model_config(settings)
    device = own_device()
    model = load_model(settings, config, seed=0).to(device) if cut is None else build_module(config, device="meta")
    if not isinstance(model, Llava):
        raise ConfigError(f"{path}: a {type(model).__name__} found; a vision-language model expected.")
    if cut is not None:
        cut(model)
        fill_model(model.to_empty(device=device), settings, config, seed=0)
    encoder = task_encoder(data, settings, config, template=template)
    return Trained(model.eval(), Prompter.of(encoder), name)


def _settings_of(path: Path) -> tuple[ModelConfig, DataConfig, str]:
    """Where model and data settings of a path are, and what identifies its weights."""
    run = run_of(path)
    if run is None:
        return ModelConfig(folder=str(path)), DataConfig(train=""), str(path)
    recipe = read_recipe(run / RECIPE_FILE)
    place = recipe.checkpoint.place or run
    found = place_of_checkpoints(place).found()
    if not found:
        where = redacted(recipe.checkpoint.place) or run
        raise ConfigError(f"{where}: a run without a complete checkpoint. Train it first.")
    step = path if path != run else found[max(found)]
    return replace(recipe.model, start=str(step), start_step=None, fresh=()), recipe.data, str(step)
