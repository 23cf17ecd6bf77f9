"""What a folder of ``LlavaForConditionalGeneration`` needs beside weights and config: tokenizer, processor, template.

The folder opens with transformers' ``AutoProcessor`` and ``AutoModelForImageTextToText`` as it is. ``<image>`` becomes
a token of the tokenizer, under the id that the model was trained with; where that id lies behind the vocabulary, the
embedding gets rows up to it, since transformers looks every id up.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from omniloom.errors import WeightsError
from omniloom.model.config import LlavaConfig, VisionConfig
from omniloom.model.families.other_decoders import other_vocabulary
from omniloom.model.hugging_face import with_vocab_size
from omniloom.weights.changes import PadRows, Same
from omniloom.weights.hf_folder import read_json
from omniloom.weights.source import Source
from omniloom.weights.table import Row, Table
from omniloom.weights.view import TheirsView

IMAGE_TOKEN = "<image>"
_VOCABULARY_STEP = 64  # as LLaVA 1.5's own folder, which has 32064 rows for 32002 words
_PADDED = ("language_model.embed_tokens.weight", "language_model.head.weight")
_PROCESSORS = {"clip": "CLIPImageProcessor", "siglip": "SiglipImageProcessor"}
_TOKENIZER_FILES = ("tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_BICUBIC = 3
# Parts of a message may be a text or a list of parts; images come first in their message, each on a line of its own.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}{{ parts(message['content']) + ' ' }}
{%- elif message['role'] == 'user' -%}{{ 'USER: ' + parts(message['content']) + ' ' }}
{%- else -%}{{ 'ASSISTANT: ' + parts(message['content']) + (eos_token or '') }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'ASSISTANT:' }}{%- endif -%}
"""
_PARTS_MACRO = """\
{%- macro parts(content) -%}
{%- if content is string -%}{{ content }}
{%- else -%}
{%- for part in content if part['type'] == 'image' -%}{{ '<image>\\n' }}{%- endfor -%}
{%- for part in content if part['type'] == 'text' -%}{{ part['text'] }}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
"""


