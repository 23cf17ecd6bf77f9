"""Every family at true size, without memory: names and shapes of the published tensors, and their number.

Sizes are those of the config.json of each published model. Names and shapes come from transformers' own classes on
the meta device; numbers of parameters are those that the model hub counts in the published files.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from omniloom.model.build import build, parameter_shapes
from omniloom.model.config import LlavaConfig
from omniloom.model.documents import Documents
from omniloom.model.families import fitting_table, read_config, tables_of
from omniloom.model.families.family import Config
from omniloom.model.llava import Llava
from omniloom.weights.table import Table
from tests.unit.hugging_face_pairs import to_theirs, transformers

LLAMA3 = {
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


def sizes(*numbers: int, **fields: Any) -> dict[str, Any]:
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    return {**dict(zip((*names, "num_key_value_heads"), numbers, strict=True)), **fields}


LANGUAGE: dict[str, tuple[str, dict[str, Any], int]] = {
    "Llama-2-7b": ("Llama", sizes(32000, 4096, 11008, 32, 32, 32), 6_738_415_616),
    "Llama-3.1-8B": ("Llama", sizes(128256, 4096, 14336, 32, 32, 8, **LLAMA3), 8_030_261_248),
    "Llama-3.2-1B": (
        "Llama",
        sizes(128256, 2048, 8192, 16, 32, 8, head_dim=64, tie_word_embeddings=True, **LLAMA3),
        1_235_814_400,
    ),
    "Vicuna-7b-v1.5": ("Llama", sizes(32000, 4096, 11008, 32, 32, 32), 6_738_415_616),
    "Yi-34B": ("Llama", sizes(64000, 7168, 20480, 60, 56, 8, rope_theta=5e6), 34_388_917_248),
    "SmolLM2-135M": (
        "Llama",
        sizes(49152, 576, 1536, 30, 9, 3, rope_theta=1e5, tie_word_embeddings=True),
        134_515_008,
    ),
    "Mistral-7B-v0.1": ("Mistral", sizes(32000, 4096, 14336, 32, 32, 8), 7_241_732_096),
    "Mistral-7B-v0.3": (
        "Mistral",
        sizes(32768, 4096, 14336, 32, 32, 8, sliding_window=None, rope_theta=1e6),
        7_248_023_552,
    ),
    "Qwen2-7B": ("Qwen2", sizes(152064, 3584, 18944, 28, 28, 4, rope_theta=1e6), 7_615_616_512),
    "Qwen2.5-0.5B": (
        "Qwen2",
        sizes(151936, 896, 4864, 24, 14, 2, rope_theta=1e6, tie_word_embeddings=True),
        494_032_768,
    ),
    "Qwen3-8B": ("Qwen3", sizes(151936, 4096, 12288, 36, 32, 8, head_dim=128, rope_theta=1e6), 8_190_735_360),
}


def tower(*numbers: int, **fields: Any) -> dict[str, Any]:
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "image_size", "patch_size")
    return {**dict(zip(names, numbers, strict=True)), **fields}


VISION: dict[str, tuple[str, dict[str, Any]]] = {
    "CLIP B/16": ("CLIPVision", tower(768, 12, 12, 224, 16, intermediate_size=3072)),
    "CLIP L/14": ("CLIPVision", tower(1024, 24, 16, 224, 14, intermediate_size=4096)),
    "CLIP L/14@336": ("CLIPVision", tower(1024, 24, 16, 336, 14, intermediate_size=4096)),
    "SigLIP so400m/14@384": ("SiglipVision", tower(1152, 27, 16, 384, 14, intermediate_size=4304)),
    "SigLIP2 B/16@256": ("SiglipVision", tower(768, 12, 12, 256, 16, intermediate_size=3072)),
    "InternViT-300M": (
        "InternVLVision",
        tower(1024, 24, 16, 448, 14, intermediate_size=4096, attention_bias=True),
    ),
    "InternViT-6B-v2.5": (
        "InternVLVision",
        tower(3200, 45, 25, 448, 14, intermediate_size=12800, use_qk_norm=True, norm_type="rms_norm"),
    ),
    "C-RADIO-H": ("Radio", tower(1280, 32, 16, 224, 16, max_img_size=2048)),
    "DINOv2 B/14": ("Dinov2", tower(768, 12, 12, 518, 14)),
    "DINOv2 giant": ("Dinov2", tower(1536, 40, 24, 518, 14, use_swiglu_ffn=True)),
    "DINOv2 L/14 registers": ("Dinov2WithRegisters", tower(1024, 24, 16, 518, 14)),
}


def on_meta(kind: Any, config: Any) -> dict[str, Tensor]:
    with torch.device("meta"):
        tensors: dict[str, Tensor] = kind(config).state_dict()
    return tensors


def our_shapes_as_theirs(config: Config, table: Table) -> dict[str, tuple[int, ...]]:
    shapes = parameter_shapes(config)
    ours = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    assert set(table.by_ours) == set(ours)
    return {name: tuple(tensor.shape) for name, tensor in to_theirs(table, ours).items()}


def compare(config: Config, theirs: dict[str, Tensor]) -> None:
    table = fitting_table(tables_of(config), theirs)
    assert table.left_over(theirs) == ([], [])
    held = {name: tuple(tensor.shape) for name, tensor in theirs.items() if name in table.by_theirs}
    assert our_shapes_as_theirs(config, table) == held


@pytest.mark.parametrize("name", LANGUAGE)
def test_language_model(name: str) -> None:
    family, fields, parameters = LANGUAGE[name]
    config = read_config({"model_type": family.lower(), "max_position_embeddings": 4096, **fields})
    theirs = getattr(transformers, f"{family}Config")(**fields)
    compare(config, on_meta(getattr(transformers, f"{family}ForCausalLM"), theirs))
    assert read_config(theirs.to_dict()).rope == config.rope  # type: ignore[union-attr]
    assert sum(parameter.numel() for parameter in build(config, device="meta").parameters()) == parameters


@pytest.mark.parametrize("name", VISION)
def test_vision_tower(name: str) -> None:
    family, fields = VISION[name]
    theirs = getattr(transformers, f"{family}Config")(**fields)
    compare(read_config(theirs.to_dict()), on_meta(getattr(transformers, f"{family}Model"), theirs))


LLAVA_7B = {  # what llava-hf/llava-1.5-7b-hf says; the rest are its classes' defaults
    "model_type": "llava",
    "image_token_index": 32000,
    "projector_hidden_act": "gelu",
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
    "text_config": {
        "model_type": "llama",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "vocab_size": 32064,
    },
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "image_size": 336,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "patch_size": 14,
        "projection_dim": 768,
        "vocab_size": 32000,
    },
}


def test_llava_and_the_names_of_its_published_files() -> None:
    config = read_config(LLAVA_7B)
    assert isinstance(config, LlavaConfig)
    assert config.image_tokens(336, 336) == 576
    theirs = on_meta(transformers.LlavaForConditionalGeneration, transformers.LlavaConfig.from_dict(LLAVA_7B))
    compare(config, theirs)
    model = build(config, device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == 7_063_427_072
    written = tables_of(config)[0].by_theirs
    for name in (
        "language_model.model.embed_tokens.weight",
        "language_model.model.layers.31.self_attn.q_proj.weight",
        "language_model.lm_head.weight",
        "multi_modal_projector.linear_1.bias",
        "vision_tower.vision_model.embeddings.class_embedding",
        "vision_tower.vision_model.encoder.layers.23.self_attn.out_proj.bias",
        "vision_tower.vision_model.post_layernorm.weight",
        "vision_tower.vision_model.pre_layrnorm.weight",
    ):
        assert name in written
    nested = {("model." + name if "lm_head" not in name else name.split("language_model.")[1]) for name in written}
    nested = {name.replace("model.language_model.model.", "model.language_model.") for name in nested}
    assert fitting_table(tables_of(config), nested).left_over(nested) == ([], [])


def test_a_step_of_llava_7b_on_the_meta_device() -> None:
    """Forward and backward in bfloat16 at true size: every shape fits, the kernel for CUDA included."""
    config = read_config(LLAVA_7B)
    model = build(config, device="meta", dtype=torch.bfloat16)
    assert isinstance(model, Llava)
    stream = model.decode(
        torch.empty(1200, dtype=torch.int64, device="meta"),
        documents=Documents.of_lengths([600, 600]),
        images=torch.empty(2, 3, 336, 336, device="meta", dtype=torch.bfloat16),
        image_positions=torch.empty(1152, dtype=torch.int64, device="meta"),
    )
    model.language_model.logits(stream).sum().backward()
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert {name.rpartition(".")[0].split(".attention")[0].split(".mlp")[0] for name in without} == {
        "vision_tower.layers.23",
        "vision_tower.post_norm",
    }
