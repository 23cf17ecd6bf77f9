"""What the files of Llama, Mistral, Qwen2 and Qwen3 have in common: rope sections and the names of tensors."""

from __future__ import annotations

from typing import Any

from omniloom.errors import ConfigError
from omniloom.model.config import DecoderConfig, RopeConfig
from omniloom.model.families.family import OUR_LANGUAGE
from omniloom.model.families.fields import Fields
from omniloom.model.families.other_decoders import other_decoder_table
from omniloom.weights.table import Row, Table, repeated

_LAYER_NAMES = {
    "attention_norm": "input_layernorm",
    "attention.q_proj": "self_attn.q_proj",
    "attention.k_proj": "self_attn.k_proj",
    "attention.v_proj": "self_attn.v_proj",
    "attention.o_proj": "self_attn.o_proj",
    "attention.q_norm": "self_attn.q_norm",
    "attention.k_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate_proj": "mlp.gate_proj",
    "mlp.up_proj": "mlp.up_proj",
    "mlp.down_proj": "mlp.down_proj",
}
_QKV = ("attention.q_proj", "attention.k_proj", "attention.v_proj")
_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def decoder_table(config: DecoderConfig, *, model: str = "model.", head: str = "lm_head") -> Table:
    """Our names and those of a ``...ForCausalLM``.

    Args:
        config: the decoder.
        model: prefix of all but the head.
        head: name of the head, without ``.weight``.
    """
    if config.transformers_config is not None:
        return other_decoder_table(config, model=model, head=head)
    biased = (*(_QKV if config.qkv_bias else ()), *(("attention.o_proj",) if config.output_bias else ()))
    biased = (*biased, *(_MLP if config.mlp_bias else ()))
    unused = () if config.qk_norm else ("attention.q_norm", "attention.k_norm")
    layer = [
        Row(f"{OUR_LANGUAGE}layers.{{layer}}.{ours}.{part}", f"{model}layers.{{layer}}.{theirs}.{part}")
        for ours, theirs in _LAYER_NAMES.items()
        for part in (("weight", "bias") if ours in biased else ("weight",))
        if ours not in unused
    ]
    embedding, head_name = f"{model}embed_tokens.weight", f"{head}.weight"
    return Table(
        rows=(
            Row(f"{OUR_LANGUAGE}embed_tokens.weight", embedding),
            *repeated(layer, layer=config.num_layers),
            Row(f"{OUR_LANGUAGE}norm.weight", f"{model}norm.weight"),
            *(() if config.tied_head else (Row(f"{OUR_LANGUAGE}head.weight", head_name),)),
        ),
        ignored=(f"{model}layers.*.rotary_emb.inv_freq", f"{model}rotary_emb.inv_freq"),
        copies={head_name: embedding} if config.tied_head else {},
    )


def decoder_tables(config: DecoderConfig) -> tuple[Table, ...]:
    """The one generation of names that language models have."""
    return (decoder_table(config),)


def read_rope(fields: Fields) -> RopeConfig:
    """The rope section: ``rope_parameters`` of newer files, ``rope_theta`` and ``rope_scaling`` of older ones.

    Raises:
        ConfigError: a kind of scaling that is not known here.
    """
    section = {**(fields.get("rope_scaling") or {}), **(fields.get("rope_parameters") or {})}
    theta = float(section.get("rope_theta", fields.get("rope_theta", 10_000.0)))
    kind = section.get("rope_type", section.get("type", "default"))
    if section.get("partial_rotary_factor", fields.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ConfigError(
            "config.json: rotary positions on a part of each head ('partial_rotary_factor') are not here."
        )
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind == "linear":
        return RopeConfig(kind="linear", theta=theta, factor=float(section["factor"]))
    original = int(section.get("original_max_position_embeddings", fields.integer("max_position_embeddings")))
    if kind == "llama3":
        return RopeConfig(
            kind="llama3",
            theta=theta,
            factor=float(section["factor"]),
            low_frequency_factor=float(section["low_freq_factor"]),
            high_frequency_factor=float(section["high_freq_factor"]),
            original_positions=original,
        )
    if kind == "yarn":
        factor = section.get("attention_factor")
        return RopeConfig(
            kind="yarn",
            theta=theta,
            factor=float(section["factor"]),
            original_positions=original,
            beta_fast=float(section.get("beta_fast") or 32),
            beta_slow=float(section.get("beta_slow") or 1),
            attention_factor=None if factor is None else float(factor),
        )
    raise ConfigError(
        f"config.json: rope scaling of kind {kind!r} is not known here; default, linear, llama3 and yarn are. "
        "Use `hf:PATH`, which runs transformers' own code."
    )


def write_rope(rope: RopeConfig) -> dict[str, Any]:
    """``rope_theta`` and ``rope_scaling``, which old and new readers understand."""
    if rope.kind == "default":
        return {"rope_theta": rope.theta, "rope_scaling": None}
    scaling: dict[str, Any] = {"rope_type": rope.kind, "factor": rope.factor}
    if rope.kind != "linear":
        scaling["original_max_position_embeddings"] = rope.original_positions
    if rope.kind == "llama3":
        scaling |= {"low_freq_factor": rope.low_frequency_factor, "high_freq_factor": rope.high_frequency_factor}
    if rope.kind == "yarn":
        scaling |= {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow}
        scaling |= {} if rope.attention_factor is None else {"attention_factor": rope.attention_factor}
    return {"rope_theta": rope.theta, "rope_scaling": scaling}


def read_sizes(fields: Fields) -> dict[str, Any]:
    """The fields that all language models have under the same names, as arguments of `DecoderConfig`."""
    heads = fields.integer("num_attention_heads")
    return {
        "vocab_size": fields.integer("vocab_size"),
        "dim": fields.integer("hidden_size"),
        "num_layers": fields.integer("num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": int(fields.get("num_key_value_heads", heads)),
        "head_dim": int(fields.get("head_dim", fields.integer("hidden_size") // heads)),
        "mlp_dim": fields.integer("intermediate_size"),
        "max_positions": fields.integer("max_position_embeddings"),
        "norm_eps": fields.number("rms_norm_eps"),
        "activation": fields.text("hidden_act"),
        "tied_head": fields.flag("tie_word_embeddings"),
        "rope": read_rope(fields),
    }


def write_sizes(config: DecoderConfig) -> dict[str, Any]:
    """The reverse of `read_sizes`."""
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.mlp_dim,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": config.activation,
        "tie_word_embeddings": config.tied_head,
        **write_rope(config.rope),
    }


def read_window(fields: Fields) -> dict[str, Any]:
    """Qwen's window: it is used only where `use_sliding_window` says so, and from `max_window_layers` on.

    Raises:
        ConfigError: `layer_types` say something else.
    """
    if not fields.flag("use_sliding_window"):
        return {"window": None}
    window, first = fields.integer("sliding_window"), fields.integer("max_window_layers")
    layers = fields.integer("num_hidden_layers")
    expected = ["sliding_attention" if layer >= first else "full_attention" for layer in range(layers)]
    fields.expect("layer_types", expected)
    return {"window": window, "window_from_layer": first}


def write_window(config: DecoderConfig) -> dict[str, Any]:
    """The reverse of `read_window`."""
    return {
        "use_sliding_window": config.window is not None,
        "sliding_window": config.window,
        "max_window_layers": config.window_from_layer if config.window is not None else config.num_layers,
    }
