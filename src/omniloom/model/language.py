"""The language model of a config: our decoder, or a model of transformers."""

from __future__ import annotations

from omniloom.model.config import DecoderConfig
from omniloom.model.decoder import Decoder, LanguageModel
from omniloom.model.hugging_face import HuggingFaceDecoder


def language_module(config: DecoderConfig) -> LanguageModel:
    """The module, on the device that torch makes things on now."""
    return Decoder(config) if config.transformers_config is None else HuggingFaceDecoder.of_config(config)
