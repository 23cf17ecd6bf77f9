"""A process alone: what FSDP does for ranks in lower precision, torch's autocast does for it."""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch import nn

from omniloom.parallel.data import DataParallelConfig
from omniloom.parallel.sequence import replace_method


def lower_precision(model: nn.Module, config: DataParallelConfig) -> nn.Module:
    """Let a model take its loss in the precision of a config; its parameters and their gradients stay in float32."""
    if config.precision == "float32":
        return model
    take: Any = model.loss

    @wraps(take)
    def loss(input_ids: torch.Tensor, **others: Any) -> Any:
        with torch.autocast(input_ids.device.type, torch.bfloat16):
            return take(input_ids, **others)

    replace_method(model, "loss", loss)
    return model
