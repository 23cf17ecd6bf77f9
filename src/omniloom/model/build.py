"""Configs to modules, on any device, and the names and shapes of their parameters without any memory."""

from __future__ import annotations

import torch
from torch import nn

from omniloom.model.config import DecoderConfig, LlavaConfig, VisionConfig
from omniloom.model.language import language_module
from omniloom.model.llava import Llava
from omniloom.model.vision import VisionTower


def build(
    config: DecoderConfig | VisionConfig | LlavaConfig,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> nn.Module:
    """The module of a config; on the device ``meta`` it takes no memory and has no values."""
    with torch.device(device):
        module = _module(config)
    return module.to(dtype)


def parameter_shapes(config: DecoderConfig | VisionConfig | LlavaConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all parameters, under the names that they have in a whole model."""
    prefix = _PREFIXES[type(config)]
    module = build(config, device="meta")
    return {prefix + name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def _module(config: DecoderConfig | VisionConfig | LlavaConfig) -> nn.Module:
    if isinstance(config, DecoderConfig):
        return language_module(config)
    return VisionTower(config) if isinstance(config, VisionConfig) else Llava(config)


_PREFIXES = {DecoderConfig: "language_model.", VisionConfig: "vision_tower.", LlavaConfig: ""}
