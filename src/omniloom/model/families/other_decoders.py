"""Language models that transformers runs (``hf:PATH``): its own names of tensors, and its own config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from omniloom.errors import ConfigError
from omniloom.model.config import DecoderConfig
from omniloom.model.families.family import OUR_LANGUAGE, Family
from omniloom.model.hugging_face import FAMILY, parameter_names, vocabulary_names
from omniloom.weights.table import Row, Table

_OURS = f"{OUR_LANGUAGE}model."  # a wrapper's parameters are those of the model in it
_BODY, _HEAD, _WORDS = "model.", "lm_head", "model.embed_tokens.weight"


def other_decoder_table(config: DecoderConfig, *, model: str = _BODY, head: str = _HEAD) -> Table:
    """Our names and those of a ``...ForCausalLM``.

    Args:
        config: the decoder.
        model: what stands for ``model.`` in theirs.
        head: what stands for ``lm_head`` in theirs.

    Raises:
        ConfigError: other places are wanted for a model that has no such two parts.
    """
    names = parameter_names(config)
    if (model, head) == (_BODY, _HEAD):
        return Table(tuple(Row(_OURS + name, name) for name in names))
    strange = [name for name in names if not name.startswith((_BODY, f"{_HEAD}."))]
    if strange or _WORDS not in names:  # where transformers looks for what it ties a head to
        raise ConfigError(
            "not expressible as a part of another model of transformers: parameters are named like "
            f"{(strange or names)[0]!r}; {_WORDS!r}, others in {_BODY!r}, and {_HEAD!r} expected. Write it in "
            "omniloom's own form."
        )
    rows = (
        Row(
            _OURS + name,
            model + name.removeprefix(_BODY) if name.startswith(_BODY) else head + name.removeprefix(_HEAD),
        )
        for name in names
    )
    return Table(tuple(rows))


def other_vocabulary(config: DecoderConfig) -> tuple[str, ...]:
    """Our names of what has a row for each word."""
    return tuple(_OURS + name for name in vocabulary_names(config))


def _read(given: Mapping[str, Any]) -> NoReturn:
    raise ConfigError(f"config.json: model_type {given.get('model_type')!r} is read as `hf:PATH` only.")


def _write(config: DecoderConfig) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(config.transformers_config or "{}")
    return written


def _tables(config: DecoderConfig) -> tuple[Table, ...]:
    return (other_decoder_table(config),)


OTHER_DECODERS = Family(FAMILY, "language", (), _read, _write, _tables)
