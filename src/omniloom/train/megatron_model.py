"""The model that the flags of a Megatron script describe."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, cast

from omniloom.conversion.megatron_parts import VISION_TYPES
from omniloom.errors import ConfigError, WeightsError
from omniloom.model.config import DecoderConfig, LlavaConfig, Norm, ProjectorConfig, VisionConfig
from omniloom.model.families import read_config
from omniloom.train.megatron_flags import PROJECTORS, VOCABULARIES
from omniloom.train.script_flags import ScriptFlags
from omniloom.weights.megatron_args import hf_config_of_args

_RADIO_TYPES: Mapping[str, Mapping[str, Any]] = {
    "radio": {"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16},
    "cradio-g": {"hidden_size": 1536, "num_hidden_layers": 40, "num_attention_heads": 24},
}
"""Towers whose checkpoints do not tell their sizes by their names; of radio-g nothing here has the layer scales."""
_OF_RADIO = {
    "model_type": "radio", "mlp_ratio": 4.0, "hidden_act": "gelu_pytorch_tanh", "patch_size": 16, "max_img_size": 2048,
    "num_cls_tokens": 8, "num_registers": 0,
}  # fmt: skip


def described_model(flags: ScriptFlags) -> LlavaConfig:
    """The model, with the tower and the projector that Megatron's example gives it.

    Raises:
        ConfigError: the flags do not say enough, or say something that no family here is.
    """
    kind = flags.text("language-model-type")
    if kind not in PROJECTORS:
        raise ConfigError(f"--language-model-type: {kind} found; one of {', '.join(PROJECTORS)} expected.")
    language, vision = _language(flags, kind), _vision(flags)
    width, norm, bias = PROJECTORS[kind]
    drops = flags.has("disable-vision-class-token") or not vision.prefix_tokens
    return LlavaConfig(
        language=language,
        vision=vision,
        projector=ProjectorConfig(
            input_dim=vision.dim,
            output_dim=language.dim,
            hidden_dims=(width,),
            bias=bias,
            norm=cast("Norm | None", norm),
            norm_eps=language.norm_eps if norm == "rms" else 1e-5,
            reduction="pixel_shuffle" if flags.has("pixel-shuffle") else "none",
        ),
        image_token_id=language.vocab_size,
        feature_layers=(-1,),
        keep_class_token=vision.prefix_tokens == 0 if drops else True,
        norm_features=flags.text("vision-model-type", "clip") == "siglip",  # the others give features before their norm
    )


def _language(flags: ScriptFlags, kind: str) -> DecoderConfig:
    if flags.number("rotary-percent", 1.0) != 1.0:
        raise ConfigError(f"--rotary-percent: {flags.text('rotary-percent')} found; 1.0 expected, no family has less.")
    heads = flags.whole("num-attention-heads")
    window = tuple(int(word) for word in re.findall(r"-?\d+", flags.text("window-size", "none")))
    qwen = kind.startswith("qwen")
    told = Namespace(
        num_layers=flags.whole("num-layers"),
        hidden_size=flags.whole("hidden-size"),
        ffn_hidden_size=flags.whole("ffn-hidden-size"),
        num_attention_heads=heads,
        group_query_attention=flags.has("group-query-attention"),
        num_query_groups=flags.whole("num-query-groups", heads),
        kv_channels=flags.whole("kv-channels", 0),
        max_position_embeddings=flags.whole("max-position-embeddings", 4096),
        norm_epsilon=flags.number("norm-epsilon", 1e-6 if qwen else 1e-5),
        rotary_base=flags.number("rotary-base", 1e4),
        use_rope_scaling=flags.has("use-rope-scaling"),
        rope_scaling_factor=flags.number("rope-scaling-factor", 8.0),
        vocab_size=flags.whole("vocab-size", VOCABULARIES[kind]),
        untie_embeddings_and_output_weights=flags.has("untie-embeddings-and-output-weights"),
        normalization=flags.text("normalization", "LayerNorm"),
        swiglu=True,  # as the example has it for each of these models
        position_embedding_type=flags.text("position-embedding-type", "learned_absolute"),
        add_bias_linear=False,  # the same
        add_qkv_bias=qwen,  # the same
        qk_layernorm=flags.has("qk-layernorm"),
        window_size=window if window and window[0] >= 0 else None,
    )
    try:
        config = read_config(hf_config_of_args(told, where="the script"))
    except WeightsError as error:
        raise ConfigError(str(error)) from error
    return cast(DecoderConfig, config)


def _vision(flags: ScriptFlags) -> VisionConfig:
    kind = flags.text("vision-model-type", "clip")
    known = {**VISION_TYPES, **{name: {**_OF_RADIO, **sizes} for name, sizes in _RADIO_TYPES.items()}}
    if kind not in known:
        raise ConfigError(f"--vision-model-type: {kind} found; one of {', '.join(known)} expected.")
    given: dict[str, Any] = {**known[kind], "image_size": flags.whole("img-h")}
    if flags.whole("img-w", given["image_size"]) != given["image_size"]:
        raise ConfigError(
            f"--img-w: {flags.text('img-w')} found with --img-h {given['image_size']}; a square expected."
        )
    if flags.whole("patch-dim", given["patch_size"]) != given["patch_size"]:
        raise ConfigError(f"--patch-dim: {flags.text('patch-dim')} found; {given['patch_size']} of {kind} expected.")
    return cast(VisionConfig, read_config(given))
