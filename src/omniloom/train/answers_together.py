"""Answers of a model whose matrices, tokens or layers ranks share: each word by a whole forward pass of all of them.

What answers a benchmark keeps keys and values (`omniloom.generate`); a few samples now and then do without them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn

from omniloom.model.documents import Documents
from omniloom.parallel.plan import pipeline_of


@torch.no_grad()
def answers_together(
    model: nn.Module, prompts: Sequence[Sequence[int]], *, images: Tensor | None, image_id: int, words: int
) -> list[list[int]]:
    """The likeliest words after each prompt, one after the other. All ranks call it, with the same prompts.

    Args:
        model: in evaluation mode, laid over ranks.
        prompts: token ids, with placeholders where image features go.
        images: tiles of all prompts in order, ``(tiles, 3, height, width)``, or ``None``.
        image_id: of placeholders in the prompts.
        words: of each answer. Ranks cannot stop apart from each other, so all answers have as many.
    """
    tiles = None if images is None else images.to(next(model.parameters()).device)
    rows = [list(prompt) for prompt in prompts]
    # Where the prompts have placeholders, not where an answer has that word.
    placeholders = [[place for place, word in enumerate(prompt) if word == image_id] for prompt in prompts]
    for _ in range(words):
        for row, word in zip(rows, _next_words(model, rows, placeholders, tiles).tolist(), strict=True):
            row.append(word)
    return [row[len(prompt) :] for row, prompt in zip(rows, prompts, strict=True)]


def _next_words(
    model: nn.Module, rows: Sequence[Sequence[int]], placeholders: Sequence[Sequence[int]], tiles: Tensor | None
) -> Int[Tensor, " rows"]:
    device = next(model.parameters()).device
    documents = Documents.of_lengths(len(row) for row in rows)
    ids = torch.tensor([word for row in rows for word in row], device=device)
    starts = zip(documents.bounds, placeholders, strict=False)
    places = torch.tensor([start + place for start, of_row in starts for place in of_row], dtype=torch.int64)
    seen = {"images": tiles, "image_positions": places.to(device)}
    last = torch.tensor(documents.bounds[1:], device=device) - 1
    pipeline = pipeline_of(model)
    if pipeline is not None:
        return pipeline.next_words(ids, documents=documents, wanted=last, **seen)
    scores: Tensor = model(ids, documents=documents, **seen)
    return scores[last].argmax(dim=-1)
