"""Language models in llama.cpp's GGUF files; quantised tensors are read as float32.

For Llama and its like llama.cpp keeps query and key rows in Meta's rotary order, which is undone here; for Qwen it does
not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from omniloom.errors import WeightsError
from omniloom.weights.changes import Change, RotaryOrder, Same
from omniloom.weights.megatron_table import DecoderSizes
from omniloom.weights.source import Source, TensorInfo
from omniloom.weights.table import Row, Table, repeated

_OURS = "language_model."
_MODEL_TYPES = {"llama": "llama", "mistral": "mistral", "qwen2": "qwen2", "qwen3": "qwen3"}
_QKV = ("attention.q_proj", "attention.k_proj", "attention.v_proj")
_LAYER = {
    "attention_norm": "attn_norm",
    "attention.q_proj": "attn_q",
    "attention.k_proj": "attn_k",
    "attention.v_proj": "attn_v",
    "attention.o_proj": "attn_output",
    "mlp_norm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


class GgufFile(Source):
    """The tensors of one file.

    Args:
        path: the file.

    Attributes:
        fields: what the file says of its model, by GGUF's keys.

    Raises:
        WeightsError: the gguf package is missing, or the file is unsound.
    """

    def __init__(self, path: Path) -> None:
        try:
            import gguf  # noqa: PLC0415 - an extra
        except ImportError:
            raise WeightsError(f"{path}: needs the gguf package; run `pip install omniloom[gguf]`") from None
        self.where = str(path)
        self._path = path
        self._gguf = gguf
        try:
            reader = gguf.GGUFReader(path)
            self._tensors = {tensor.name: tensor for tensor in reader.tensors}
            self.fields: dict[str, Any] = {
                name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer.")
            }
        except (ValueError, KeyError, IndexError, OSError) as error:
            raise WeightsError(f"{path}: is not a whole GGUF file ({error}). Fetch it again.") from error
        self.tensors = {
            # GGUF counts axes from the fastest one.
            name: TensorInfo(tuple(int(n) for n in reversed(tensor.shape)), self._dtype(tensor.tensor_type))
            for name, tensor in self._tensors.items()
        }

    def read(self, name: str) -> Tensor:
        """Read a tensor; quantised numbers become float32."""
        info = self.info(name)
        tensor = self._tensors[name]
        if info.dtype is torch.bfloat16:
            return torch.from_numpy(tensor.data.copy()).view(torch.bfloat16).reshape(info.shape)
        if tensor.tensor_type in {self._gguf.GGMLQuantizationType.F32, self._gguf.GGMLQuantizationType.F16}:
            return torch.from_numpy(tensor.data.copy()).reshape(info.shape)
        numbers = self._gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return torch.from_numpy(numbers).reshape(info.shape)

    def identity(self) -> str:
        """Path, size and time of the file."""
        status = self._path.stat()
        return f"{self._path.resolve()} {status.st_size} {status.st_mtime_ns}"

    def _dtype(self, kind: Any) -> torch.dtype:
        kinds = self._gguf.GGMLQuantizationType
        return {kinds.F16: torch.float16, kinds.BF16: torch.bfloat16}.get(kind, torch.float32)


def hf_config_of_gguf(file: GgufFile) -> dict[str, Any]:
    """The model's config.json, as the file tells it.

    Raises:
        WeightsError: it is of an architecture that no family here has.
    """
    architecture = file.fields.get("general.architecture")
    if architecture not in _MODEL_TYPES:
        raise WeightsError(f"{file.where}: holds a {architecture!r}; {', '.join(_MODEL_TYPES)} can be read")

    def told(key: str, default: Any = None) -> Any:
        value = file.fields.get(f"{architecture}.{key}", default)
        if value is None:
            raise WeightsError(f"{file.where}: does not say {architecture}.{key}")
        return value

    heads, dim = told("attention.head_count"), told("embedding_length")
    return {
        "model_type": _MODEL_TYPES[architecture],
        "hidden_size": dim,
        "intermediate_size": told("feed_forward_length"),
        "num_hidden_layers": told("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": told("attention.head_count_kv", heads),
        "head_dim": told("attention.key_length", dim // heads),
        "max_position_embeddings": told("context_length"),
        "rms_norm_eps": told("attention.layer_norm_rms_epsilon"),
        "rope_theta": told("rope.freq_base", 10_000.0),
        "vocab_size": file.info("token_embd.weight").shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "hidden_act": "silu",
    }


def gguf_table(sizes: DecoderSizes, *, architecture: str) -> Table:
    """Our names and llama.cpp's.

    Args:
        sizes: the language model.
        architecture: as the file calls it, which says in what order query and key rows are.
    """
    turned = architecture in {"llama", "mistral"}
    heads = {"attention.q_proj": sizes.num_heads, "attention.k_proj": sizes.num_kv_heads}
    layer: list[Row] = []
    for ours, theirs in _LAYER.items():
        change: Change = RotaryOrder(heads[ours]) if turned and ours in heads else Same()
        kinds = ("weight", "bias") if sizes.qkv_bias and ours in _QKV else ("weight",)
        layer += [Row(f"{_OURS}layers.{{n}}.{ours}.{kind}", f"blk.{{n}}.{theirs}.{kind}", change) for kind in kinds]
    if sizes.qk_norm:
        layer += [
            Row(f"{_OURS}layers.{{n}}.attention.{q}_norm.weight", f"blk.{{n}}.attn_{q}_norm.weight") for q in "qk"
        ]
    head = () if sizes.tied_head else (Row(f"{_OURS}head.weight", "output.weight"),)
    return Table(
        rows=(
            Row(f"{_OURS}embed_tokens.weight", "token_embd.weight"),
            *repeated(layer, n=sizes.num_layers),
            Row(f"{_OURS}norm.weight", "output_norm.weight"),
            *head,
        ),
        ignored=("rope_freqs.weight",),
        copies={"output.weight": "token_embd.weight"} if sizes.tied_head else {},
    )
