"""What the files of vision towers have in common: constants of pixels, and tables made from pairs of names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from omniloom.model.config import VisionConfig
from omniloom.model.families.family import OUR_VISION
from omniloom.weights.changes import Change, Fuse, Reshape, Same
from omniloom.weights.table import Row, repeated

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5)

_SAME = Same()


def row(ours: str, theirs: str, change: Change = _SAME) -> Row:
    """A row of the tower."""
    return Row(OUR_VISION + ours, theirs, change)


def weight_and_bias(ours: str, theirs: str, *, bias: bool = True) -> list[Row]:
    """Rows of a linear map or a norm."""
    return [row(f"{ours}.{part}", f"{theirs}.{part}") for part in (("weight", "bias") if bias else ("weight",))]


def layer_rows(config: VisionConfig, names: Mapping[str, str], *, prefix: str) -> tuple[Row, ...]:
    """Rows of all layers.

    Args:
        config: the tower.
        names: our names within a layer (without ``.weight``) to theirs; scales, which have neither weight nor bias,
            and ``attention.qkv``, which fuses three of ours, included. Names that the tower lacks are left out.
        prefix: theirs, before the number of the layer.
    """
    rows: list[Row] = []
    for ours, theirs in names.items():
        rows += _rows_of(config, f"layers.{{layer}}.{ours}", f"{prefix}{{layer}}.{theirs}")
    return repeated(rows, layer=config.num_layers)


def _rows_of(config: VisionConfig, ours: str, theirs: str) -> list[Row]:
    name = ours.rpartition(".")[2]
    if not _PRESENT.get(name, _always)(config):
        return []
    if name.endswith("_scale"):
        return [row(ours, theirs)]
    if name == "qkv":
        return _fused_rows(config, ours, theirs)
    return weight_and_bias(ours, theirs, bias=_BIASED.get(name, _always)(config))


def _always(_: VisionConfig) -> bool:
    return True


_PRESENT: dict[str, Callable[[VisionConfig], bool]] = {
    **dict.fromkeys(("attention_scale", "mlp_scale"), lambda config: config.layer_scale),
    **dict.fromkeys(("q_norm", "k_norm"), lambda config: config.qk_norm),
    **dict.fromkeys(("fc1", "fc2"), lambda config: not config.gated_mlp),
    **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), lambda config: config.gated_mlp),
}
_BIASED: dict[str, Callable[[VisionConfig], bool]] = {
    **dict.fromkeys(("attention_norm", "mlp_norm"), lambda config: config.norm == "layer"),
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), lambda config: config.qkv_bias),
    **dict.fromkeys(("q_norm", "k_norm"), lambda _: False),
}


def _fused_rows(config: VisionConfig, ours: str, theirs: str) -> list[Row]:
    before = OUR_VISION + ours.removesuffix("qkv")
    parts = ("weight", "bias") if config.qkv_bias else ("weight",)
    fuse = Fuse((config.dim,) * 3)
    return [Row(tuple(f"{before}{one}_proj.{part}" for one in "qkv"), f"{theirs}.{part}", fuse) for part in parts]


def fused_gate_rows(config: VisionConfig, theirs: str, *, prefix: str) -> tuple[Row, ...]:
    """Rows of a gated MLP whose gate and up maps are one tensor, in all layers."""
    ours = OUR_VISION + "layers.{layer}.mlp."
    fuse = Fuse((config.mlp_dim,) * 2)
    rows = [
        Row((f"{ours}gate_proj.{part}", f"{ours}up_proj.{part}"), f"{prefix}{{layer}}.{theirs}.{part}", fuse)
        for part in ("weight", "bias")
    ]
    return repeated(rows, layer=config.num_layers)


def with_batch_axes(config: VisionConfig, ours: str, theirs: str, *, tokens: int, axes: int) -> Row:
    """A row of learned tokens, to which theirs gives leading axes of length 1 (or none: one token as a vector)."""
    shape = (tokens, config.dim)
    return row(ours, theirs, Reshape(shape, (1,) * axes + shape if axes else (config.dim,)))


def read_vision_sizes(fields: Any) -> dict[str, Any]:
    """The fields that all towers have under the same names, as arguments of `VisionConfig`."""
    return {
        "image_size": fields.side("image_size"),
        "patch_size": fields.side("patch_size"),
        "dim": fields.integer("hidden_size"),
        "num_layers": fields.integer("num_hidden_layers"),
        "num_heads": fields.integer("num_attention_heads"),
        "activation": fields.text("hidden_act"),
        "norm_eps": fields.number("layer_norm_eps"),
    }


def write_vision_sizes(config: VisionConfig) -> dict[str, Any]:
    """The reverse of `read_vision_sizes`."""
    return {
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        "hidden_size": config.dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "hidden_act": config.activation,
        "layer_norm_eps": config.norm_eps,
        "num_channels": 3,
    }
