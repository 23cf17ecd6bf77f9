"""A user brings a language model and a tower together and takes them to Megatron and back, on the command line."""

import json

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from tests.contract.model_zoo import coded_weights, language, vision

from omniloom.conversion.published import Published
from omniloom.conversion.targets import Wanted, plan_target
from omniloom.tools.main import commands
from omniloom.weights.filling import fill
from omniloom.weights.source import InMemory


def run(*words):
    return CliRunner().invoke(commands, ["weights", *map(str, words)])


@pytest.fixture
def parts(tmp_path):
    for name, config in (("text", language("mistral")), ("tower", vision("clip"))):
        published = Published(tmp_path, "omniloom", config, InMemory(coded_weights(config, torch.bfloat16)))
        target = plan_target(published, Wanted(to="hf"))
        fill(target.plan, target.source, tmp_path / name)
    return tmp_path / "text", tmp_path / "tower"


def test_from_hugging_face_to_megatron_and_back(parts, tmp_path):
    text, _ = parts
    dry = run("convert", text, tmp_path / "m", "--to", "megatron", "--target-tensor-parallel-size", 2, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "iter_0000001/mp_rank_01/model_optim_rng.pt: 15 tensors" in dry.output
    assert not (tmp_path / "m").exists()
    done = run("convert", text, "--output", tmp_path / "m", "--to", "megatron", "--tp", 2, "--pp", 2, "--use-te")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "m/iter_0000001/mp_rank_01_001/model_optim_rng.pt").is_file()
    same = run("diff", text, tmp_path / "m")
    assert (same.exit_code, "21 of 21 tensors are the same to the bit" in same.output) == (0, True), same.output
    run("convert", tmp_path / "m", tmp_path / "back", "--to", "hf")
    assert (tmp_path / "back/model.safetensors").read_bytes() == (text / "model.safetensors").read_bytes()
    assert (tmp_path / "back/config.json").read_text() == (text / "config.json").read_text()
    again = run("convert", text, tmp_path / "m", "--to", "megatron")
    assert again.exit_code == 1
    assert "is there already" in str(again.exception)


def test_combined_in_megatrons_layout_with_the_projector_left_to_megatron(parts, tmp_path):
    text, tower = parts
    words = ["combine", "--language-model", text, "--vision-model", tower, "--out", tmp_path / "m", "--to", "megatron"]
    done = run(*words, "--tensor-parallel-size", 2, "--allow-missing-vision-projection-checkpoint")
    assert done.exit_code == 0, done.output
    assert "left out, to start anew in Megatron" in done.output
    saved = torch.load(tmp_path / "m/iter_0000001/mp_rank_00/model_optim_rng.pt", weights_only=False)
    assert {name.split(".")[0] for name in saved["model"]} == {"language_model", "vision_model"}
    missing = run("show", tmp_path / "m")
    assert "vision_projection.encoder.linear_fc1.weight" in str(missing.exception)
    for alias in (["--allow-missing-vision-projection-checkpoint"], ["--init", "vision_projection=fresh"]):
        told = run("show", tmp_path / "m", *alias)
        assert "projector.fc1.weight  starts anew" in told.output
    own = run("convert", tmp_path / "m", tmp_path / "own", "--init", "vision_projection=fresh")
    assert "starts anew" in own.output
    assert run("verify", tmp_path / "own").exit_code == 0


def test_combined_as_ours_and_exported(parts, tmp_path):
    text, tower = parts
    done = run("combine", "--language-model", text, "--vision-model", tower, "--out", tmp_path / "llava", "--seed", 1)
    assert done.exit_code == 0, done.output
    told = json.loads(run("show", tmp_path / "llava", "--json").output)
    assert told["config"]["feature_layers"] == [-2]
    assert told["not_expressible"] == {}
    assert run("convert", tmp_path / "llava", tmp_path / "hf", "--to", "hf", "--dtype", "fp32").exit_code == 0
    assert json.loads((tmp_path / "hf/config.json").read_text())["torch_dtype"] == "float32"
    wide = ["--projector", "megatron", "--out", tmp_path / "wide"]
    assert run("combine", "--language-model", text, "--vision-model", tower, *wide).exit_code == 0
    refused = run("convert", tmp_path / "wide", tmp_path / "no", "--to", "hf")
    assert refused.exit_code == 1
    assert "a projector of widths (64,)" in str(refused.exception)
    assert "cannot be written as hf" in run("show", tmp_path / "wide").output


def test_differences_and_faults_are_told_and_end_with_one(parts, tmp_path):
    text, _ = parts
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text((text / "config.json").read_text())
    tensors = load_file(text / "model.safetensors")
    tensors["model.norm.weight"][3] = float("nan")
    save_file(tensors, other / "model.safetensors")
    told = run("diff", text, other)
    assert told.exit_code == 1
    assert "language_model.norm.weight: numbers: 1 of 32 numbers differ" in told.output
    told = run("verify", other)
    assert told.exit_code == 1
    assert "language_model.norm.weight: 1 of 32 numbers are infinite or none" in told.output


def test_the_words_of_megatrons_converters_are_understood(parts, tmp_path):
    _, tower = parts
    words = ["--download-root", tower, "--output", tmp_path / "m", "--tensor-parallel-size", 2, "--use-te"]
    done = run("convert", *words)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "m/iter_0000001/mp_rank_01/model_optim_rng.pt").is_file()


def test_wrong_words_are_told(parts, tmp_path):
    text, _ = parts
    assert run("convert", text).exit_code == 2
    assert run("convert", text, tmp_path / "a", "--init", "projector").exit_code == 2
    assert "no part 'head'" in str(run("convert", text, tmp_path / "a", "--init", "head=fresh").exception)
    assert run("convert", text, tmp_path / "a", "--to", "megatron", "--num-layers-per-pp-rank", "a").exit_code == 2
