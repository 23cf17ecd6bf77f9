"""A language model and a tower become one LLaVA model, whose projector starts anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from omniloom.conversion.llava_export import IMAGE_TOKEN
from omniloom.conversion.published import Published
from omniloom.errors import ConfigError, WeightsError
from omniloom.model.build import parameter_shapes
from omniloom.model.config import DecoderConfig, LlavaConfig, Norm, ProjectorConfig, Reduction, VisionConfig
from omniloom.weights.hf_folder import read_json
from omniloom.weights.source import Joined

Projector = Literal["llava", "megatron", "linear"]


def combine(
    language: Published,
    vision: Published,
    *,
    projector: Projector = "llava",
    projector_hidden_dim: int | None = None,
    projector_norm: Norm | None = None,
    reduction: Reduction = "none",
    reduction_factor: int = 2,
    norm_features: bool = False,
    feature_layers: tuple[int, ...] | None = None,
    keep_class_token: bool | None = None,
    image_token_id: int | None = None,
) -> Published:
    """Put two models together.

    Args:
        language: a language model.
        vision: a tower.
        projector: ``llava`` is two maps with bias through the language model's width, ``megatron`` two without bias
            through its MLP's width, ``linear`` one map.
        projector_hidden_dim: width between the maps, where it is another one.
        projector_norm: norm of what goes into the projector, as Megatron has it for most language models.
        reduction: ``pixel_shuffle`` folds a square of patches into one token, ``pool`` takes their mean; ``summary``
            makes one token of the class token and the mean of all patches, as DINOv2's linear classifiers do.
        reduction_factor: patches on a side of that square.
        norm_features: apply the tower's last norm to its features. DINOv2 wants it: a few of its raw features are so
            large that the others are lost beside them.
        feature_layers: outputs of the tower; ``None`` is ``(-2,)``, and ``(-1,)`` with Megatron's projector.
        keep_class_token: whether the tower's first tokens are used; ``None`` is no, where there are any.
        image_token_id: id of the placeholder; ``None`` takes ``<image>`` of the tokenizer, or the first free id.

    Raises:
        WeightsError: one of both is something else.
        ConfigError: the parts do not fit.
    """
    text, tower = language.config, vision.config
    if not isinstance(text, DecoderConfig):
        raise WeightsError(f"{language.path}: is no language model alone; give one with `--language-model`")
    if not isinstance(tower, VisionConfig):
        raise WeightsError(f"{vision.path}: is no tower alone; give one with `--vision-model`")
    layers = feature_layers or ((-1,) if projector == "megatron" else (-2,))
    hidden = {"llava": text.dim, "megatron": text.mlp_dim, "linear": 0}[projector]
    hidden = hidden if projector_hidden_dim is None else projector_hidden_dim
    config = LlavaConfig(
        language=text,
        vision=tower,
        projector=ProjectorConfig(
            input_dim=tower.dim * len(layers),
            output_dim=text.dim,
            hidden_dims=(hidden,) if hidden else (),
            bias=projector != "megatron",
            norm=projector_norm,
            reduction=reduction,
            factor=reduction_factor,
        ),
        image_token_id=image_token_id if image_token_id is not None else _image_token_id(language, text),
        feature_layers=layers,
        norm_features=norm_features,
        # A tower without such tokens has nothing to drop; transformers calls that "full".
        keep_class_token=tower.prefix_tokens == 0 if keep_class_token is None else keep_class_token,
    )
    fresh = tuple(name for name in parameter_shapes(config) if name.startswith("projector."))
    companions = dict(language.companions)
    if "preprocessor_config.json" in vision.companions:
        companions["preprocessor_config.json"] = vision.companions["preprocessor_config.json"]
    return Published(
        path=language.path,
        form="omniloom",
        config=config,
        source=Joined(language.source, vision.source),
        companions=MappingProxyType(companions),
        fresh=fresh,
        neutral=(*language.neutral, *vision.neutral),
    )


def _image_token_id(language: Published, config: DecoderConfig) -> int:
    """The id of ``<image>`` in the tokenizer, or the first id that no word has."""
    path = language.companions.get("tokenizer.json")
    if path is None:
        return config.vocab_size
    words = _words(path)
    if IMAGE_TOKEN in words:
        return words[IMAGE_TOKEN]
    return max(words.values(), default=config.vocab_size - 1) + 1


def _words(path: Path) -> dict[str, int]:
    tokenizer: Mapping[str, Any] = read_json(path)
    vocabulary = (tokenizer.get("model") or {}).get("vocab")
    words = dict(vocabulary) if isinstance(vocabulary, dict) else {}
    if isinstance(vocabulary, list):  # a unigram model lists its words with their scores
        words = {str(word): number for number, (word, _score) in enumerate(vocabulary)}
    try:
        words |= {str(one["content"]): int(one["id"]) for one in tokenizer.get("added_tokens") or []}
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: has added tokens without content or id ({error!r})") from error
    return words
