"""RADIO and C-RADIO: one square of positions for any size, several class and register tokens.

The norming of pixels, a part of the published model, is in `VisionConfig.pixel_mean` and `pixel_std` here, where all
towers have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omniloom.errors import ConfigError
from omniloom.model.config import VisionConfig
from omniloom.model.families.family import OUR_VISION, Family
from omniloom.model.families.fields import Fields
from omniloom.model.families.vision_files import (
    CLIP_MEAN,
    CLIP_STD,
    layer_rows,
    read_vision_sizes,
    row,
    write_vision_sizes,
)
from omniloom.weights.changes import Change, Fuse, Reshape, Same
from omniloom.weights.table import Row, Table

_DEFAULTS = {
    "hidden_size": 1280,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "mlp_ratio": 4.0,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "use_swiglu_ffn": False,
    "qkv_bias": True,
    "patch_size": 16,
    "image_size": 224,
    "max_img_size": 2048,
    "num_cls_tokens": 3,
    "num_registers": 7,
    "norm_mean": CLIP_MEAN,
    "norm_std": CLIP_STD,
    "layerscale_value": 1.0,
}
_PROGRAM_SIZES = {  # width, layers, heads of the backbones' names
    "vit_base": (768, 12, 12),
    "vit_large": (1024, 24, 16),
    "vit_huge": (1280, 32, 16),
}
_MLP_NAMES = {f"mlp.{name}": f"mlp.{name}" for name in ("fc1", "fc2", "gate_proj", "up_proj", "down_proj")}
_HUB = "radio_model.model."
# C-RADIO has no layer scale; transformers' class has one that is 1 and writes it.
_HUB_IGNORED = ("radio_model.input_conditioner.*", "radio_model.summary_idxs", f"{_HUB}blocks.*.layer_scale*.lambda1")
_HUB_NAMES = {
    "attention_norm": "norm1",
    "attention.qkv": "attn.qkv",
    "attention.o_proj": "attn.proj",
    "mlp_norm": "norm2",
    **_MLP_NAMES,
}
_NAMES = {
    "attention_norm": "norm1",
    "attention.q_proj": "attention.q_proj",
    "attention.k_proj": "attention.k_proj",
    "attention.v_proj": "attention.v_proj",
    "attention.o_proj": "attention.o_proj",
    "mlp_norm": "norm2",
    **_MLP_NAMES,
}


def swiglu_dim(dim: int, ratio: float) -> int:
    """Width of a SwiGLU in the place of an MLP of `ratio` times the width: two thirds, up to a multiple of 8."""
    return (int(int(dim * ratio) * 2 / 3) + 7) // 8 * 8


def _read(given: Mapping[str, Any]) -> VisionConfig:
    fields = Fields(_of_program(given) if "args" in given else given, _DEFAULTS)
    sizes = read_vision_sizes(fields)
    gated = fields.flag("use_swiglu_ffn")
    fields.expect("layerscale_value", 1.0)
    ratio = fields.number("mlp_ratio")
    return VisionConfig(
        family="radio",
        **{**sizes, "activation": "silu" if gated else sizes["activation"]},
        mlp_dim=swiglu_dim(sizes["dim"], ratio) if gated else int(sizes["dim"] * ratio),
        position_rows=fields.integer("max_img_size") // sizes["patch_size"],
        class_tokens=fields.integer("num_cls_tokens"),
        register_tokens=fields.integer("num_registers"),
        positions="cropped",
        patch_bias=False,
        qkv_bias=fields.flag("qkv_bias"),
        gated_mlp=gated,
        pixel_mean=fields.triple("norm_mean"),
        pixel_std=fields.triple("norm_std"),
    )


def _of_program(given: Mapping[str, Any]) -> dict[str, Any]:
    """The file of RADIO's own program, which describes the model by the arguments of its training.

    A class token for each teacher's name (several entries may share one), then registers up to the next multiple.
    """
    arguments = given["args"]
    name, side = str(arguments.get("model")), arguments.get("cpe_max_size")
    backbone = name.partition("_patch")[0]
    if backbone not in _PROGRAM_SIZES or side is None:
        raise ConfigError(
            f"config.json of 'radio': backbone {name!r} with cpe_max_size {side}; known are "
            f"{', '.join(_PROGRAM_SIZES)} with cropped positions."
        )
    dim, layers, heads = _PROGRAM_SIZES[backbone]
    teachers = {teacher["name"] for teacher in arguments["teachers"]}
    tokens = len(teachers) if arguments.get("cls_token_per_teacher") else 1
    multiple = arguments.get("register_multiple") or 0
    return {
        "model_type": "radio",
        "hidden_size": dim,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "patch_size": given["patch_size"],
        "max_img_size": -(-side // given["patch_size"]) * given["patch_size"],
        "num_cls_tokens": tokens,
        "num_registers": multiple - tokens % multiple if multiple else 0,
    }


def _write(config: VisionConfig) -> dict[str, Any]:
    sizes = write_vision_sizes(config)
    return {
        "architectures": ["RadioModel"],
        "model_type": "radio",
        **{**sizes, "hidden_act": "gelu" if config.gated_mlp else sizes["hidden_act"]},
        "mlp_ratio": config.mlp_dim / config.dim * (1.5 if config.gated_mlp else 1.0),
        "use_swiglu_ffn": config.gated_mlp,
        "qkv_bias": config.qkv_bias,
        "max_img_size": config.position_rows * config.patch_size,
        "num_cls_tokens": config.class_tokens,
        "num_registers": config.register_tokens,
        "norm_mean": list(config.pixel_mean),
        "norm_std": list(config.pixel_std),
    }


def _tables(config: VisionConfig) -> tuple[Table, ...]:
    hub = Table(
        rows=(
            *_embedding_rows(config, f"{_HUB}patch_generator.", ("embedder", "pos_embed", "cls_token.token")),
            *layer_rows(config, _HUB_NAMES, prefix=f"{_HUB}blocks."),
        ),
        ignored=(f"{_HUB}patch_generator.video_embedder.*", *_HUB_IGNORED),
    )
    native_names = ("patch_projection", "position_embedding", "cls_register_token")
    native = Table(
        rows=(
            *_embedding_rows(config, "embeddings.", native_names),
            *layer_rows(config, _NAMES, prefix="encoder.layer."),
        ),
        ignored=(
            "input_conditioner.*",
            "summary_idxs",
            "embeddings.video_patch_projection.*",
            "*.layer_scale*.lambda1",
        ),
    )
    return hub, native


def _embedding_rows(config: VisionConfig, prefix: str, names: tuple[str, str, str]) -> list[Row]:
    patch, positions, tokens = names
    square = (config.dim, 3, config.patch_size, config.patch_size)
    grid = (config.position_rows**2, config.dim)
    flat = Reshape(square, (config.dim, 3 * config.patch_size**2))
    return [
        row("patch_embed.weight", f"{prefix}{patch}.weight", flat),
        row("position_embed", f"{prefix}{positions}", Reshape(grid, (1, *grid))),
        _token_row(config, f"{prefix}{tokens}"),
    ]


def _token_row(config: VisionConfig, theirs: str) -> Row:
    counts = {"class_token": config.class_tokens, "register_tokens": config.register_tokens}
    there = {name: count for name, count in counts.items() if count}
    change: Change = Fuse(tuple(there.values())) if len(there) > 1 else Same()
    return Row(tuple(OUR_VISION + name for name in there), theirs, change)


RADIO = Family("radio", "vision", ("radio",), _read, _write, _tables)
