"""One generation problem for both sides: the same weights, the same questions, the same images.

The decoder is shaped as those of today (four query heads share a head of keys and values) and too large for a cache of
the processor, as any real one is. Sixteen questions are what `omniloom generate` answers together by default; each has
an image of 256 tokens, of its own or (``shared``) one for four questions.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

torch.set_num_threads(1)

ROWS, IMAGE_TOKENS, VOCAB, IMAGE = 16, 256, 8192, 8191
TEXT_LENGTHS = (12, 25, 41, 60, 78, 101, 122, 194, 18, 33, 15, 47, 88, 22, 64, 30)


def prompts() -> list[list[int]]:
    """Token ids of each question: the image first, then its text."""
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(3, VOCAB - 1, (length,), generator=generator).tolist() for length in TEXT_LENGTHS]
    return [[1, *[IMAGE] * IMAGE_TOKENS, *text] for text in texts]


def images(mode: str) -> torch.Tensor:
    """One tile a question."""
    tiles = torch.randn(ROWS, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    return tiles[[row // 4 for row in range(ROWS)]] if mode.startswith("shared") else tiles


def model() -> Any:
    """The model of transformers; both sides have its weights."""
    torch.manual_seed(0)
    text = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=2,
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
    return transformers.LlavaForConditionalGeneration(config).eval()
