"""OpenAI CLIP's vision tower in Hugging Face's form: B/32, B/16, L/14, L/14@336."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omniloom.model.config import VisionConfig
from omniloom.model.families.family import Family
from omniloom.model.families.fields import Fields
from omniloom.model.families.vision_files import (
    CLIP_MEAN,
    CLIP_STD,
    layer_rows,
    read_vision_sizes,
    row,
    weight_and_bias,
    with_batch_axes,
    write_vision_sizes,
)
from omniloom.weights.table import Table

_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 32,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
}
LAYER_NAMES = {
    "attention_norm": "layer_norm1",
    "attention.q_proj": "self_attn.q_proj",
    "attention.k_proj": "self_attn.k_proj",
    "attention.v_proj": "self_attn.v_proj",
    "attention.o_proj": "self_attn.out_proj",
    "mlp_norm": "layer_norm2",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}
_TEXT_SIDE = ("text_model.*", "text_projection.weight", "visual_projection.weight", "logit_scale")


def _read(given: Mapping[str, Any]) -> VisionConfig:
    if given.get("model_type") == "clip":
        given = given["vision_config"]
    fields = Fields(given, _DEFAULTS)
    sizes = read_vision_sizes(fields)
    return VisionConfig(
        family="clip",
        **sizes,
        mlp_dim=fields.integer("intermediate_size"),
        position_rows=sizes["image_size"] // sizes["patch_size"],
        class_tokens=1,
        class_positions=1,
        patch_bias=False,
        pre_norm=True,
        post_norm=True,
        pixel_mean=CLIP_MEAN,
        pixel_std=CLIP_STD,
    )


def _write(config: VisionConfig) -> dict[str, Any]:
    return {
        "architectures": ["CLIPVisionModel"],
        "model_type": "clip_vision_model",
        **write_vision_sizes(config),
        "intermediate_size": config.mlp_dim,
    }


def _tables(config: VisionConfig) -> tuple[Table, ...]:
    return _table(config, "vision_model."), _table(config, "")


def _table(config: VisionConfig, prefix: str) -> Table:
    return Table(
        rows=(
            *weight_and_bias("patch_embed", f"{prefix}embeddings.patch_embedding", bias=False),
            with_batch_axes(config, "class_token", f"{prefix}embeddings.class_embedding", tokens=1, axes=0),
            row("position_embed", f"{prefix}embeddings.position_embedding.weight"),
            *weight_and_bias("pre_norm", f"{prefix}pre_layrnorm"),
            *layer_rows(config, LAYER_NAMES, prefix=f"{prefix}encoder.layers."),
            *weight_and_bias("post_norm", f"{prefix}post_layernorm"),
        ),
        ignored=(f"{prefix}embeddings.position_ids", *_TEXT_SIDE),
    )


CLIP = Family("clip", "vision", ("clip_vision_model", "clip"), _read, _write, _tables)
