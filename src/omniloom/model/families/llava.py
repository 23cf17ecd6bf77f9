"""LLaVA 1.5 and its like in Hugging Face's form: any tower and language model of the other families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from omniloom.errors import ConfigError
from omniloom.model.config import LlavaConfig, ProjectorConfig
from omniloom.model.families.decoder_files import decoder_table
from omniloom.model.families.family import OUR_PROJECTOR, Family
from omniloom.model.families.fields import Fields
from omniloom.weights.table import Row, Table

_DEFAULTS = {
    "image_token_index": 32000,
    "projector_hidden_act": "gelu",
    "vision_feature_select_strategy": "default",
    "vision_feature_layer": -2,
    "multimodal_projector_bias": True,
    "tie_word_embeddings": False,
}
_DEFAULT_VISION = {  # LLaVA 1.5's own tower, for a file that does not describe one
    "model_type": "clip_vision_model",
    "intermediate_size": 4096,
    "hidden_size": 1024,
    "patch_size": 14,
    "image_size": 336,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
}


class KeyStyle(NamedTuple):
    """Prefixes of one generation of names."""

    language: str
    head: str
    vision: str
    projector: str


# Files of the hub have the first; modules of transformers since 4.52 have the second, and so do files made of them.
HUB = KeyStyle("language_model.model.", "language_model.lm_head", "vision_tower.", "multi_modal_projector.")
NESTED = KeyStyle("model.language_model.", "lm_head", "model.vision_tower.", "model.multi_modal_projector.")

Read = Callable[[Mapping[str, Any]], Any]
Write = Callable[[Any], dict[str, Any]]
Tables = Callable[[Any], tuple[Table, ...]]


def make_llava(read_part: Read, write_part: Write, tables_of_part: Tables) -> Family:
    """The family, given how its parts are read and written, which the table of families knows."""

    def read(given: Mapping[str, Any]) -> LlavaConfig:
        return _read(given, read_part)

    def write(config: LlavaConfig) -> dict[str, Any]:
        return _write(config, write_part)

    def tables(config: LlavaConfig) -> tuple[Table, ...]:
        rows = projector_rows(config.projector, {"fc1": "linear_1", "fc2": "linear_2"})
        return whole_tables(config, rows, tables_of_part)

    return Family("llava", "llava", ("llava",), read, write, tables)


def whole_tables(config: LlavaConfig, projector: tuple[Row, ...], tables_of_part: Tables) -> tuple[Table, ...]:
    """Tables of a whole model: for each generation of names and each form of its tower."""
    return tuple(
        decoder_table(config.language, model=style.language, head=style.head).joined(
            tower.prefixed(theirs=style.vision), Table(projector).prefixed(theirs=style.projector)
        )
        for style in (HUB, NESTED)
        for tower in tables_of_part(config.vision)
    )


def projector_rows(config: ProjectorConfig, names: Mapping[str, str]) -> tuple[Row, ...]:
    """Rows of the projector: our names of its maps to theirs."""
    parts = ("weight", "bias") if config.bias else ("weight",)
    rows = [
        Row(f"{OUR_PROJECTOR}{ours}.{part}", f"{theirs}.{part}") for ours, theirs in names.items() for part in parts
    ]
    return tuple(rows)


def text_section(given: Mapping[str, Any]) -> dict[str, Any]:
    """The language model's section, with the tie that may be said outside of it."""
    text = {"model_type": "llama", **(given.get("text_config") or {})}
    tied = bool(text.get("tie_word_embeddings")) or bool(given.get("tie_word_embeddings"))
    return {**text, "tie_word_embeddings": tied}


def feature_layers(fields: Fields) -> tuple[int, ...]:
    """One layer or several."""
    layers = fields.get("vision_feature_layer")
    return tuple(int(one) for one in layers) if isinstance(layers, list | tuple) else (int(layers),)


def _read(given: Mapping[str, Any], read_part: Read) -> LlavaConfig:
    if "mm_vision_tower" in given:
        raise ConfigError(
            "config.json of 'llava': this is the form of LLaVA's own program ('mm_vision_tower'), without its tower. "
            "Use the same model in Hugging Face's form, as llava-hf publishes it."
        )
    fields = Fields(given, _DEFAULTS)
    language = read_part(text_section(given))
    vision = read_part(given.get("vision_config") or _DEFAULT_VISION)
    fields.expect("vision_feature_select_strategy", "default", "full")
    full = fields.text("vision_feature_select_strategy") == "full"
    if not full and vision.prefix_tokens != 1:
        raise ConfigError(
            "config.json of 'llava': vision_feature_select_strategy 'default' drops one token, but a tower of family "
            f"{vision.family!r} has {vision.prefix_tokens} before its patches. Use 'full' there."
        )
    layers = feature_layers(fields)
    return LlavaConfig(
        language=language,
        vision=vision,
        projector=ProjectorConfig(
            input_dim=vision.dim * len(layers),
            hidden_dims=(language.dim,),
            output_dim=language.dim,
            bias=fields.flag("multimodal_projector_bias"),
            activation=fields.text("projector_hidden_act"),
        ),
        image_token_id=int(given.get("image_token_id", fields.integer("image_token_index"))),
        feature_layers=layers,
        keep_class_token=full,
    )


def _write(config: LlavaConfig, write_part: Write) -> dict[str, Any]:
    _require_expressible(config)
    layers = config.feature_layers
    side = config.vision.image_size
    return {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "image_token_index": config.image_token_id,
        "image_seq_length": config.image_tokens(side, side),
        "projector_hidden_act": config.projector.activation,
        "multimodal_projector_bias": config.projector.bias,
        "vision_feature_layer": layers[0] if len(layers) == 1 else list(layers),
        # "default" drops one token, so that it is no word for a tower that has none.
        "vision_feature_select_strategy": (
            "full" if config.keep_class_token or not config.vision.prefix_tokens else "default"
        ),
        "tie_word_embeddings": config.language.tied_head,
        "text_config": write_part(config.language),
        "vision_config": write_part(config.vision),
    }


def _require_expressible(config: LlavaConfig) -> None:
    """Refuse what LlavaForConditionalGeneration has no word for.

    Raises:
        ConfigError: lists all that it cannot express.
    """
    projector = config.projector
    dropped = 0 if config.keep_class_token else config.vision.prefix_tokens
    obstacles = {
        f"a projector of widths {projector.hidden_dims}, not ({config.language.dim},)": (
            projector.hidden_dims != (config.language.dim,)
        ),
        f"a projector with a {projector.norm} norm": projector.norm is not None,
        f"the reduction {projector.reduction}": projector.reduction != "none",
        "features after the tower's last norm": config.norm_features,
        f"a tower with {dropped} tokens to drop": dropped > 1,
    }
    found = [obstacle for obstacle, there in obstacles.items() if there]
    if found:
        raise ConfigError(
            f"not expressible as LlavaForConditionalGeneration: {'; '.join(found)}. "
            "Write it in omniloom's own form, or train it with LLaVA's projector."
        )
