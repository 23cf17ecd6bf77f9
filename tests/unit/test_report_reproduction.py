"""What would reproduce published numbers: each command is one of the command line, each hour follows from the model."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest

from omniloom.conversion.config_json import config_from_json
from omniloom.evaluate.tasks import find_task
from omniloom.report.anchors import ANCHORS
from omniloom.report.reproduction import WAYS, Way, as_html, as_markdown, commands_of, hours_of
from omniloom.tools.fetch_table import ITEMS
from omniloom.tools.main import commands
from omniloom.train.flops import Work, training_flops
from omniloom.train.recipe import read_recipe

ROOT = Path(__file__).resolve().parents[2]
STAGES = (  # tokens a sample, learned ones, trained parts; as docs/training.md has them
    (Work(documents=(620,), learned_tokens=20, tiles=1), ("projector",)),
    (Work(documents=(1_000,), learned_tokens=250, tiles=1), ("projector", "language_model")),
)


def words_of(line: str) -> list[str]:
    words = shlex.split(line)
    return words[words.index("omniloom") + 1 :] if "omniloom" in words else []


def parsed(words: list[str]) -> dict[str, object]:
    """What click makes of a command line; unknown flags, missing words and wrong kinds are errors."""
    command: click.Command = commands
    context = click.Context(commands)
    while isinstance(command, click.Group):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, name
        command, context = found, click.Context(found, parent=context)
    return dict(command.make_context(command.name, list(words)).params)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.model)
def test_each_command_is_one(way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("recipes", "images", "downloads", "downloads/llava-pretrain", "downloads/llava-instruct"):
        (tmp_path / folder).mkdir() if folder != "recipes" else (tmp_path / folder).symlink_to(ROOT / "recipes")
    for name in ("llava-pretrain/blip_laion_cc_sbu_558k.json", "llava-pretrain/images.zip"):
        (tmp_path / "downloads" / name).touch()
    (tmp_path / "downloads/llava-instruct/llava_v1_5_mix665k.json").touch()
    made = ""
    for line in commands_of(way):
        words = words_of(line)
        if not words:
            assert line.startswith("unzip ")
            continue
        values = parsed(words)
        match words[0]:
            case "fetch":
                assert words[1] in ITEMS
            case "evaluate":
                find_task(words[1])
                assert made == values["model"]
            case "train":
                made = read_recipe(tmp_path / words[1]).folder
            case "weights":
                recipes = [read_recipe(ROOT / stage.recipe) for stage in way.stages]
                assert {recipe.model.folder for recipe in recipes} == {str(values["out"])}
    assert {anchor.task for anchor in way.anchors()} == {benchmark.task for _, benchmark in way.scored}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.model)
def test_hours_follow_from_the_model(way: Way) -> None:
    for stage, (work, trained) in zip(way.stages, STAGES, strict=True):
        recipe = read_recipe(ROOT / stage.recipe)
        assert recipe.model.config is not None
        config = config_from_json(ROOT / recipe.model.config)
        assert recipe.loop.steps * (recipe.data.global_batch_size or 0) == stage.samples
        operations = stage.samples * training_flops(config, work, trained=trained)  # type: ignore[arg-type]
        assert stage.operations == pytest.approx(operations, rel=0.02)
    answer = training_flops(config, Work(documents=(700,), learned_tokens=10, tiles=1), trained=())  # type: ignore[arg-type]
    for _, benchmark in way.scored:
        assert benchmark.operations == pytest.approx(answer, rel=0.05)
    assert hours_of(way)[0] == pytest.approx(way.stages[0].operations / (8 * 989e12 * 0.4) / 3600)


def test_readme_and_page_have_it() -> None:
    assert as_markdown() in (ROOT / "README.md").read_text()
    assert "not reproduced here" in as_markdown()
    page = as_html()
    for way in WAYS:
        for line in commands_of(way):
            assert line in page
    told = {anchor for way in WAYS for anchor in way.anchors()}
    assert [anchor.task for anchor in ANCHORS if anchor not in told] == ["easy-vqa"]
