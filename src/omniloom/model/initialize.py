"""Fresh values for parameters that no file gives: a new projector, or a whole small model for a test."""

from __future__ import annotations

import torch
from torch import nn

from omniloom.errors import ConfigError
from omniloom.model.norm import RMSNorm
from omniloom.model.vision import PatchEmbed, VisionLayer, VisionTower

STANDARD_DEVIATION = 0.02


@torch.no_grad()
def initialize(
    module: nn.Module, *, generator: torch.Generator | None = None, standard_deviation: float = STANDARD_DEVIATION
) -> None:
    """Give every parameter below `module` a fresh value, in place.

    Maps and embeddings are normal with `standard_deviation` (0.02 as of GPT-2 and Llama), biases 0, norms and
    layer scales 1. The same generator state gives the same values on the same device.

    Raises:
        ConfigError: a part has parameters of its own kind, as models of transformers do.
    """
    for part in module.modules():
        bias = getattr(part, "bias", None)
        if bias is not None:
            bias.zero_()
        if isinstance(part, nn.Linear | nn.Embedding | PatchEmbed):
            part.weight.normal_(0.0, standard_deviation, generator=generator)
        elif isinstance(part, RMSNorm | nn.LayerNorm):
            part.weight.fill_(1.0)
        elif isinstance(part, VisionLayer):
            for scale in (part.attention_scale, part.mlp_scale):
                if scale is not None:
                    scale.fill_(1.0)
        elif not isinstance(part, VisionTower):
            strange = {name for name, _ in part.named_parameters(recurse=False)} - {"bias"}
            if strange:
                raise ConfigError(
                    f"{type(part).__name__}: no fresh values are known for its {sorted(strange)[0]}. Start from "
                    "weights."
                )
        else:
            for tokens in (part.class_token, part.register_tokens, part.position_embed):
                if tokens is not None:
                    tokens.normal_(0.0, standard_deviation, generator=generator)
