"""InternViT-300M and 6B: the form of OpenGVLab's own files, and that of transformers' InternVL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omniloom.model.config import Norm, VisionConfig
from omniloom.model.families.family import Family
from omniloom.model.families.fields import Fields
from omniloom.model.families.vision_files import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    layer_rows,
    read_vision_sizes,
    row,
    weight_and_bias,
    with_batch_axes,
    write_vision_sizes,
)
from omniloom.weights.changes import Reshape
from omniloom.weights.table import Row, Table

_OWN_DEFAULTS = {  # InternViT-6B's, as its configuration class has them
    "hidden_size": 3200,
    "intermediate_size": 12800,
    "num_hidden_layers": 48,
    "num_attention_heads": 25,
    "image_size": 224,
    "patch_size": 14,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "norm_type": "rms_norm",
    "qkv_bias": False,
    "qk_normalization": True,
}
_DEFAULTS = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "norm_type": "layer_norm",
    "attention_bias": False,
    "use_qk_norm": False,
    "use_mean_pooling": True,
    "use_absolute_position_embeddings": True,
}
_NORMS: dict[str, Norm] = {"layer_norm": "layer", "rms_norm": "rms"}
_OWN_NAMES = {
    "attention_norm": "norm1",
    "attention.qkv": "attn.qkv",
    "attention.q_norm": "attn.q_norm",
    "attention.k_norm": "attn.k_norm",
    "attention.o_proj": "attn.proj",
    "attention_scale": "ls1",
    "mlp_norm": "norm2",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
    "mlp_scale": "ls2",
}
_NAMES = {
    "attention_norm": "layernorm_before",
    "attention.q_proj": "attention.q_proj",
    "attention.k_proj": "attention.k_proj",
    "attention.v_proj": "attention.v_proj",
    "attention.q_norm": "attention.q_norm",
    "attention.k_norm": "attention.k_norm",
    "attention.o_proj": "attention.projection_layer",
    "attention_scale": "lambda_1",
    "mlp_norm": "layernorm_after",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
    "mlp_scale": "lambda_2",
}


def _read_own(given: Mapping[str, Any]) -> VisionConfig:
    fields = Fields(given, _OWN_DEFAULTS)
    return _config("internvit", fields, bias=fields.flag("qkv_bias"), qk_norm=fields.flag("qk_normalization"))


def _read(given: Mapping[str, Any]) -> VisionConfig:
    fields = Fields(given, _DEFAULTS)
    fields.expect("use_mean_pooling", True)
    fields.expect("use_absolute_position_embeddings", True)
    bias, qk_norm = fields.flag("attention_bias"), fields.flag("use_qk_norm")
    return _config("internvl_vision", fields, bias=bias, qk_norm=qk_norm)


def _config(family: str, fields: Fields, *, bias: bool, qk_norm: bool) -> VisionConfig:
    fields.expect("norm_type", *_NORMS)
    sizes = read_vision_sizes(fields)
    return VisionConfig(
        family=family,
        **sizes,
        mlp_dim=fields.integer("intermediate_size"),
        position_rows=sizes["image_size"] // sizes["patch_size"],
        norm=_NORMS[fields.text("norm_type")],
        class_tokens=1,
        class_positions=1,
        qkv_bias=bias,
        qk_norm=qk_norm,
        layer_scale=True,
        pixel_mean=IMAGENET_MEAN,
        pixel_std=IMAGENET_STD,
    )


def _write_own(config: VisionConfig) -> dict[str, Any]:
    return {
        "architectures": ["InternVisionModel"],
        "model_type": "intern_vit_6b",
        **_written(config),
        "qkv_bias": config.qkv_bias,
        "qk_normalization": config.qk_norm,
    }


def _write(config: VisionConfig) -> dict[str, Any]:
    return {
        "architectures": ["InternVLVisionModel"],
        "model_type": "internvl_vision",
        **_written(config),
        "attention_bias": config.qkv_bias,
        "use_qk_norm": config.qk_norm,
    }


def _written(config: VisionConfig) -> dict[str, Any]:
    norm_type = {ours: theirs for theirs, ours in _NORMS.items()}[config.norm]
    return {**write_vision_sizes(config), "intermediate_size": config.mlp_dim, "norm_type": norm_type}


def _own_table(config: VisionConfig) -> Table:
    return Table(
        rows=(
            *weight_and_bias("patch_embed", "embeddings.patch_embedding"),
            with_batch_axes(config, "class_token", "embeddings.class_embedding", tokens=1, axes=1),
            _positions(config, "embeddings.position_embedding"),
            *layer_rows(config, _OWN_NAMES, prefix="encoder.layers."),
        ),
    )


def _table(config: VisionConfig) -> Table:
    return Table(
        rows=(
            *weight_and_bias("patch_embed", "embeddings.patch_embeddings.projection"),
            with_batch_axes(config, "class_token", "embeddings.cls_token", tokens=1, axes=1),
            _positions(config, "embeddings.position_embeddings"),
            *layer_rows(config, _NAMES, prefix="encoder.layer."),
        ),
        ignored=("embeddings.mask_token",),
    )


def _positions(config: VisionConfig, theirs: str) -> Row:
    shape = (config.class_positions + config.position_rows**2, config.dim)
    return row("position_embed", theirs, Reshape(shape, (1, *shape)))


def _own_first(config: VisionConfig) -> tuple[Table, ...]:
    return _own_table(config), _table(config)


def _own_last(config: VisionConfig) -> tuple[Table, ...]:
    return _table(config), _own_table(config)


INTERNVIT = Family("internvit", "vision", ("intern_vit_6b",), _read_own, _write_own, _own_first)
INTERNVL_VISION = Family("internvl_vision", "vision", ("internvl_vision",), _read, _write, _own_last)
