"""Qwen2 and Qwen2.5 (biases on queries, keys and values), Qwen3 (norms of queries and keys instead)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omniloom.model.config import DecoderConfig
from omniloom.model.families.decoder_files import (
    decoder_tables,
    read_sizes,
    read_window,
    write_sizes,
    write_window,
)
from omniloom.model.families.family import Family
from omniloom.model.families.fields import Fields

_QWEN2_DEFAULTS = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
_QWEN3_DEFAULTS = {**_QWEN2_DEFAULTS, "head_dim": 128, "attention_bias": False}


def _read_qwen2(given: Mapping[str, Any]) -> DecoderConfig:
    fields = Fields(given, _QWEN2_DEFAULTS)
    return DecoderConfig(family="qwen2", **read_sizes(fields), **read_window(fields), qkv_bias=True)


def _write_qwen2(config: DecoderConfig) -> dict[str, Any]:
    common = {**write_sizes(config), **write_window(config)}
    return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **common}


def _read_qwen3(given: Mapping[str, Any]) -> DecoderConfig:
    fields = Fields(given, _QWEN3_DEFAULTS)
    bias = fields.flag("attention_bias")
    return DecoderConfig(
        family="qwen3",
        **read_sizes(fields),
        **read_window(fields),
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
    )


def _write_qwen3(config: DecoderConfig) -> dict[str, Any]:
    common = {**write_sizes(config), **write_window(config)}
    bias = {"attention_bias": config.qkv_bias}
    return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **common, **bias}


QWEN2 = Family("qwen2", "language", ("qwen2",), _read_qwen2, _write_qwen2, decoder_tables)
QWEN3 = Family("qwen3", "language", ("qwen3",), _read_qwen3, _write_qwen3, decoder_tables)
