"""The parts of a model: which are trained, at what rate, and which weights decay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from omniloom.errors import ConfigError
from omniloom.model.dropout import DropoutConfig
from omniloom.model.lora import LoraConfig, is_lora


@dataclass(frozen=True, kw_only=True)
class PartConfig:
    """How a part of the model is trained.

    Attributes:
        train: whether it is.
        rate: factor of the learning rate.
        first_layer: layers below this stay as they are, and with them what comes before the layers (embeddings, the
            projector's norm); 0: all of the part is trained. The projector's layers are its maps.
        lora: leave the part's matrices as they are, and learn small products beside them; ``None``: learn the part.
        dropout: what is left out of it while it learns; ``None``: nothing. The draws of a batch hang on its samples'
            keys alone.
    """

    train: bool = True
    rate: float = 1.0
    first_layer: int = 0
    lora: LoraConfig | None = None
    dropout: DropoutConfig | None = None

    def __post_init__(self) -> None:
        if self.rate < 0 or self.first_layer < 0:
            raise ConfigError(
                f"parts: rate {self.rate:g} and first_layer {self.first_layer} found; at least 0 expected."
            )
        for name in ("rate", "first_layer", "lora"):
            if not self.train and getattr(self, name) != getattr(PartConfig, name):
                raise ConfigError(f"{name}: found for a part that is not trained, and so of no effect. Leave it out.")


def freeze(model: nn.Module, parts: Mapping[str, PartConfig]) -> None:
    """Turn gradients on for what is trained and off for the rest.

    Args:
        model: its children are the parts, such as ``vision_tower``, ``projector``, ``language_model``.
        parts: by name of a child; children that are not named are trained.

    Raises:
        ConfigError: a name is not a child's, or nothing is left to train.
    """
    children = dict(model.named_children())
    unknown = [name for name in parts if name not in children]
    if unknown:
        raise ConfigError(f"parts: {unknown[0]!r} found; one of {', '.join(children)} expected.")
    for name, parameter in model.named_parameters():
        part = parts.get(name.partition(".")[0], PartConfig())
        chosen = part.lora is None or is_lora(name)
        parameter.requires_grad_(part.train and chosen and (not part.first_layer or _layer(name) >= part.first_layer))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("parts: every part is frozen. Train one at least.")


def lora_of(parts: Mapping[str, PartConfig]) -> dict[str, LoraConfig]:
    """The parts beside whose matrices something is learned."""
    return {name: part.lora for name, part in parts.items() if part.lora is not None and part.train}


def dropout_of(parts: Mapping[str, PartConfig], *, stages: int = 1) -> dict[str, DropoutConfig]:
    """The parts of which something is left out.

    Raises:
        ConfigError: there are several stages of a pipeline, whose batches come in between each other.
    """
    found = {name: part.dropout for name, part in parts.items() if part.dropout is not None}
    if found and stages > 1:
        raise ConfigError(
            f"parts.{next(iter(found))}.dropout: found with parallel.pipeline {stages}; one without the other expected."
        )
    return found


def parameter_groups(model: nn.Module, parts: Mapping[str, PartConfig], *, weight_decay: float) -> list[dict[str, Any]]:
    """Groups of trained parameters for an optimizer, in a fixed order: by part, with and without decay.

    Matrices decay; vectors (norms, biases, scales, class tokens) and embeddings of positions do not.

    Each group has ``name``, ``params``, ``weight_decay`` and ``rate``, the part's factor of the learning rate.
    """
    groups: dict[tuple[str, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decays = parameter.dim() > 1 and "position_embed" not in name and "_token" not in name.rpartition(".")[2]
            groups.setdefault((name.partition(".")[0], decays), []).append(parameter)
    return [
        {
            "name": f"{part}.{'decay' if decays else 'no_decay'}",
            "params": parameters,
            "weight_decay": weight_decay if decays else 0.0,
            "rate": parts.get(part, PartConfig()).rate,
        }
        for (part, decays), parameters in groups.items()
    ]


def counts(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Trained and frozen parameters of each part, in numbers."""
    found: dict[str, tuple[int, int]] = {}
    for name, parameter in model.named_parameters():
        trained, frozen = found.get(part := name.partition(".")[0], (0, 0))
        size = parameter.numel()
        found[part] = (trained + size, frozen) if parameter.requires_grad else (trained, frozen + size)
    return found


def _layer(name: str) -> int:
    """Number of the layer of a parameter; -1 before the layers, and a very high one after them."""
    words = name.split(".")
    if "layers" in words:
        return int(words[words.index("layers") + 1])
    if words[0] == "projector":
        return int(words[1].removeprefix("fc")) - 1 if words[1].startswith("fc") else -1
    before = ("embed_tokens", "patch_embed", "class_token", "register_tokens", "position_embed", "pre_norm")
    return -1 if any(word in before for word in words) else 1 << 30
