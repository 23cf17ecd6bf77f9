"""OpenAI's CLIP archives: ``ViT-L-14-336px.pt`` and its like, TorchScript or state dict, read without their code.

| OpenAI's name (under ``visual.``) | ours (under ``vision_tower.``) |
|---|---|
| class_embedding ``[D]``, positional_embedding, conv1.weight | class_token ``[1, D]``, position_embed, patch_embed |
| ln_pre, ln_post | pre_norm, post_norm |
| transformer.resblocks.N.attn.in_proj_{weight,bias} | q, k and v, one after the other |
| transformer.resblocks.N.attn.out_proj, ln_1, ln_2 | attention.o_proj, attention_norm, mlp_norm |
| transformer.resblocks.N.mlp.c_fc, c_proj | mlp.fc1, mlp.fc2 |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omniloom.errors import WeightsError
from omniloom.weights.changes import Fuse, Reshape
from omniloom.weights.hf_folder import open_tensor_file
from omniloom.weights.source import Source, TensorInfo, with_prefix_removed
from omniloom.weights.table import Row, Table, repeated

_LAYER = re.compile(r"^transformer\.resblocks\.(\d+)\.")
_HEAD_DIM = 64  # in all of OpenAI's vision transformers
_OURS = "vision_tower."


def is_openai_clip(source: Source) -> bool:
    """Whether tensors have the names of OpenAI's CLIP, with its text side or without."""
    return "visual.class_embedding" in source.tensors or "class_embedding" in source.tensors


def open_openai_clip(path: Path) -> Source:
    """The tower of an archive, under OpenAI's names without ``visual.``.

    Raises:
        WeightsError: the file is unsound, or its tower is not a vision transformer.
    """
    source = open_tensor_file(path)
    if any(name.startswith("visual.layer1.") for name in source.tensors):
        raise WeightsError(f"{path}: holds a ResNet of CLIP; take one whose name begins with ViT")
    if not is_openai_clip(source):
        raise WeightsError(f"{path}: holds no tower of OpenAI's CLIP")
    return with_prefix_removed(source, "visual.") if "visual.class_embedding" in source.tensors else source


def hf_config_of_openai_clip(source: Source) -> dict[str, Any]:
    """The tower's config.json, as its shapes tell it; activation and epsilon are the same in all of them."""
    positions, dim = _shape(source.tensors, "positional_embedding")
    _, _, patch, _ = _shape(source.tensors, "conv1.weight")
    layers = {found[1] for found in map(_LAYER.match, source.tensors) if found}
    return {
        "model_type": "clip_vision_model",
        "hidden_size": dim,
        "intermediate_size": _shape(source.tensors, "transformer.resblocks.0.mlp.c_fc.weight")[0],
        "num_hidden_layers": len(layers),
        "num_attention_heads": max(dim // _HEAD_DIM, 1),
        "image_size": round((positions - 1) ** 0.5) * patch,
        "patch_size": patch,
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
    }


def openai_clip_table(*, dim: int, num_layers: int) -> Table:
    """Our names and OpenAI's.

    Args:
        dim: width of the tower.
        num_layers: its layers.
    """
    ours, theirs = f"{_OURS}layers.{{layer}}.", "transformer.resblocks.{layer}."
    three = Fuse((dim, dim, dim))
    pairs = {
        "attention_norm": "ln_1",
        "attention.o_proj": "attn.out_proj",
        "mlp_norm": "ln_2",
        "mlp.fc1": "mlp.c_fc",
        "mlp.fc2": "mlp.c_proj",
    }
    kinds = ("weight", "bias")
    layer = [
        *(
            Row(tuple(f"{ours}attention.{one}_proj.{kind}" for one in "qkv"), f"{theirs}attn.in_proj_{kind}", three)
            for kind in kinds
        ),
        *(Row(f"{ours}{our}.{kind}", f"{theirs}{their}.{kind}") for our, their in pairs.items() for kind in kinds),
    ]
    return Table(
        rows=(
            Row(f"{_OURS}class_token", "class_embedding", Reshape((1, dim), (dim,))),
            Row(f"{_OURS}position_embed", "positional_embedding"),
            Row(f"{_OURS}patch_embed.weight", "conv1.weight"),
            *(Row(f"{_OURS}pre_norm.{kind}", f"ln_pre.{kind}") for kind in kinds),
            *repeated(layer, layer=num_layers),
            *(Row(f"{_OURS}post_norm.{kind}", f"ln_post.{kind}") for kind in kinds),
        ),
        ignored=("proj",),
    )


def _shape(tensors: Mapping[str, TensorInfo], name: str) -> tuple[int, ...]:
    if name not in tensors:
        raise WeightsError(f"a tower of OpenAI's CLIP without {name!r}; the file is not whole")
    return tensors[name].shape
