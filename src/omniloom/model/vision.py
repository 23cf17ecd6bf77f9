"""The vision tower: one transformer for CLIP, SigLIP, InternViT, RADIO and DINOv2.

Tokens are class tokens, register tokens, then patches in reading order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from omniloom.errors import InputError
from omniloom.model.activation import activation
from omniloom.model.attention import attend_all
from omniloom.model.config import VisionConfig
from omniloom.model.decoder import GatedMLP
from omniloom.model.norm import RMSNorm, make_norm
from omniloom.model.positions import fit_positions

CHANNELS = 3


class PatchEmbed(nn.Module):
    """A linear map of each square of pixels; the weight is laid out as that of a convolution."""

    def __init__(self, dim: int, patch_size: int, *, bias: bool) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.weight = nn.Parameter(torch.empty(dim, CHANNELS, patch_size, patch_size))
        self.bias = nn.Parameter(torch.zeros(dim)) if bias else None
        nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, images: Float[Tensor, "images 3 height width"]) -> Float[Tensor, "images patches dim"]:
        """Embeddings of the patches in reading order; pixels beyond the last whole patch are left out."""
        rows, columns = images.shape[-2] // self.patch_size, images.shape[-1] // self.patch_size
        whole = images[..., : rows * self.patch_size, : columns * self.patch_size]
        squares = whole.reshape(*whole.shape[:2], rows, self.patch_size, columns, self.patch_size)
        patches = squares.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        return functional.linear(patches.to(self.weight.dtype), self.weight.flatten(1), self.bias)


class VisionAttention(nn.Module):
    """Every token of an image sees all of it."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.head_dim = config.dim // config.num_heads
        self.q_proj = nn.Linear(config.dim, config.dim, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.dim, config.dim, bias=config.qkv_bias)
        self.v_proj = nn.Linear(config.dim, config.dim, bias=config.qkv_bias)
        self.o_proj = nn.Linear(config.dim, config.dim)
        # InternViT-6B norms over all heads at once, unlike Qwen3, which norms each head.
        self.q_norm = RMSNorm(config.dim, eps=config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(config.dim, eps=config.norm_eps) if config.qk_norm else nn.Identity()

    def forward(self, inputs: Float[Tensor, "images tokens dim"]) -> Float[Tensor, "images tokens dim"]:
        """What each token takes over from its image."""
        query = self.q_norm(self.q_proj(inputs)).unflatten(-1, (-1, self.head_dim))
        key = self.k_norm(self.k_proj(inputs)).unflatten(-1, (-1, self.head_dim))
        value = self.v_proj(inputs).unflatten(-1, (-1, self.head_dim))
        output: Tensor = self.o_proj(attend_all(query, key, value).flatten(-2))
        return output


class VisionMLP(nn.Module):
    """fc2(activation(fc1(x)))."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.dim, config.mlp_dim)
        self.fc2 = nn.Linear(config.mlp_dim, config.dim)
        self.activation = activation(config.activation)

    def forward(self, inputs: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows dim"]:
        """Row by row."""
        output: Tensor = self.fc2(self.activation(self.fc1(inputs)))
        return output


class VisionLayer(nn.Module):
    """Attention, then MLP; each on normed inputs, scaled where the family does so, and added to the stream."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.attention_norm = make_norm(config.norm, config.dim, eps=config.norm_eps)
        self.attention = VisionAttention(config)
        self.mlp_norm = make_norm(config.norm, config.dim, eps=config.norm_eps)
        self.mlp: nn.Module = (
            GatedMLP(config.dim, config.mlp_dim, activation_name=config.activation, bias=True)
            if config.gated_mlp
            else VisionMLP(config)
        )
        self.attention_scale = nn.Parameter(torch.ones(config.dim)) if config.layer_scale else None
        self.mlp_scale = nn.Parameter(torch.ones(config.dim)) if config.layer_scale else None

    def forward(self, stream: Float[Tensor, "images tokens dim"]) -> Float[Tensor, "images tokens dim"]:
        """The stream after this layer."""
        stream = stream + _scaled(self.attention(self.attention_norm(stream)), self.attention_scale)
        return stream + _scaled(self.mlp(self.mlp_norm(stream)), self.mlp_scale)


def _scaled(output: Tensor, scale: Tensor | None) -> Tensor:
    return output if scale is None else output * scale


class VisionTower(nn.Module):
    """Images to features of their patches."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config.dim, config.patch_size, bias=config.patch_bias)
        self.class_token = _tokens(config.class_tokens, config.dim)
        self.register_tokens = _tokens(config.register_tokens, config.dim)
        positions = config.class_positions + config.position_rows**2
        self.position_embed = nn.Parameter(torch.empty(positions, config.dim))
        nn.init.trunc_normal_(self.position_embed, std=0.02)
        self.pre_norm = _norm(config, wanted=config.pre_norm)
        self.layers = nn.ModuleList([VisionLayer(config) for _ in range(config.num_layers)])
        self.post_norm = _norm(config, wanted=config.post_norm)

    def forward(
        self,
        images: Float[Tensor, "images 3 height width"],
        *,
        feature_layers: Sequence[int] = (-1,),
        norm_features: bool = False,
    ) -> Float[Tensor, "images tokens features"]:
        """Features of all tokens; those of several layers side by side.

        Args:
            images: pixels, normed with the config's mean and standard deviation.
            feature_layers: 0 is what enters the first layer, ``n`` what leaves the ``n``-th; negative ones count
                from the end. Layers above the highest of them are not computed.
            norm_features: apply the tower's last norm.

        Raises:
            InputError: a feature layer that the tower does not have.
        """
        wanted = self._numbers(feature_layers)
        stream = self.pre_norm(self.embed(images))
        outputs = {0: stream} if 0 in wanted else {}
        for number, layer in enumerate(self.layers[: max(wanted)], start=1):
            stream = layer(stream)
            if number in wanted:
                outputs[number] = stream
        chosen = [outputs[number] for number in wanted]
        return torch.cat([self.post_norm(one) for one in chosen] if norm_features else chosen, dim=-1)

    def _numbers(self, feature_layers: Sequence[int]) -> list[int]:
        depth = len(self.layers)
        wrong = [layer for layer in feature_layers if not -depth - 1 <= layer <= depth]
        if wrong or not feature_layers:
            raise InputError(f"feature layers {tuple(feature_layers)} of a tower that has {-depth - 1} to {depth}.")
        return [layer % (depth + 1) for layer in feature_layers]

    def embed(self, images: Float[Tensor, "images 3 height width"]) -> Float[Tensor, "images tokens dim"]:
        """Class tokens, register tokens and patches, with their positions."""
        config = self.config
        rows, columns = config.grid(images.shape[-2], images.shape[-1])
        own_class, own_grid = self.position_embed.tensor_split([config.class_positions])
        patches = self.patch_embed(images) + fit_positions(own_grid, config, rows=rows, columns=columns)
        prefix = []
        if self.class_token is not None:
            placed = self.class_token + own_class if config.class_positions else self.class_token
            prefix.append(placed)
        if self.register_tokens is not None:
            prefix.append(self.register_tokens)
        return torch.cat([*(one.expand(len(images), -1, -1) for one in prefix), patches], dim=1)


def _tokens(number: int, dim: int) -> nn.Parameter | None:
    return nn.Parameter(torch.zeros(number, dim)) if number else None


def _norm(config: VisionConfig, *, wanted: bool) -> nn.Module:
    return make_norm(config.norm, config.dim, eps=config.norm_eps) if wanted else nn.Identity()
