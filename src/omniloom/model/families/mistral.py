"""Mistral 7B: v0.1 with a sliding window, v0.2 and v0.3 without."""

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
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
_WINDOW_TOKENS = 4096  # of a file that says nothing; v0.2 and v0.3 say null


def _read(given: Mapping[str, Any]) -> DecoderConfig:
    fields = Fields(given, _DEFAULTS)
    window = given.get("sliding_window", _WINDOW_TOKENS)
    return DecoderConfig(family="mistral", **read_sizes(fields), window=window)


def _write(config: DecoderConfig) -> dict[str, Any]:
    return {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        **write_sizes(config),
        "sliding_window": config.window,
    }


MISTRAL = Family("mistral", "language", ("mistral",), _read, _write, decoder_tables)
