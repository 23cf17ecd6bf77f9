"""One training problem for both sides: the same weights, the same samples, the same loss.

Eight samples of one image (256 tokens) and text of different lengths, as in LLaVA's instruction data half of it
answers that are learned; a padded batch of 512 tokens is filled to about two thirds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

torch.set_num_threads(1)

ROWS, LENGTH, IMAGE_TOKENS, VOCAB, IMAGE = 8, 512, 256, 8192, 8191
TEXT_LENGTHS = (12, 25, 41, 60, 78, 101, 122, 194)  # 633 of 2,048 places: 65.5 % of the batch is filled


@dataclass(frozen=True)
class Sample:
    """Ids with placeholders, and the word after each token where it is learned (-100 elsewhere)."""

    ids: list[int]
    labels: list[int]


def samples() -> list[Sample]:
    """The samples of the batch, the same each time."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for length in TEXT_LENGTHS:
        text = torch.randint(3, VOCAB - 1, (length,), generator=generator).tolist()
        question = length // 2
        ids = [1, *[IMAGE] * IMAGE_TOKENS, *text[:-1]]
        labels = [-100] * (IMAGE_TOKENS + question) + text[question:]
        made.append(Sample(ids, labels))
    return made


def images() -> torch.Tensor:
    """One tile a sample."""
    return torch.randn(ROWS, 3, 224, 224, generator=torch.Generator().manual_seed(1))


def model() -> Any:
    """The model of transformers; both sides have its weights."""
    torch.manual_seed(0)
    text = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=2048,
    )
    tower = transformers.CLIPVisionConfig(
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=224,
        patch_size=14,
    )
    config = transformers.LlavaConfig(text_config=text, vision_config=tower, image_token_index=IMAGE)
    return transformers.LlavaForConditionalGeneration(config).train()


def useful_tokens() -> int:
    """Tokens that are not padding."""
    return sum(len(sample.ids) for sample in samples())
