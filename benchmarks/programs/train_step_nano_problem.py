"""The training problem with nanoVLM's model: its classes from a checkout, that ``OMNILOOM_NANOVLM`` names.

The samples are those of `train_step_problem`. Of nanoVLM only the model is used: its tokenizer would be fetched, and
its packing lets samples of a pack see each other, so that no other trainer has the same loss; it gets them padded.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from train_step_problem import IMAGE, VOCAB


def nano_model() -> Any:
    """The model of nanoVLM; both sides have its weights."""
    processors = ModuleType("data.processors")
    processors.get_tokenizer = lambda *_: SimpleNamespace(image_token_id=IMAGE)  # type: ignore[attr-defined]
    sys.modules["data"], sys.modules["data.processors"] = ModuleType("data"), processors
    sys.path.insert(0, os.environ["OMNILOOM_NANOVLM"])
    torch.manual_seed(0)
    config = importlib.import_module("models.config").VLMConfig(
        vit_hidden_dim=256,
        vit_inter_dim=1024,
        vit_patch_size=14,
        vit_img_size=224,
        vit_n_heads=4,
        vit_n_blocks=4,
        lm_hidden_dim=256,
        lm_inter_dim=1024,
        lm_re_base=10_000,
        lm_max_position_embeddings=2048,
        lm_vocab_size=VOCAB,
        lm_n_heads=8,
        lm_n_kv_heads=8,
        lm_n_blocks=4,
        mp_pixel_shuffle_factor=1,
        mp_image_token_length=256,
    )
    return (
        importlib.import_module("models.vision_language_model").VisionLanguageModel(config, load_backbone=False).train()
    )
