"""Llama 2, 3, 3.1 and 3.2, and those that publish in its form: Vicuna, Yi, SmolLM2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omniloom.model.config import DecoderConfig
from omniloom.model.families.decoder_files import decoder_tables, read_sizes, write_sizes
from omniloom.model.families.family import Family
from omniloom.model.families.fields import Fields

_DEFAULTS = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}


def _read(given: Mapping[str, Any]) -> DecoderConfig:
    fields = Fields(given, _DEFAULTS)
    bias = fields.flag("attention_bias")
    return DecoderConfig(
        family="llama", **read_sizes(fields), qkv_bias=bias, output_bias=bias, mlp_bias=fields.flag("mlp_bias")
    )


def _write(config: DecoderConfig) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **write_sizes(config),
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.mlp_bias,
    }


LLAMA = Family("llama", "language", ("llama",), _read, _write, decoder_tables)
