"""The language model: one decoder for Llama, Mistral, Vicuna, Yi, Qwen2, Qwen3 and SmolLM2.

It takes one flat row of token embeddings and an `Attend` that says what each token may see. The number of heads is
read from the width of the projections, so that a part of the heads (tensor parallelism) runs through the same code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from omniloom.model.activation import activation
from omniloom.model.attention import Attend
from omniloom.model.config import DecoderConfig
from omniloom.model.norm import RMSNorm
from omniloom.model.rope import RopeTable, rope_table, rotate


class Attention(nn.Module):
    """Causal self-attention with rotary positions; groups of query heads may share a head of keys and values."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        self.window = config.window_of(layer)
        self.head_dim = config.head_dim
        kv_dim = config.num_kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.dim, config.num_heads * config.head_dim, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.dim, kv_dim, bias=config.qkv_bias)
        self.v_proj = nn.Linear(config.dim, kv_dim, bias=config.qkv_bias)
        self.o_proj = nn.Linear(config.num_heads * config.head_dim, config.dim, bias=config.output_bias)
        self.q_norm = RMSNorm(config.head_dim, eps=config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(config.head_dim, eps=config.norm_eps) if config.qk_norm else nn.Identity()

    def forward(
        self,
        inputs: Float[Tensor, "tokens dim"],
        rope: RopeTable,
        attend: Attend,
    ) -> Float[Tensor, "tokens dim"]:
        """What each token takes over from those it sees."""
        query = self.q_proj(inputs).unflatten(-1, (-1, self.head_dim))
        key = self.k_proj(inputs).unflatten(-1, (-1, self.head_dim))
        value = self.v_proj(inputs).unflatten(-1, (-1, self.head_dim))
        query, key = rotate(self.q_norm(query), rope), rotate(self.k_norm(key), rope)
        gathered = attend(query, key, value, window=self.window)
        output: Tensor = self.o_proj(gathered.flatten(-2))
        return output


class GatedMLP(nn.Module):
    """down(activation(gate(x)) * up(x)): Shazeer, GLU Variants Improve Transformer."""

    def __init__(self, dim: int, hidden_dim: int, *, activation_name: str, bias: bool) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden_dim, bias=bias)
        self.up_proj = nn.Linear(dim, hidden_dim, bias=bias)
        self.down_proj = nn.Linear(hidden_dim, dim, bias=bias)
        self.activation = activation(activation_name)

    def forward(self, inputs: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows dim"]:
        """Row by row."""
        output: Tensor = self.down_proj(self.activation(self.gate_proj(inputs)) * self.up_proj(inputs))
        return output


class DecoderLayer(nn.Module):
    """Attention, then MLP; each on normed inputs and added to the stream."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.dim, eps=config.norm_eps)
        self.attention = Attention(config, layer)
        self.mlp_norm = RMSNorm(config.dim, eps=config.norm_eps)
        self.mlp = GatedMLP(config.dim, config.mlp_dim, activation_name=config.activation, bias=config.mlp_bias)

    def forward(
        self,
        stream: Float[Tensor, "tokens dim"],
        rope: RopeTable,
        attend: Attend,
    ) -> Float[Tensor, "tokens dim"]:
        """The stream after this layer."""
        stream = stream + self.attention(self.attention_norm(stream), rope, attend)
        output: Tensor = stream + self.mlp(self.mlp_norm(stream))
        return output


class LanguageModel(nn.Module, ABC):
    """What a LLaVA needs of a language model."""

    config: DecoderConfig

    @property
    @abstractmethod
    def head_weight(self) -> Float[Tensor, "vocab dim"]:
        """The rows that score the words."""

    @abstractmethod
    def embed(self, token_ids: Int[Tensor, " tokens"]) -> Float[Tensor, "tokens dim"]:
        """The embeddings of tokens."""

    @abstractmethod
    def forward(self, embeddings: Float[Tensor, "tokens dim"], attend: Attend) -> Float[Tensor, "tokens dim"]:
        """The stream after the last layer and the last norm."""

    def logits(self, stream: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens vocab"]:
        """Scores of all words after each token."""
        return functional.linear(stream, self.head_weight)


class Decoder(LanguageModel):
    """A language model without its loss; parameters have torch's own initial values until they are loaded."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList([DecoderLayer(config, layer) for layer in range(config.num_layers)])
        self.norm = RMSNorm(config.dim, eps=config.norm_eps)
        self.head = None if config.tied_head else nn.Linear(config.dim, config.vocab_size, bias=False)

    @property
    def head_weight(self) -> Float[Tensor, "vocab dim"]:
        """The rows that score the words: the head's, or the embedding's where both are one."""
        return self.embed_tokens.weight if self.head is None else self.head.weight

    def embed(self, token_ids: Int[Tensor, " tokens"]) -> Float[Tensor, "tokens dim"]:
        """The embeddings of tokens."""
        embeddings: Tensor = self.embed_tokens(token_ids)
        return embeddings

    def forward(self, embeddings: Float[Tensor, "tokens dim"], attend: Attend) -> Float[Tensor, "tokens dim"]:
        """The stream after the last layer and the last norm."""
        rope = rope_table(self.config.rope, attend.positions, head_dim=self.config.head_dim, dtype=embeddings.dtype)
        stream = embeddings
        for number, layer in enumerate(self.layers):
            stream = layer(stream, rope, attend.at(number))
        output: Tensor = self.norm(stream)
        return output
