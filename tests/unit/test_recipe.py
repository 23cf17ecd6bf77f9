"""Recipes: YAML and flags to frozen settings, and every refusal with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from omniloom.config.reading import to_plain
from omniloom.errors import ConfigError
from omniloom.train.recipe import read_recipe, refuse_contradictions
from omniloom.vlm.conversation import PlaceholderPolicy

GOOD = """\
folder: runs/a
model: {folder: base, fresh: [projector]}
data:
  train: shards
  pack_tokens: 4096
loop:
  steps: 100
parts:
  vision_tower: {train: false}
  projector:
    rate: 2
schedule: {peak: 1e-3, warmup_share: 0.03}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "sft.yaml"
    path.write_text(GOOD)
    return path


def test_a_recipe_with_flags(recipe: Path) -> None:
    read = read_recipe(recipe, ["loop.steps=7", "optimizer.weight_decay=0.1", "data.lanes=24", "model.start=runs/b"])
    assert (read.loop.steps, read.optimizer.weight_decay, read.data.lanes) == (7, 0.1, 24)
    assert (read.schedule.peak, read.parts["projector"].rate, read.model.fresh) == (0.001, 2, ("projector",))
    assert not read.parts["vision_tower"].train
    assert read.model.start == "runs/b"


def test_the_resolved_recipe_reads_as_itself(recipe: Path) -> None:
    read = read_recipe(recipe)
    again = recipe.with_name("again.yaml")
    again.write_text(yaml.safe_dump(to_plain(read)))
    assert read_recipe(again) == read


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("steps: 100", "step: 100"), r"sft.yaml, line 7: loop.step: .* such setting. Did you mean 'steps'\?$"),
        (("rate: 2", "rate: fast"), r"line 11: parts.projector.rate: str 'fast' found; input should be a valid number"),
        (("rate: 2", "rate: -1"), r"line 10: parts: rate -1"),
        (("{train: false}", "{train: false, lora: {}}"), r"line 9: lora: found for a part that is not trained"),
        (("steps: 100", "steps: 1.5"), r"line 7: loop.steps: float 1.5 found; input should be a valid integer"),
        (("steps: 100", "steps: true"), r"line 7: loop.steps: bool True found; input should be a valid integer"),
        (("  train: shards\n", ""), r"line 3: data: train missing"),
        (("loop:\n  steps: 100", "loop: 100"), r"line 6: loop: int 100 found; a mapping of settings expected"),
        (("peak: 1e-3", "peak: 1e-3, decay: cos"), r"schedule.decay: str 'cos' found; input should be 'cosine'"),
        (("folder: runs/a", "folder: [a"), r"sft.yaml"),
    ],
)
def test_refusals_name_file_line_and_setting(recipe: Path, change: tuple[str, str], message: str) -> None:
    recipe.write_text(GOOD.replace(*change))
    with pytest.raises(ConfigError, match=message):
        read_recipe(recipe)


def test_refusals_of_flags(recipe: Path) -> None:
    with pytest.raises(ConfigError, match=r"command line: loop.steps: str 'many' found"):
        read_recipe(recipe, ["loop.steps=many"])
    with pytest.raises(ConfigError, match=r"key.of.setting=value expected"):
        read_recipe(recipe, ["loop.steps"])
    with pytest.raises(ConfigError, match=r"folder holds str 'runs/a'; it has no settings of its own"):
        read_recipe(recipe, ["folder.x=1"])
    with pytest.raises(ConfigError, match=r"Did you mean 'optimizer'"):
        read_recipe(recipe, ["optimzer.beta1=0.9"])
    with pytest.raises(ConfigError, match=r"cannot be read"):
        read_recipe(recipe.with_name("none.yaml"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["data.most_questions=2"], r"data.most_questions: found without data.turns apart"),
        (["data.pack_tokens=null", "data.pack_tiles=9"], r"data.pack_tiles: found without data.pack_tokens"),
        (["data.max_tiles=12"], r"data.max_tiles: found without data.layout tiles"),
        (["schedule.decay=constant", "schedule.decay_steps=9"], r"schedule.decay_steps: found without"),
    ],
)
def test_settings_without_effect_are_refused(recipe: Path, flags: list[str], message: str) -> None:
    refuse_contradictions(read_recipe(recipe))
    with pytest.raises(ConfigError, match=message):
        refuse_contradictions(read_recipe(recipe, flags))


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("evaluation.every_steps=5", "evaluation.every_steps: found without data.validation or evaluation.benchmarks"),
        ("evaluation.samples=2", "evaluation.samples: found without data.validation"),
        ("profile.first_step=101", "profile.first_step 101: found without as many loop.steps, of which there are 100"),
    ],
)
def test_what_would_look_on_in_vain_is_warned_of(
    recipe: Path, flag: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_contradictions(read_recipe(recipe, [flag]))
    assert message in caplog.text


def test_a_setting_that_is_there_twice_is_refused(recipe: Path) -> None:
    recipe.write_text(f"{GOOD}loop: {{clip_norm: 0.5}}\n")
    with pytest.raises(ConfigError, match=r"sft.yaml, line 13: loop: is there already, in line 6. Keep one."):
        read_recipe(recipe)
    recipe.write_text(GOOD.replace("rate: 2", "rate: 2\n    rate: 3"))
    with pytest.raises(ConfigError, match=r"line 12: parts.projector.rate: is there already, in line 11"):
        read_recipe(recipe)


def test_numbers_beyond_all_others_are_refused(recipe: Path) -> None:
    with pytest.raises(ConfigError, match=r"command line: optimizer.weight_decay: inf found"):
        read_recipe(recipe, ["optimizer.weight_decay=1e999"])


def test_what_becomes_of_placeholders_can_be_chosen(recipe: Path) -> None:
    read = read_recipe(recipe, ["data.placeholders={surplus: repeat}"])
    assert read.data.placeholders == PlaceholderPolicy(surplus="repeat")
    assert read_recipe(recipe).data.placeholders is None
    with pytest.raises(ConfigError, match=r"data.placeholders.imageless: str 'keep' found; input should be 'delete'"):
        read_recipe(recipe, ["data.placeholders={imageless: keep}"])
