"""A recipe: all settings of a run, from a YAML file and flags."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from omniloom.config.reading import read_dataclass, set_value, to_plain
from omniloom.data.index.yaml_dialect import load_yaml
from omniloom.errors import ConfigError
from omniloom.parallel.plan import ParallelConfig
from omniloom.storage.node_copy import kept_copy
from omniloom.storage.urls import is_url, redacted, without_secrets
from omniloom.train.checkpoint import CheckpointConfig
from omniloom.train.data import DataConfig
from omniloom.train.hang_watch import HangConfig
from omniloom.train.in_training import EvaluationConfig
from omniloom.train.loop import LoopConfig
from omniloom.train.metrics import LogConfig
from omniloom.train.model_files import ModelConfig
from omniloom.train.optimizer import OptimizerConfig
from omniloom.train.parts import PartConfig
from omniloom.train.profiling import ProfileConfig
from omniloom.train.schedule import ScheduleConfig
from omniloom.vlm.jinja_template import OWN_TEMPLATE

logger = logging.getLogger("omniloom")

_MERGE_KEY = "<<"
_LOOKING_ON = ("evaluation.", "profile.")
Status = Literal["run", "built-on-meta", "unrun"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A run.

    Attributes:
        status: ``run``: it ran to its end; ``built-on-meta``: only its model was built; ``unrun``.
        folder: of the run: checkpoints, steps, the resolved recipe.
        seed: of the order of data and of fresh weights.
        model, data, parts, loop, optimizer, schedule, parallel, checkpoint, log: see their classes.
        evaluation, profile, hang: what looks on meanwhile.
        features: folder where the features that a tower gives are kept, which is not trained; ``None``: nowhere, and
            each step sees its images anew. See `omniloom.train.kept_features`.
        note: for people.
    """

    status: Status = "unrun"
    folder: str
    model: ModelConfig
    data: DataConfig
    loop: LoopConfig
    parts: Mapping[str, PartConfig] = field(default_factory=dict)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    profile: ProfileConfig = field(default_factory=ProfileConfig)
    hang: HangConfig = field(default_factory=HangConfig)
    features: str | None = None
    seed: int = 0
    note: str = ""


def refuse_contradictions(recipe: Recipe) -> None:
    """See that no setting is without effect because of another, or for want of one.

    Of what only looks on (a recipe's evaluation, for a trial without held-out data), it is warned.

    Raises:
        ConfigError: one is; names both.
    """
    data, evaluation, usual = recipe.data, recipe.evaluation, DataConfig(train="")
    of_tiles = {name: getattr(data, name) for name in ("max_tiles", "thumbnail", "tile_choice")}
    without_effect = (
        (
            "evaluation.every_steps", evaluation.every_steps,
            "data.validation or evaluation.benchmarks", data.validation or evaluation.benchmarks,
        ),
        ("evaluation.samples", evaluation.samples, "data.validation", data.validation),
        ("evaluation.sample_every_steps", evaluation.sample_every_steps, "evaluation.samples", evaluation.samples),
        (
            "evaluation.benchmark_every_steps", evaluation.benchmark_every_steps,
            "evaluation.benchmarks", evaluation.benchmarks,
        ),
        ("data.most_questions", data.most_questions, "data.turns apart", data.turns == "apart"),
        ("data.image_token", data.image_token, "data.template model", data.template == OWN_TEMPLATE),
        ("data.template_variables", data.template_variables, "data.template model", data.template == OWN_TEMPLATE),
        ("data.pack_tiles", data.pack_tiles, "data.pack_tokens", data.pack_tokens),
        *(
            (f"data.{name}", value != getattr(usual, name), "data.layout tiles", data.layout == "tiles")
            for name, value in of_tiles.items()
        ),
        (
            "schedule.decay_steps", recipe.schedule.decay_steps,
            "a schedule.decay that goes down", recipe.schedule.decay != "constant",
        ),
        (
            f"profile.first_step {recipe.profile.first_step}", recipe.profile.first_step,
            f"as many loop.steps, of which there are {recipe.loop.steps},",
            recipe.profile.first_step <= recipe.loop.steps,
        ),
    )  # fmt: skip
    for name, value, needed, found in without_effect:
        if value and not found:
            told = f"{name}: found without {needed}, and so of no effect. Give both, or neither."
            if not name.startswith(_LOOKING_ON):
                raise ConfigError(told)
            logger.warning("%s", told)