def with_vocabulary_for_images(config: LlavaConfig, source: Source) -> tuple[LlavaConfig, Source, str]:
    """The model with rows for the image token's id, and a sentence about it where rows were added.

    Args:
        config: the model.
        source: its tensors under our names.
    """
    rows = config.language.vocab_size
    if config.image_token_id < rows:
        return config, source, ""
    padded = -(-(config.image_token_id + 1) // _VOCABULARY_STEP) * _VOCABULARY_STEP
    pad = PadRows(rows, padded)
    grown = replace(config.language, vocab_size=padded)
    names: tuple[str, ...] = _PADDED
    if config.language.transformers_config is not None:
        grown, names = with_vocab_size(config.language, padded), other_vocabulary(config.language)
    table = Table(tuple(Row(name, name, pad if name in names else Same()) for name in source.tensors))
    larger = replace(config, language=grown)
    note = (
        f"embedding and head get {padded - rows} rows (to {padded}) for the image token {config.image_token_id}, "
        "each a copy of the last"
    )
    return larger, TheirsView(source, table), note


def companions_of_llava(
    config: LlavaConfig, companions: Mapping[str, Path]
) -> tuple[dict[str, bytes | Path], tuple[str, ...]]:
    """Files to write beside the weights.

    Args:
        config: the model.
        companions: files that lay beside the source's weights.

    Returns:
        Contents by file name, and sentences about what is missing.

    Raises:
        WeightsError: the tokenizer has another token under the image token's id.
    """
    files: dict[str, bytes | Path] = {}
    notes: list[str] = []
    given = read_json(companions["tokenizer_config.json"]) if "tokenizer_config.json" in companions else {}
    tokenizer = _tokenizer_of(companions)
    if tokenizer is not None:
        files["tokenizer.json"] = _json(with_image_token(tokenizer, config.image_token_id))
        files["tokenizer_config.json"] = _json(_tokenizer_config(given, config.image_token_id))
    elif "tokenizer.model" in companions:
        notes.append(
            "the tokenizer is a SentencePiece model, into which transformers would put <image>: run `pip install "
            "omniloom[hf]` and write the folder again"
        )
    else:
        notes.append("no tokenizer lay beside the weights, so the folder has none with <image>; put one there")
    files["chat_template.jinja"] = _chat_template(companions, given).encode()
    if "preprocessor_config.json" not in companions:
        files["preprocessor_config.json"] = _json(image_processor(config.vision))
    if "processor_config.json" not in companions:
        files["processor_config.json"] = _json(processor(config))
    return files, tuple(notes)


def _tokenizer_of(companions: Mapping[str, Path]) -> dict[str, Any] | None:
    """A tokenizer.json; made by transformers where there is a SentencePiece model only, as beside Vicuna."""
    if "tokenizer.json" in companions:
        return read_json(companions["tokenizer.json"])
    if "tokenizer.model" not in companions:
        return None
    try:
        from transformers import AutoTokenizer  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for name in _TOKENIZER_FILES:
            if name in companions:
                shutil.copyfile(companions[name], Path(folder) / name)
        if "tokenizer_config.json" not in companions:
            (Path(folder) / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
        fast = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        made: dict[str, Any] = json.loads(fast.backend_tokenizer.to_str())
    return made


def with_image_token(tokenizer: dict[str, Any], image_token_id: int) -> dict[str, Any]:
    """A tokenizer.json in which ``<image>`` is a token of its own.

    Raises:
        WeightsError: the id is another token's, or ``<image>`` has another id.
    """
    added: list[dict[str, Any]] = [dict(one) for one in tokenizer.get("added_tokens") or []]
    for one in added:
        if (one["content"] == IMAGE_TOKEN) != (one["id"] == image_token_id):
            raise WeightsError(
                f"tokenizer.json: {one['content']!r} has id {one['id']}, but the model's {IMAGE_TOKEN} has "
                f"{image_token_id}. Take the tokenizer that the model was trained with, or give its `--image-token-id`."
            )
    words = (tokenizer.get("model") or {}).get("vocab")
    if isinstance(words, dict) and image_token_id in words.values() and words.get(IMAGE_TOKEN) != image_token_id:
        raise WeightsError(f"tokenizer.json: id {image_token_id} is a word's; {IMAGE_TOKEN} needs one of its own")
    if not any(one["id"] == image_token_id for one in added):
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        taken = {one["id"] for one in added} | (set(words.values()) if isinstance(words, dict) else set())
        # The tokenizers library counts added tokens on from the last id, so a gap has to be filled with names.
        first = max(taken, default=-1) + 1
        added += [{"id": number, "content": f"<unused_{number}>", **flags} for number in range(first, image_token_id)]
        added.append({"id": image_token_id, "content": IMAGE_TOKEN, **flags})
    return {**tokenizer, "added_tokens": sorted(added, key=lambda one: one["id"])}


def processor(config: LlavaConfig) -> dict[str, Any]:
    """The processor_config.json that puts as many placeholders as the model gives features."""
    return {
        "processor_class": "LlavaProcessor",
        "image_token": IMAGE_TOKEN,
        "patch_size": config.vision.patch_size,
        # The processor counts one token per patch and this many more, and with "default" takes one away.
        "num_additional_image_tokens": config.vision.prefix_tokens,
        "vision_feature_select_strategy": "full" if config.keep_class_token else "default",
    }


def image_processor(vision: VisionConfig) -> dict[str, Any]:
    """The preprocessor_config.json that feeds a tower as it was trained."""
    side = vision.image_size
    square = {"height": side, "width": side}
    kind = _PROCESSORS.get(vision.family, "CLIPImageProcessor")
    return {
        "image_processor_type": kind,
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": side} if kind == "CLIPImageProcessor" else square,
        "resample": _BICUBIC,
        "do_center_crop": kind == "CLIPImageProcessor",
        "crop_size": square,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(vision.pixel_mean),
        "image_std": list(vision.pixel_std),
        "processor_class": "LlavaProcessor",
    }


def _chat_template(companions: Mapping[str, Path], tokenizer_config: Mapping[str, Any]) -> str:
    """The source's own template where it knows of images, and Vicuna's words otherwise."""
    candidates: list[str] = []
    if "chat_template.jinja" in companions:
        candidates.append(companions["chat_template.jinja"].read_text(encoding="utf-8"))
    if "chat_template.json" in companions:
        candidates.append(str(read_json(companions["chat_template.json"]).get("chat_template", "")))
    candidates.append(str(tokenizer_config.get("chat_template") or ""))
    for template in candidates:
        if "image" in template:
            return template
    return _PARTS_MACRO + CHAT_TEMPLATE


def _tokenizer_config(given: Mapping[str, Any], image_token_id: int) -> dict[str, Any]:
    kept = {name: value for name, value in given.items() if name != "chat_template"}
    decoder = dict(kept.get("added_tokens_decoder") or {})
    decoder[str(image_token_id)] = {
        "content": IMAGE_TOKEN,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": True,
    }
    kept.setdefault("tokenizer_class", "PreTrainedTokenizerFast")
    return {
        **kept,
        "added_tokens_decoder": decoder,
        "extra_special_tokens": {"image_token": IMAGE_TOKEN},
        "image_token": IMAGE_TOKEN,
        "processor_class": "LlavaProcessor",
        "padding_side": "left",
    }


def _json(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()
