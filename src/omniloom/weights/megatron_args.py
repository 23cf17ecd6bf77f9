"""The arguments that Megatron keeps in its checkpoints: written from a config, and read as a config.json.

Only what describes the language model is there; towers and projectors follow from names that Megatron is given when it
runs. Dropout is written as 0, since Megatron takes it from the checkpoint over its own command line.
"""

from __future__ import annotations

import argparse
from typing import Any, Protocol

import torch

from omniloom.errors import WeightsError
from omniloom.weights.megatron_table import DecoderSizes, padded_vocabulary

DIVISIBLE_BY = 128


class DecoderRun(DecoderSizes, Protocol):
    """A language model's sizes and what it computes with."""

    @property
    def dim(self) -> int:
        """Width."""

    @property
    def rope(self) -> Any:
        """Rotary positions: kind, theta and factor."""

    @property
    def max_positions(self) -> int:
        """Longest context in tokens."""

    @property
    def norm_eps(self) -> float:
        """Epsilon of the norms."""

    @property
    def window(self) -> int | None:
        """Tokens that a token sees; ``None`` is all."""


def write_args(
    config: DecoderRun, *, dtype: torch.dtype, tensor_parallel_size: int, te: bool, divisible_by: int = DIVISIBLE_BY
) -> argparse.Namespace:
    """What Megatron would have been run with for this language model.

    Args:
        config: the language model.
        dtype: of its weights.
        tensor_parallel_size: ranks, which decide how far the vocabulary is padded.
        te: whether norms have Transformer Engine's names.
        divisible_by: Megatron's ``--make-vocab-size-divisible-by``.
    """
    rope = config.rope
    args = argparse.Namespace(
        num_layers=config.num_layers,
        hidden_size=config.dim,
        ffn_hidden_size=config.mlp_dim,
        num_attention_heads=config.num_heads,
        group_query_attention=config.num_kv_heads != config.num_heads,
        num_query_groups=config.num_kv_heads,
        kv_channels=config.head_dim,
        max_position_embeddings=config.max_positions,
        seq_length=config.max_positions,
        padded_vocab_size=padded_vocabulary(
            config.vocab_size, tensor_parallel_size=tensor_parallel_size, divisible_by=divisible_by
        ),
        vocab_size=config.vocab_size,
        make_vocab_size_divisible_by=divisible_by,
        position_embedding_type="rope",
        rotary_base=int(rope.theta),
        rotary_percent=1.0,
        rotary_interleaved=False,
        use_rope_scaling=rope.kind == "llama3",
        rope_scaling_factor=float(rope.factor),
        normalization="RMSNorm",
        norm_epsilon=config.norm_eps,
        apply_layernorm_1p=False,
        apply_query_key_layer_scaling=False,
        qk_layernorm=config.qk_norm,
        swiglu=True,
        squared_relu=False,
        add_bias_linear=config.output_bias or config.mlp_bias,
        add_qkv_bias=config.qkv_bias,
        untie_embeddings_and_output_weights=not config.tied_head,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        bf16=dtype is torch.bfloat16,
        fp16=dtype is torch.float16,
        params_dtype=dtype,
        tensor_model_parallel_size=tensor_parallel_size,
        pipeline_model_parallel_size=1,
        transformer_impl="transformer_engine" if te else "local",
        tokenizer_type="HuggingFaceTokenizer",
        iteration=1,
        consumed_train_samples=0,
        consumed_valid_samples=0,
    )
    if config.window is not None:
        args.window_size = (config.window - 1, 0)
    return args


def hf_config_of_args(args: argparse.Namespace, *, where: str) -> dict[str, Any]:
    """A language model's config.json out of the arguments in a checkpoint.

    Args:
        args: as in the checkpoint.
        where: the checkpoint, for messages.

    Raises:
        WeightsError: arguments are missing, or describe something that is not a Llama, Mistral, Qwen2 or Qwen3.
    """
    needed = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "norm_epsilon")
    missing = [name for name in needed if getattr(args, name, None) is None]
    if missing:
        raise WeightsError(
            f"{where}: does not say what model it holds: its arguments have no {', '.join(missing)}. Give `--config` "
            "with the model's config.json."
        )
    told = vars(args)
    obstacles = {
        f"normalization {told.get('normalization')!r}": told.get("normalization", "RMSNorm") != "RMSNorm",
        "an MLP without gate": not told.get("swiglu", True),
        "norms around one": bool(told.get("apply_layernorm_1p")),
        f"positions of type {told.get('position_embedding_type')!r}": told.get("position_embedding_type") != "rope",
        "biases of linear maps": bool(told.get("add_bias_linear")),
    }
    if any(obstacles.values()):
        found = ", ".join(what for what, there in obstacles.items() if there)
        raise WeightsError(f"{where}: holds a model with {found}, which no family here has")
    heads = told["num_attention_heads"]
    config: dict[str, Any] = {
        "model_type": _model_type(told),
        "num_hidden_layers": told["num_layers"],
        "hidden_size": told["hidden_size"],
        "intermediate_size": told["ffn_hidden_size"],
        "num_attention_heads": heads,
        "num_key_value_heads": told.get("num_query_groups") if told.get("group_query_attention") else heads,
        "head_dim": told.get("kv_channels") or told["hidden_size"] // heads,
        "max_position_embeddings": told.get("max_position_embeddings") or 4096,
        "rms_norm_eps": told["norm_epsilon"],
        "rope_theta": float(told.get("rotary_base") or 10_000),
        "vocab_size": told.get("vocab_size") or told.get("padded_vocab_size"),
        "tie_word_embeddings": not told.get("untie_embeddings_and_output_weights"),
        "hidden_act": "silu",
    }
    if told.get("use_rope_scaling"):
        config["rope_scaling"] = {  # Megatron's constants
            "rope_type": "llama3",
            "factor": float(told.get("rope_scaling_factor") or 8.0),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
    window = told.get("window_size")
    if window:
        config["sliding_window"] = int(window[0]) + 1
        config["use_sliding_window"] = True
        config["model_type"] = "mistral" if config["model_type"] == "llama" else config["model_type"]
    return config


def _model_type(told: dict[str, Any]) -> str:
    if told.get("qk_layernorm"):
        return "qwen3"
    return "qwen2" if told.get("add_qkv_bias") else "llama"