def read_recipe(path: str | Path, overrides: Sequence[str] = (), *, workspace: Path | None = None) -> Recipe:
    """The recipe of a file.

    Args:
        path: a YAML file, by path or URL; paths in it are relative to the current folder.
        overrides: ``key.of.setting=value`` each, the value as in YAML.
        workspace: where runs and models lie in place of the current folder: ``folder``, ``model.folder`` and
            ``model.start``, unless they are absolute.

    Raises:
        ConfigError: no YAML, an unknown or missing setting, a value of another kind; with file and line.
    """
    shown = redacted(str(path))
    try:
        text = kept_copy(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read: {error.strerror or error}.") from error
    tree = load_yaml(text, name=shown) or {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{shown}: {type(tree).__name__} found; a mapping of settings expected.")
    given = set()
    for override in overrides:
        given.add(tuple(set_override(tree, override).split(".")))
    lines = _lines(text, name=shown)

    def place(keys: Sequence[str]) -> str:
        if tuple(keys) in given:
            return "command line"
        known = next((tuple(keys[:n]) for n in range(len(keys), 0, -1) if tuple(keys[:n]) in lines), None)
        return f"{shown}, line {lines[known]}" if known is not None else shown

    recipe = read_dataclass(Recipe, tree, place=place)
    for name, folder in (("folder", recipe.folder), ("features", recipe.features)):
        if folder is not None and is_url(folder):
            raise ConfigError(
                f"{place((name,))}: {name}: {redacted(folder)} found; a folder of this machine expected. The "
                "checkpoints of a run may lie in a store: checkpoint: {place: URL}."
            )
    return recipe if workspace is None else _in_workspace(recipe, workspace)


def set_override(tree: dict[str, Any], override: str) -> str:
    """Put ``key.of.setting=value``, the value as in YAML, into a tree of settings; the key.

    Raises:
        ConfigError: it has no such form, or the key leads through something that has no settings.
    """
    key, equals, value = override.partition("=")
    if not equals:
        raise ConfigError(f"{override!r}: key.of.setting=value expected.")
    set_value(tree, key, load_yaml(value, name=override))
    return key


def kept_form(recipe: Recipe) -> dict[str, Any]:
    """A recipe as mappings, lists, strings and numbers, as runs and checkpoints keep it: without secrets of URLs."""

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: clean(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [clean(inner) for inner in value]
        return without_secrets(value) if isinstance(value, str) else value

    kept: dict[str, Any] = clean(to_plain(recipe))
    return kept


def _in_workspace(recipe: Recipe, workspace: Path) -> Recipe:
    def within(path: str | None) -> str | None:
        return path if path is None or is_url(path) else str(workspace / path)

    model = replace(recipe.model, folder=within(recipe.model.folder), start=within(recipe.model.start))
    return replace(recipe, folder=str(workspace / recipe.folder), model=model, features=within(recipe.features))


def _lines(text: str, *, name: str) -> dict[tuple[str, ...], int]:
    """The line of each key, by the keys that lead to it. Raises ConfigError where one is there twice."""
    found: dict[tuple[str, ...], int] = {}

    def walk(node: Any, keys: tuple[str, ...]) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                here = (*keys, str(key.value))
                line = key.start_mark.line + 1
                if here in found and here[-1] != _MERGE_KEY:
                    raise ConfigError(
                        f"{name}, line {line}: {'.'.join(here)}: is there already, in line {found[here]}. Keep one."
                    )
                found[here] = line
                walk(value, here)

    walk(yaml.compose(text, Loader=yaml.SafeLoader), ())
    return found
