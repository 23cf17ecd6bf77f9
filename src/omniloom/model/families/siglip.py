"""SigLIP and SigLIP2 (fixed sizes, one family of files), and SigLIP2 NaFlex, whose patches are rows of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import isqrt
from typing import Any

from omniloom.model.config import VisionConfig
from omniloom.model.families.clip import LAYER_NAMES
from omniloom.model.families.family import Family
from omniloom.model.families.fields import Fields
from omniloom.model.families.vision_files import (
    HALF,
    layer_rows,
    read_vision_sizes,
    row,
    weight_and_bias,
    write_vision_sizes,
)
from omniloom.weights.changes import Chain, Change, Reorder, Reshape, Same
from omniloom.weights.table import Table

_DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
    "num_patches": 256,
}
# The pooling head and the text side make one vector of an image and have no use in a tower.
_NOT_THE_TOWER = ("text_model.*", "logit_scale", "logit_bias")


def _read(given: Mapping[str, Any]) -> VisionConfig:
    if given.get("model_type") == "siglip":
        given = given["vision_config"]
    fields = Fields(given, _DEFAULTS)
    sizes = read_vision_sizes(fields)
    rows = sizes["image_size"] // sizes["patch_size"]
    return VisionConfig(family="siglip", **sizes, **_common(fields), position_rows=rows, positions="bicubic")


def _read_naflex(given: Mapping[str, Any]) -> VisionConfig:
    if given.get("model_type") == "siglip2":
        given = given["vision_config"]
    fields = Fields(given, _DEFAULTS)
    rows = isqrt(fields.integer("num_patches"))
    sizes = {**read_vision_sizes(fields), "image_size": rows * fields.side("patch_size")}
    common = _common(fields)
    return VisionConfig(family="siglip2_naflex", **sizes, **common, position_rows=rows, positions="bilinear_antialias")


def _common(fields: Fields) -> dict[str, Any]:
    mlp_dim = fields.integer("intermediate_size")
    return {"mlp_dim": mlp_dim, "post_norm": True, "pixel_mean": HALF, "pixel_std": HALF}


def _write(config: VisionConfig) -> dict[str, Any]:
    return {
        "architectures": ["SiglipVisionModel"],
        "model_type": "siglip_vision_model",
        **write_vision_sizes(config),
        "intermediate_size": config.mlp_dim,
        "vision_use_head": False,
    }


def _write_naflex(config: VisionConfig) -> dict[str, Any]:
    sizes = write_vision_sizes(config)
    del sizes["image_size"]
    return {
        "architectures": ["Siglip2VisionModel"],
        "model_type": "siglip2_vision_model",
        **sizes,
        "intermediate_size": config.mlp_dim,
        "num_patches": config.position_rows**2,
        "vision_use_head": False,
    }


def _tables(config: VisionConfig, *, patch: str = "conv") -> tuple[Table, ...]:
    change = Same() if patch == "conv" else _pixels_first(config)
    return _table(config, "vision_model.", change), _table(config, "", change)


def _pixels_first(config: VisionConfig) -> Change:
    """A patch as a row of numbers: line by line, pixel by pixel, colours innermost."""
    square = (config.dim, config.patch_size, config.patch_size, 3)
    return Chain(Reorder((0, 2, 3, 1)), (Reshape(square, (config.dim, 3 * config.patch_size**2)),))


def _table(config: VisionConfig, prefix: str, patch: Change) -> Table:
    patch_name = f"{prefix}embeddings.patch_embedding"
    return Table(
        rows=(
            row("patch_embed.weight", f"{patch_name}.weight", patch),
            row("patch_embed.bias", f"{patch_name}.bias"),
            row("position_embed", f"{prefix}embeddings.position_embedding.weight"),
            *layer_rows(config, LAYER_NAMES, prefix=f"{prefix}encoder.layers."),
            *weight_and_bias("post_norm", f"{prefix}post_layernorm"),
        ),
        ignored=(f"{prefix}embeddings.position_ids", f"{prefix}head.*", *_NOT_THE_TOWER),
    )


SIGLIP = Family("siglip", "vision", ("siglip_vision_model", "siglip"), _read, _write, _tables)
SIGLIP2_NAFLEX = Family(
    "siglip2_naflex",
    "vision",
    ("siglip2_vision_model", "siglip2"),
    _read_naflex,
    _write_naflex,
    partial(_tables, patch="rows"),
)
