"""Every family beside transformers: the same weights bit by bit both ways, the same numbers to 1e-5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from omniloom.model.attention import AttendPacked
from omniloom.model.documents import Documents
from omniloom.model.families import read_config, tables_of, write_config
from tests.unit.hugging_face_pairs import ours_beside, random_model, reads_back, transformers, write_folder

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 16}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}

LANGUAGE = {
    "llama-2": ("Llama", {}),
    "llama-3.1": ("Llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama-3.2-tied": ("Llama", {"rope_parameters": LLAMA3_ROPE, "tie_word_embeddings": True, "head_dim": 16}),
    "llama-biased": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "vicuna-long": ("Llama", {"rope_parameters": LINEAR_ROPE}),
    "smollm2": ("Llama", {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    "mistral-0.1": ("Mistral", {"sliding_window": 5}),
    "mistral-0.3": ("Mistral", {"sliding_window": None, "head_dim": 16}),
    "qwen2": ("Qwen2", {}),
    "qwen2.5-window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen2.5-yarn": ("Qwen2", {"rope_parameters": YARN_ROPE}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3-tied": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True, "attention_bias": True}),
}


def language_config(name: str) -> tuple[Any, Any]:
    family, fields = LANGUAGE[name]
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **fields})
    return config, getattr(transformers, f"{family}ForCausalLM")


@pytest.mark.parametrize("name", LANGUAGE)
@torch.no_grad()
def test_language_model(name: str, tmp_path: Path) -> None:
    theirs, kind = language_config(name)
    model = random_model(theirs, kind)
    config, ours = ours_beside(model, tmp_path / "theirs")
    token_ids = torch.randint(0, 96, (2, 19), generator=torch.Generator().manual_seed(1))
    documents = Documents.of_lengths([19, 19])
    attend = AttendPacked(documents, torch.device("cpu"))
    logits = ours.logits(ours(ours.embed(token_ids.flatten()), attend)).unflatten(0, (2, 19))
    expected = model(input_ids=token_ids).logits
    assert expected.std() > 0.05
    assert (logits - expected).abs().max() <= 1e-5
    write_folder(config, ours, tmp_path / "ours")
    reads_back(kind, tmp_path / "ours", model)


@pytest.mark.parametrize("name", LANGUAGE)
def test_language_config_comes_back(name: str) -> None:
    config = read_config(language_config(name)[0].to_dict())
    written = write_config(config)
    assert read_config(written) == config
    kind, _ = LANGUAGE[name]
    assert read_config(getattr(transformers, f"{kind}Config").from_dict(written).to_dict()) == config


TOWER = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
WITH_MLP = {**TOWER, "intermediate_size": 48}
VISION: dict[str, tuple[str, dict[str, Any]]] = {
    "clip": ("CLIPVision", WITH_MLP),
    "siglip": ("SiglipVision", WITH_MLP),
    "siglip-without-head": ("SiglipVision", {**WITH_MLP, "vision_use_head": False}),
    "internvit-300m": ("InternVLVision", {**WITH_MLP, "attention_bias": True}),
    "internvit-6b": ("InternVLVision", {**WITH_MLP, "use_qk_norm": True, "norm_type": "rms_norm"}),
    "dinov2": ("Dinov2", TOWER),
    "dinov2-giant": ("Dinov2", {**TOWER, "use_swiglu_ffn": True}),
    "dinov2-registers": ("Dinov2WithRegisters", TOWER),
    "radio": ("Radio", {**TOWER, "max_img_size": 64}),
    "radio-gated": ("Radio", {**TOWER, "max_img_size": 64, "use_swiglu_ffn": True}),
}
ASKED_TO_INTERPOLATE = {"CLIPVision", "SiglipVision"}


def vision_model(name: str) -> tuple[Any, Any]:
    family, fields = VISION[name]
    kind = getattr(transformers, f"{family}Model")
    return random_model(getattr(transformers, f"{family}Config")(**fields), kind), kind


@pytest.mark.parametrize("name", VISION)
@torch.no_grad()
def test_vision_tower(name: str, tmp_path: Path) -> None:
    model, kind = vision_model(name)
    config, ours = ours_beside(model, tmp_path / "theirs")
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    _compare(model, ours, images)
    write_folder(config, ours, tmp_path / "ours")
    reads_back(kind, tmp_path / "ours", model)
    assert read_config(write_config(config)) == config


@pytest.mark.parametrize("size", [(48, 48), (56, 40)], ids=str)
@pytest.mark.parametrize("name", [name for name in VISION if "gated" not in name and "giant" not in name])
@torch.no_grad()
def test_vision_tower_at_another_size(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    model, _ = vision_model(name)
    _, ours = ours_beside(model, tmp_path)
    images = torch.rand(1, 3, *size, generator=torch.Generator().manual_seed(2))
    _compare(model, ours, images)


def _compare(model: Any, ours: Any, images: torch.Tensor) -> None:
    family = type(model).__name__.removesuffix("Model")
    ask = {"interpolate_pos_encoding": True} if family in ASKED_TO_INTERPOLATE else {}
    expected = model(images, output_hidden_states=True, **ask)
    if family == "Radio":  # its norming of pixels is a part of the model there, of the data here
        mean, deviation = (
            torch.tensor(three)[:, None, None] for three in (ours.config.pixel_mean, ours.config.pixel_std)
        )
        images = (images - mean) / deviation
    for layer in (0, 1, -2, -1):
        assert (ours(images, feature_layers=(layer,)) - expected.hidden_states[layer]).abs().max() <= 1e-5
    several = ours(images, feature_layers=(-2, 1, 0))
    joined = torch.cat([expected.hidden_states[layer] for layer in (-2, 1, 0)], dim=-1)
    assert (several - joined).abs().max() <= 1e-5
    if ours.config.post_norm and family != "CLIPVision":  # CLIP's class norms the class token only
        normed = ours(images, feature_layers=(-1,), norm_features=True)
        assert (normed - expected.last_hidden_state).abs().max() <= 1e-5


@torch.no_grad()
def test_naflex_takes_patches_as_rows(tmp_path: Path) -> None:
    fields = {**WITH_MLP, "num_patches": 16}
    del fields["image_size"]
    model = random_model(transformers.Siglip2VisionConfig(**fields), transformers.Siglip2VisionModel)
    config, ours = ours_beside(model, tmp_path / "theirs")
    image = torch.rand(1, 3, 24, 40, generator=torch.Generator().manual_seed(2))
    rows = image[0].reshape(3, 3, 8, 5, 8).permute(1, 3, 2, 4, 0).reshape(1, 15, 192)
    expected = model(
        pixel_values=rows,
        pixel_attention_mask=torch.ones(1, 15, dtype=torch.int64),
        spatial_shapes=torch.tensor([[3, 5]]),
        output_hidden_states=True,
    )
    assert (ours(image, feature_layers=(-1,), norm_features=True) - expected.last_hidden_state).abs().max() <= 1e-5
    assert (ours(image, feature_layers=(-2,)) - expected.hidden_states[-2]).abs().max() <= 1e-5
    write_folder(config, ours, tmp_path / "ours")
    reads_back(transformers.Siglip2VisionModel, tmp_path / "ours", model)


def test_internvits_own_names() -> None:
    """OpenGVLab's own files fuse queries, keys and values; names as in NVIDIA's converter of them."""
    config = read_config(
        {
            "model_type": "intern_vit_6b",
            "hidden_size": 32,
            "num_attention_heads": 4,
            "num_hidden_layers": 1,
            "intermediate_size": 48,
            "image_size": 28,
        }
    )
    assert (config.qk_norm, config.qkv_bias, config.norm) == (True, False, "rms")  # type: ignore[union-attr]
    table = tables_of(config)[0]
    assert set(table.by_theirs) == {
        "embeddings.class_embedding",
        "embeddings.patch_embedding.weight",
        "embeddings.patch_embedding.bias",
        "embeddings.position_embedding",
        *(
            f"encoder.layers.0.{name}"
            for name in (
                *("ls1", "ls2", "norm1.weight", "norm2.weight", "attn.q_norm.weight", "attn.k_norm.weight"),
                *("attn.qkv.weight", "attn.proj.weight", "attn.proj.bias"),
                *("mlp.fc1.weight", "mlp.fc1.bias", "mlp.fc2.weight", "mlp.fc2.bias"),
            )
        ),
    }
