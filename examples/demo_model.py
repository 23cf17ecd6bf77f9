"""A small vision tower and a small language model with fresh weights, and a tokenizer of easy-VQA's words.

They stand for the published ones of a real run: `omniloom weights combine` takes them as it takes CLIP and Vicuna.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from omniloom.conversion import config_json
from omniloom.model.build import build
from omniloom.model.config import DecoderConfig, VisionConfig
from omniloom.model.initialize import initialize

SPECIAL = ("<|im_start|>", "<|im_end|>", "<image>", "<pad>", "<unk>")
ROLES = ("system", "user", "assistant")
VOCABULARY_STEP = 64
GROUND = (0.90, 0.90, 0.90)  # the mean of easy-VQA's pixels

TOWER = VisionConfig(
    family="internvl_vision", image_size=64, patch_size=8, dim=128, num_layers=3, num_heads=4, mlp_dim=384,
    position_rows=8, class_tokens=1, class_positions=1, layer_scale=True,
    pixel_mean=(0.485, 0.456, 0.406), pixel_std=(0.229, 0.224, 0.225),
)  # fmt: skip
LANGUAGE = DecoderConfig(
    family="llama", vocab_size=VOCABULARY_STEP, dim=128, num_layers=2, num_heads=4, num_kv_heads=4, head_dim=32,
    mlp_dim=384, max_positions=1024,
)  # fmt: skip


def write_tower(folder: Path, *, seed: int) -> None:
    """Write the tower as a model that the other commands know.

    Args:
        folder: where to.
        seed: of the weights.
    """
    tower = _fresh(TOWER, seed=seed)
    with torch.no_grad():  # patches of the ground become zero, so that what stands out of it is not a small part
        ground = (torch.tensor(GROUND) - torch.tensor(TOWER.pixel_mean)) / torch.tensor(TOWER.pixel_std)
        tower.patch_embed.bias.copy_(-tower.patch_embed.weight.sum((2, 3)) @ ground)
    _write_part(folder, TOWER, tower, "vision_tower.")


def write_language_model(folder: Path, *, words: Iterable[str], seed: int, **sizes: int) -> None:
    """Write the language model, with its tokenizer.

    Args:
        folder: where to.
        words: the vocabulary.
        seed: of the weights.
        sizes: in place of those of `LANGUAGE`.
    """
    vocabulary = (*SPECIAL, *ROLES, *sorted(set(words) - {*ROLES}))
    rows = -(-len(vocabulary) // VOCABULARY_STEP) * VOCABULARY_STEP
    config = replace(LANGUAGE, **(sizes | {"vocab_size": rows}))
    _write_part(folder, config, _fresh(config, seed=seed), "language_model.")
    _write_tokenizer(folder, vocabulary)


def _fresh(config: VisionConfig | DecoderConfig, *, seed: int) -> Any:
    """Fresh weights, wide enough for training from nothing: 0.08 is about one over the root of the width."""
    module = build(config)
    initialize(module, generator=torch.Generator().manual_seed(seed), standard_deviation=0.08)
    return module


def _write_part(folder: Path, config: VisionConfig | DecoderConfig, module: Any, prefix: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    weights = {f"{prefix}{name}": value.detach() for name, value in module.named_parameters()}
    save_file(weights, folder / "model.safetensors")
    (folder / config_json.FILE).write_bytes(config_json.config_to_json(config))


def _write_tokenizer(folder: Path, words: Iterable[str]) -> None:
    """One token a word, lower case."""
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names | {"pad_token": "<pad>", "unk_token": "<unk>"}))
