"""The recipes of the project: each is read, its model is built without memory, its data is a sound mix."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from omniloom.conversion.config_json import config_from_json
from omniloom.data.mix.read import read_metadataset
from omniloom.model.build import build
from omniloom.train.model_files import model_config
from omniloom.train.parts import counts, freeze
from omniloom.train.recipe import Recipe, read_recipe
from omniloom.vlm.template_table import chat_template

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(
    path for path in (ROOT / "recipes").rglob("*.yaml") if "folder" in (yaml.safe_load(path.read_text()) or {})
)
MIXES = sorted(set((ROOT / "recipes").rglob("*.yaml")) - set(RECIPES))
# As the model hub counts them in the published files.
LANGUAGE_MODELS = {
    "mistral-7b-clip-l-336": 7_248_023_552,
    "llava-1.5-7b": 6_738_415_616,
    "llava-1.5-13b": 13_015_864_320,
    "qwen2.5-7b-siglip-384": 7_615_616_512,
    "nvlm-34b": 34_388_917_248,
    "nvlm-72b": 72_706_203_648,
}
# CLIP L/14 at 336: LLaVA-1.5-7B's 7,063,427,072 less Vicuna with 64 more words and the two maps of the projector.
TOWERS = {
    "mistral-7b-clip-l-336": 303_507_456,
    "llava-1.5-7b": 303_507_456,
    "llava-1.5-13b": 303_507_456,
}


def read(path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.chdir(ROOT)
    return read_recipe(path.relative_to(ROOT))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT / "recipes").with_suffix(""))


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_a_recipe_is_read_and_its_model_is_built(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = read(path, monkeypatch)
    assert recipe.status in ({"run"} if path.parent.name == "tiny" else {"built-on-meta"})
    chat_template(recipe.data.template)
    for ranks in (1, 2, 8, 16):
        if recipe.data.global_batch_size and recipe.data.global_batch_size % (recipe.data.batch_size * ranks) == 0:
            number = recipe.data.micro_batches(data_ranks=ranks)
            assert number is not None
            assert number * ranks * recipe.data.batch_size == recipe.data.global_batch_size
    if path.parent.name != "tiny":
        assert recipe.data.micro_batches(data_ranks=8), "one machine of eight devices holds the global batch"
    config = model_config(recipe.model)
    model = build(config, device="meta")
    freeze(model, recipe.parts)
    trained = {part for part, (some, _) in counts(model).items() if some}
    assert "projector" in trained
    assert ("language_model" in trained) == path.stem.startswith("sft")
    assert (path.parent / Path(recipe.data.train).name).is_file()
    side = config.vision.image_size
    assert config.image_tokens(side, side) < recipe.data.max_tokens


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_the_second_stage_starts_from_the_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = read(path, monkeypatch)
    before = {
        read(other, monkeypatch).folder: read(other, monkeypatch) for other in path.parent.glob("pretrain*-*.yaml")
    }
    before |= {read(other, monkeypatch).folder: read(other, monkeypatch) for other in path.parent.glob("pretrain.yaml")}
    if path.stem.startswith("sft"):
        assert recipe.model.start is not None
        assert before[recipe.model.start].model.config == recipe.model.config
    else:
        assert recipe.model.start is None


@pytest.mark.parametrize("path", MIXES, ids=name_of)
def test_a_mix_is_sound(path: Path) -> None:
    assert {"train", "val"} <= set(read_metadataset(str(path)).splits)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_models_have_the_parameters_of_the_published_ones(name: str) -> None:
    model = build(config_from_json(ROOT / f"recipes/models/{name}.json"), device="meta")
    of = {part: trained + frozen for part, (trained, frozen) in counts(model).items()}
    assert of["language_model"] == LANGUAGE_MODELS[name]
    assert of["vision_tower"] == TOWERS.get(name, of["vision_tower"])


def test_the_table_of_recipes_names_each_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (ROOT / "recipes/README.md").read_text()
    for path in RECIPES:
        line = next((line for line in table.splitlines() if line.startswith(f"| `{name_of(path)}` ")), None)
        assert line is not None, f"recipes/README.md does not tell of {name_of(path)}"
        assert f"| {read(path, monkeypatch).status} |" in line
