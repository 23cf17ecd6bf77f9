"""Where a run's model comes from: its description, its tokenizer, and the run that it goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from omniloom.conversion import config_json
from omniloom.data.index.yaml_dialect import load_yaml
from omniloom.errors import ConfigError
from omniloom.model.config import LlavaConfig
from omniloom.model.families import read_config_file
from omniloom.storage.files import file_exists
from omniloom.storage.node_copy import kept_copy, kept_folder
from omniloom.storage.open import is_local
from omniloom.storage.urls import is_url, join_url, redacted
from omniloom.train.checkpoint import complete_checkpoints
from omniloom.train.checkpoint_places import COMPLETE, Address, place_of_checkpoints
from omniloom.vlm.byte_tokenizer import ByteTokenizer
from omniloom.vlm.jinja_template import OWN_TEMPLATE
from omniloom.vlm.template_table import chat_template
from omniloom.vlm.tokenizer import HuggingFaceTokenizer, Tokenizer, open_tokenizer

BYTES = "bytes"
RECIPE_FILE = "recipe.yaml"
"""Of a run: its resolved recipe."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model, and where its weights are.

    Attributes:
        folder: with ``config.json`` or ``omniloom.json``, a tokenizer, and weights unless all parts are fresh. This and
            all other paths may be URLs: what lies in a store is copied to the machine's cache, once.
        config: a file in the form of ``omniloom.json`` that describes the model where the folder is not there yet, or
            has no description of its own; where it has one, both have to be equal.
        tokenizer: a folder or a file; ``bytes``: one token a byte; ``None``: the folder's.
        start: weights of a run, or of one step of it (``runs/a/step-00000500``), in place of those of ``folder``.
        start_step: of the run ``start``, the step; ``None``: its newest complete checkpoint.
        fresh: parts whose weights start anew.
    """

    folder: str | None = None
    config: str | None = None
    tokenizer: str | None = None
    start: str | None = None
    start_step: int | None = None
    fresh: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.folder is None and (self.config is None or self.tokenizer is None):
            raise ConfigError("model: neither folder nor both config and tokenizer found; give one of these.")
        if self.start_step is not None and self.start is None:
            raise ConfigError(f"model: start_step {self.start_step} without start. Say which run it is a step of.")

    @property
    def weights_folder(self) -> Path:
        """The folder, for weights. Raises ConfigError where there is none."""
        if self.folder is None:
            raise ConfigError("model.folder: missing; a folder with weights expected, unless all parts are fresh.")
        return kept_folder(self.folder)

    def start_checkpoint(self) -> Path | None:
        """The checkpoint whose weights are taken; ``None`` where those of the folder are.

        Raises:
            ConfigError: there is no such checkpoint, or it is not complete.
        """
        if self.start is None:
            return None
        if is_url(self.start) and not is_local(self.start):
            return kept_folder(self._step_of(self.start, place_of_checkpoints(self.start).found()))
        path = Path(self.start)
        if (path / "trainer.json").is_file() and self.start_step is None:
            return path
        found: Mapping[int, Address] = complete_checkpoints(path) or _checkpoints_elsewhere(path)
        return kept_folder(self._step_of(self.start, found))

    def _step_of(self, start: str, found: Mapping[int, Address]) -> Address:
        """The step that is asked for, or the newest one; a folder in a store may be that of a step itself."""
        if not found and self.start_step is None and is_url(start) and file_exists(join_url(start, COMPLETE)):
            return start
        if not found:
            raise ConfigError(f"model.start: {redacted(start)}: no complete checkpoint of a run there. Train it first.")
        step = max(found) if self.start_step is None else self.start_step
        if step not in found:
            raise ConfigError(
                f"model.start_step: {step} found; {redacted(start)} has complete checkpoints of the steps "
                f"{', '.join(map(str, sorted(found)))}."
            )
        return found[step]


def _checkpoints_elsewhere(run: Path) -> Mapping[int, Address]:
    """The complete checkpoints of a run whose recipe puts them in another place; none where it does not."""
    recipe = run / RECIPE_FILE
    settings = load_yaml(recipe.read_bytes(), name=str(recipe)) if recipe.is_file() else {}
    place = (settings.get("checkpoint") or {}).get("place")
    return place_of_checkpoints(place).found() if place else {}


def read_model_config(folder: Path) -> LlavaConfig:
    """The model of a folder. Raises ConfigError where it is not a whole vision-language model."""
    ours = folder / config_json.FILE
    config = config_json.config_from_json(ours) if ours.is_file() else read_config_file(folder)
    return _whole(config, folder)


def model_config(settings: ModelConfig) -> LlavaConfig:
    """The model of a run: by its folder, or by the file that describes it.

    Raises:
        ConfigError: there is no description, it is not that of a vision-language model, or there are two that differ.
    """
    folder = None if settings.folder is None else settings.weights_folder
    described = folder is not None and any((folder / name).is_file() for name in (config_json.FILE, "config.json"))
    own = read_model_config(folder) if folder is not None and (described or settings.config is None) else None
    if settings.config is None:
        return own if own is not None else read_model_config(settings.weights_folder)
    described_by = kept_copy(settings.config)
    given = _whole(config_json.config_from_json(described_by), described_by)
    if own is not None and own != given:
        raise ConfigError(
            f"model.config: {settings.config} describes another model than {folder} does. Leave it out, or put the "
            "model together as the recipe's first lines say."
        )
    return given


def model_tokenizer(settings: ModelConfig, *, template: str, special_tokens: tuple[str, ...] = ()) -> Tokenizer:
    """The tokenizer of a run.

    Args:
        settings: say where it is.
        template: name of the chat template, whose own tokens a tokenizer of bytes is given.
        special_tokens: more of them.

    Raises:
        ConfigError: there is none, or it takes no more special tokens.
    """
    if settings.tokenizer == BYTES and template == OWN_TEMPLATE:
        raise ConfigError(f"data.template: {OWN_TEMPLATE} found for model.tokenizer {BYTES}, which came with none.")
    if settings.tokenizer == BYTES:
        return ByteTokenizer([*sorted(chat_template(template).named_tokens - {"bos", "eos"}), *special_tokens])
    opened = open_tokenizer(settings.weights_folder if settings.tokenizer is None else _kept(settings.tokenizer))
    if not special_tokens:
        return opened
    if not isinstance(opened, HuggingFaceTokenizer):
        raise ConfigError("data.special_tokens: found for a tokenizer without a tokenizer.json, which takes no more.")
    return opened.with_special_tokens(special_tokens)


def _kept(place: str) -> Path:
    """A file or folder of this machine; of a store, its copy here."""
    return kept_copy(place) if is_url(place) and file_exists(place) else kept_folder(place)


def _whole(config: object, place: Path) -> LlavaConfig:
    if not isinstance(config, LlavaConfig):
        raise ConfigError(
            f"{place}: a {type(config).__name__} found; a vision-language model expected. Put one together of a "
            "language model and a tower with `omniloom weights combine`."
        )
    return config
