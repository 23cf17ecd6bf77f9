"""The arguments in Megatron's checkpoints say what model it is, and are read as a config.json."""

from argparse import Namespace
from dataclasses import replace

import pytest
import torch

from omniloom.conversion import megatron_parts
from omniloom.conversion.published import Published, open_published
from omniloom.conversion.targets import Wanted, plan_target
from omniloom.errors import WeightsError
from omniloom.model.families import read_config
from omniloom.weights.filling import fill
from omniloom.weights.megatron_args import hf_config_of_args, write_args
from omniloom.weights.source import InMemory
from tests.contract.model_zoo import LANGUAGE_FAMILIES, TEXT, VISION, coded_weights, language, llava


@pytest.mark.parametrize("name", [name for name in LANGUAGE_FAMILIES if name != "llama-bias"])
def test_a_config_comes_back_from_its_arguments(name):
    config = language(name)
    args = write_args(config, dtype=torch.bfloat16, tensor_parallel_size=4, te=True)
    back = read_config(hf_config_of_args(args, where="x"))
    assert replace(back, family=config.family) == config


def test_llama_3_rope_scaling_comes_back():
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    given = {"model_type": "llama", **TEXT, "rope_theta": 5e5}
    config = read_config({**given, "rope_scaling": {**scaling, "original_max_position_embeddings": 8192}})
    args = write_args(config, dtype=torch.bfloat16, tensor_parallel_size=1, te=True)
    assert (args.use_rope_scaling, args.rope_scaling_factor, args.rotary_base) == (True, 8.0, 500_000)
    assert read_config(hf_config_of_args(args, where="x")) == config


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"swiglu": False}, "an MLP without gate"),
        ({"normalization": "LayerNorm"}, "normalization 'LayerNorm'"),
        ({"position_embedding_type": "learned_absolute"}, "positions of type 'learned_absolute'"),
        ({"num_layers": None}, "have no num_layers. Give `--config`"),
    ],
)
def test_arguments_of_other_models_are_refused(changes, text):
    args = write_args(language("llama"), dtype=torch.float32, tensor_parallel_size=1, te=True)
    with pytest.raises(WeightsError, match=text):
        hf_config_of_args(Namespace(**{**vars(args), **changes}), where="x")


def test_a_combined_checkpoint_of_megatron_itself_says_what_it_is(tmp_path, monkeypatch):
    config = llava("mistral", "clip", image_token_id=199)
    projector = replace(config.projector, hidden_dims=(64,), bias=False)
    config = replace(config, projector=projector, feature_layers=(-1,))
    weights = coded_weights(config)
    target = plan_target(Published(None, "omniloom", config, InMemory(weights)), Wanted(to="megatron"))
    fill(target.plan, target.source, tmp_path / "m")
    for file in (tmp_path / "m/omniloom").iterdir():
        file.unlink()  # Megatron itself writes no such folder
    (tmp_path / "m/omniloom").rmdir()
    small = {"clip": {"model_type": "clip_vision_model", **VISION}}
    monkeypatch.setattr(megatron_parts, "VISION_TYPES", small)
    back = open_published(tmp_path / "m")
    assert replace(back.config, language=replace(back.config.language, family="mistral")) == config
    assert back.neutral == ("vision_tower.post_norm.weight", "vision_tower.post_norm.bias")
    for name, tensor in weights.items():
        if name not in back.neutral:
            assert torch.equal(back.source.read(name), tensor)
    assert back.source.read("vision_tower.post_norm.weight").unique().tolist() == [1.0]
    monkeypatch.setattr(megatron_parts, "VISION_TYPES", {})
    with pytest.raises(WeightsError, match="holds a tower of type 'clip'"):
        open_published(tmp_path / "m")
