"""DINOv2, with and without register tokens; small to giant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omniloom.model.config import VisionConfig
from omniloom.model.families.family import Family
from omniloom.model.families.fields import Fields
from omniloom.model.families.radio import swiglu_dim
from omniloom.model.families.vision_files import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    fused_gate_rows,
    layer_rows,
    read_vision_sizes,
    row,
    weight_and_bias,
    with_batch_axes,
    write_vision_sizes,
)
from omniloom.weights.changes import Reshape
from omniloom.weights.table import Row, Table

_DEFAULTS = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "mlp_ratio": 4,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "image_size": 224,
    "patch_size": 14,
    "qkv_bias": True,
    "use_swiglu_ffn": False,
    "num_register_tokens": 4,
}
_PLAIN_NAMES = {
    "attention_norm": "norm1",
    "attention.o_proj": "attention.o_proj",
    "attention_scale": "layer_scale1.lambda1",
    "mlp_norm": "norm2",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
    "mlp_scale": "layer_scale2.lambda1",
}
_NAMES = {
    **_PLAIN_NAMES,
    **{f"attention.{one}_proj": f"attention.{one}_proj" for one in "qkv"},
    **{f"mlp.{one}_proj": f"mlp.{one}_proj" for one in ("gate", "up", "down")},
}
_LEGACY_NAMES = {
    **_PLAIN_NAMES,
    "attention.q_proj": "attention.attention.query",
    "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value",
    "attention.o_proj": "attention.output.dense",
    "mlp.down_proj": "mlp.weights_out",
}


def _read(given: Mapping[str, Any]) -> VisionConfig:
    fields = Fields(given, _DEFAULTS)
    return _config("dinov2", fields, registers=0)


def _read_registers(given: Mapping[str, Any]) -> VisionConfig:
    fields = Fields(given, _DEFAULTS)
    return _config("dinov2_registers", fields, registers=fields.integer("num_register_tokens"))


def _config(family: str, fields: Fields, *, registers: int) -> VisionConfig:
    sizes = read_vision_sizes(fields)
    gated, ratio = fields.flag("use_swiglu_ffn"), fields.number("mlp_ratio")
    return VisionConfig(
        family=family,
        **{**sizes, "activation": "silu" if gated else sizes["activation"]},
        mlp_dim=swiglu_dim(sizes["dim"], ratio) if gated else int(sizes["dim"] * ratio),
        position_rows=sizes["image_size"] // sizes["patch_size"],
        class_tokens=1,
        register_tokens=registers,
        class_positions=1,
        positions="bicubic_antialias" if registers else "bicubic",
        qkv_bias=fields.flag("qkv_bias"),
        post_norm=True,
        layer_scale=True,
        gated_mlp=gated,
        pixel_mean=IMAGENET_MEAN,
        pixel_std=IMAGENET_STD,
    )


def _write(config: VisionConfig) -> dict[str, Any]:
    sizes = write_vision_sizes(config)
    registers = {"num_register_tokens": config.register_tokens} if config.register_tokens else {}
    return {
        "architectures": ["Dinov2WithRegistersModel" if registers else "Dinov2Model"],
        "model_type": "dinov2_with_registers" if registers else "dinov2",
        **{**sizes, "hidden_act": "gelu" if config.gated_mlp else sizes["hidden_act"]},
        "mlp_ratio": 4 if config.gated_mlp else config.mlp_dim // config.dim,
        "qkv_bias": config.qkv_bias,
        "use_swiglu_ffn": config.gated_mlp,
        "use_mask_token": False,
        **registers,
    }


def _tables(config: VisionConfig) -> tuple[Table, ...]:
    layers = "encoder.layer."
    gate = fused_gate_rows(config, "mlp.weights_in", prefix=layers) if config.gated_mlp else ()
    legacy = layer_rows(config, _LEGACY_NAMES, prefix=layers) + gate
    return _table(config, legacy), _table(config, layer_rows(config, _NAMES, prefix=layers))


def _table(config: VisionConfig, layers: tuple[Row, ...]) -> Table:
    shape = (config.class_positions + config.position_rows**2, config.dim)
    registers = config.register_tokens
    token_row = with_batch_axes(config, "register_tokens", "embeddings.register_tokens", tokens=registers, axes=1)
    return Table(
        rows=(
            *weight_and_bias("patch_embed", "embeddings.patch_embeddings.projection"),
            with_batch_axes(config, "class_token", "embeddings.cls_token", tokens=1, axes=1),
            *((token_row,) if registers else ()),
            row("position_embed", "embeddings.position_embeddings", Reshape(shape, (1, *shape))),
            *layers,
            *weight_and_bias("post_norm", "layernorm"),
        ),
        ignored=("embeddings.mask_token",),
    )


DINOV2 = Family("dinov2", "vision", ("dinov2",), _read, _write, _tables)
DINOV2_REGISTERS = Family("dinov2_registers", "vision", ("dinov2_with_registers",), _read_registers, _write, _tables)
