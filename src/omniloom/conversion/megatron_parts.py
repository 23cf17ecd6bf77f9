"""Megatron's checkpoints and our configs: the table for a whole model, and the config that a checkpoint implies."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from omniloom.errors import ConfigError, WeightsError
from omniloom.model.config import DecoderConfig, LlavaConfig, ProjectorConfig, VisionConfig
from omniloom.model.families import read_config
from omniloom.model.families.family import Config
from omniloom.weights.megatron_args import hf_config_of_args
from omniloom.weights.megatron_cuts import Part, part_of
from omniloom.weights.megatron_table import (
    LANGUAGE,
    PROJECTION,
    VISION,
    NormStyle,
    decoder_table,
    padded_heads,
    padded_vocabulary,
    projector_table,
    vision_table,
)
from omniloom.weights.source import Source, TensorInfo
from omniloom.weights.table import Table

# What Megatron's `--vision-model-type` means; sizes that its example's configuration fixes.
VISION_TYPES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "clip": {
            "model_type": "clip_vision_model",
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "patch_size": 14,
        },
        "siglip": {
            "model_type": "siglip_vision_model",
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
            "patch_size": 14,
        },
        "internvit": {"model_type": "intern_vit_6b", "num_hidden_layers": 45, "patch_size": 14},
        "internvit300M": {
            "model_type": "intern_vit_6b",
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "norm_type": "layer_norm",
            "qkv_bias": True,
            "qk_normalization": False,
            "patch_size": 14,
        },
    }
)


def table_to_write(config: Config, *, norms: NormStyle, tensor_parallel_size: int, divisible_by: int) -> Table:
    """Our names to Megatron's, for a checkpoint that is to be written.

    Args:
        config: a language model, a tower, or both with a projector.
        norms: spelling of the norms.
        tensor_parallel_size: ranks, which decide on vocabulary padding and dummy heads.
        divisible_by: Megatron's ``--make-vocab-size-divisible-by``.

    Raises:
        WeightsError: Megatron has no such language model.
    """

    def language(sizes: DecoderConfig) -> Table:
        if sizes.transformers_config is not None:
            raise WeightsError(
                "Megatron has no form for a language model that transformers runs (`hf:`). Write omniloom's, or "
                "Hugging Face's."
            )
        padded = padded_vocabulary(
            sizes.vocab_size, tensor_parallel_size=tensor_parallel_size, divisible_by=divisible_by
        )
        return decoder_table(sizes, norms=norms, padded_vocab_size=padded)

    def vision(sizes: VisionConfig) -> Table:
        heads = padded_heads(sizes, tensor_parallel_size=tensor_parallel_size)
        return vision_table(sizes, norms=norms, padded_heads=heads)

    if isinstance(config, DecoderConfig):
        return language(config)
    if isinstance(config, VisionConfig):
        return vision(config)
    return _whole(language(config.language), vision(config.vision), projector_table(config.projector))


def table_to_read(config: Config, source: Source) -> Table:
    """Our names to Megatron's, for a checkpoint that is there: padding and norm names are seen from it."""

    def language(sizes: DecoderConfig, prefix: str) -> Table:
        embedding = source.tensors.get(f"{prefix}embedding.word_embeddings.weight")
        rows = sizes.vocab_size if embedding is None else embedding.shape[0]
        return decoder_table(sizes, norms=_norms(source, "language"), padded_vocab_size=rows)

    def vision(sizes: VisionConfig, prefix: str) -> Table:
        norm = source.tensors.get(f"{prefix}decoder.layers.0.self_attention.q_layernorm.weight")
        heads = None if norm is None else norm.shape[0] * sizes.num_heads // sizes.dim
        return vision_table(sizes, norms=_norms(source, "vision"), padded_heads=heads)

    if isinstance(config, DecoderConfig):
        return language(config, "")
    if isinstance(config, VisionConfig):
        return vision(config, "")
    return _whole(language(config.language, LANGUAGE), vision(config.vision, VISION), projector_table(config.projector))


def implied_config(source: Source, args: argparse.Namespace, *, alone: Part) -> Config:
    """The config that a checkpoint of Megatron implies.

    Args:
        source: its tensors.
        args: what it says Megatron was run with.
        alone: what it holds, where names have no prefix.

    Raises:
        WeightsError: it does not say enough; a config has to be given.
    """
    if any(name.startswith(LANGUAGE) for name in source.tensors):
        return _llava(source, args)
    if alone == "language":
        return _language(args, source.where)
    raise WeightsError(
        f"{source.where}: holds a tower, and Megatron's checkpoints do not say of what model. Give `--config` with the "
        "tower's config.json."
    )


def _language(args: argparse.Namespace, where: str) -> DecoderConfig:
    config = read_config(hf_config_of_args(args, where=where))
    if not isinstance(config, DecoderConfig):
        raise ConfigError(f"{where}: does not describe a language model")
    return config


def _llava(source: Source, args: argparse.Namespace) -> LlavaConfig:
    language = _language(args, source.where)
    kind = getattr(args, "vision_model_type", None)
    if kind not in VISION_TYPES:
        raise WeightsError(
            f"{source.where}: holds a tower of type {kind!r}; only {', '.join(VISION_TYPES)} have sizes fixed by name. "
            "Give `--config` with the whole model's config.json or omniloom.json."
        )
    given = dict(VISION_TYPES[str(kind)])
    positions = source.info(f"{VISION}position_embeddings.weight").shape[0]
    classes = 0 if kind == "siglip" else 1
    given["image_size"] = round((positions - classes) ** 0.5) * given["patch_size"]
    vision = read_config(given)
    if not isinstance(vision, VisionConfig):
        raise ConfigError(f"{source.where}: does not describe a tower")
    shuffled = bool(getattr(args, "pixel_shuffle", False))
    dropped = bool(getattr(args, "disable_vision_class_token", False)) or not classes
    return LlavaConfig(
        language=language,
        vision=vision,
        projector=_projector(source, language, vision, shuffled=shuffled),
        image_token_id=language.vocab_size,
        feature_layers=(-1,),
        keep_class_token=not dropped,
        norm_features=kind == "siglip",
    )


def _projector(source: Source, language: DecoderConfig, vision: VisionConfig, *, shuffled: bool) -> ProjectorConfig:
    first = f"{PROJECTION}encoder.linear_fc1"
    weight: TensorInfo | None = source.tensors.get(f"{first}.weight")
    norm = f"{first}.layer_norm_weight" in source.tensors
    layer_norm = f"{first}.layer_norm_bias" in source.tensors
    return ProjectorConfig(
        input_dim=vision.dim,
        output_dim=language.dim,
        hidden_dims=() if weight is None else (weight.shape[0],),
        bias=f"{first}.bias" in source.tensors or f"{PROJECTION}encoder.bias" in source.tensors,
        norm=("layer" if layer_norm else "rms") if norm else None,
        norm_eps=language.norm_eps,
        reduction="pixel_shuffle" if shuffled else "none",
    )


def _whole(language: Table, vision: Table, projector: Table) -> Table:
    return language.prefixed(theirs=LANGUAGE).joined(
        vision.prefixed(theirs=VISION), projector.prefixed(theirs=PROJECTION)
    )


def _norms(source: Source, part: Part) -> NormStyle:
    fused = any(
        name.endswith(".linear_qkv.layer_norm_weight") and part_of(name, alone=part)[0] == part
        for name in source.tensors
    )
    return "te" if fused else "local"
