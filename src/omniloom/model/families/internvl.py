"""InternVL in transformers' form: pixel shuffle, a norm and two maps between InternViT and a language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omniloom.errors import ConfigError
from omniloom.model.config import LlavaConfig, ProjectorConfig
from omniloom.model.families.family import OUR_PROJECTOR, Family
from omniloom.model.families.fields import Fields
from omniloom.model.families.llava import Read, Tables, Write, feature_layers, projector_rows, whole_tables
from omniloom.weights.table import Row, Table

_DEFAULTS = {
    "image_token_id": 151667,
    "downsample_ratio": 0.5,
    "projector_hidden_act": "gelu",
    "vision_feature_layer": -1,
    "vision_feature_select_strategy": "default",
}


def make_internvl(read_part: Read, write_part: Write, tables_of_part: Tables) -> Family:
    """The family, given how its parts are read and written, which the table of families knows."""

    def read(given: Mapping[str, Any]) -> LlavaConfig:
        return _read(given, read_part)

    def write(config: LlavaConfig) -> dict[str, Any]:
        return _write(config, write_part)

    def tables(config: LlavaConfig) -> tuple[Table, ...]:
        maps = projector_rows(config.projector, {"fc1": "linear_1", "fc2": "linear_2"})
        norm = tuple(Row(f"{OUR_PROJECTOR}norm.{part}", f"layer_norm.{part}") for part in ("weight", "bias"))
        return whole_tables(config, norm + maps, tables_of_part)

    return Family("internvl", "llava", ("internvl",), read, write, tables)


def _read(given: Mapping[str, Any], read_part: Read) -> LlavaConfig:
    fields = Fields(given, _DEFAULTS)
    fields.expect("vision_feature_select_strategy", "default")
    language = read_part({"model_type": "qwen2", **(given.get("text_config") or {})})
    vision = read_part({"model_type": "internvl_vision", **(given.get("vision_config") or {})})
    layers = feature_layers(fields)
    return LlavaConfig(
        language=language,
        vision=vision,
        projector=ProjectorConfig(
            input_dim=vision.dim * len(layers),
            hidden_dims=(language.dim,),
            output_dim=language.dim,
            activation=fields.text("projector_hidden_act"),
            norm="layer",
            reduction="pixel_shuffle",
            factor=round(1 / fields.number("downsample_ratio")),
        ),
        image_token_id=fields.integer("image_token_id"),
        feature_layers=layers,
    )


def _write(config: LlavaConfig, write_part: Write) -> dict[str, Any]:
    projector = config.projector
    if (projector.norm, projector.reduction, projector.bias) != ("layer", "pixel_shuffle", True):
        raise ConfigError(
            f"not expressible as InternVL: its projector has a layer norm, pixel shuffle and biases, not {projector}."
        )
    layers = config.feature_layers
    side = config.vision.image_size
    return {
        "architectures": ["InternVLForConditionalGeneration"],
        "model_type": "internvl",
        "image_token_id": config.image_token_id,
        "image_seq_length": config.image_tokens(side, side),
        "downsample_ratio": 1 / projector.factor,
        "projector_hidden_act": projector.activation,
        "vision_feature_layer": layers[0] if len(layers) == 1 else list(layers),
        "vision_feature_select_strategy": "default",
        "tie_word_embeddings": config.language.tied_head,
        "text_config": write_part(config.language),
        "vision_config": write_part(config.vision),
    }
