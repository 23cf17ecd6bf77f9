"""Greedy decoding of a batch: prompts are packed, so none is padded; each row then grows by a token a step.

Rows that have ended leave the batch. One answer is the same in any batch, as far as the arithmetic of the device
gives equal sums.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from omniloom.errors import InputError
from omniloom.model.cache import AttendNext, AttendPrompts, KeyValueCache
from omniloom.model.decoder import Decoder
from omniloom.model.documents import Documents
from omniloom.model.llava import Images, Llava


@dataclass(frozen=True)
class GreedyAnswer:
    """What follows a prompt.

    Attributes:
        token_ids: the words chosen, the one that ended the answer included.
        ended: whether a stop token ended it, rather than the limit.
    """

    token_ids: tuple[int, ...]
    ended: bool


@torch.inference_mode()
def generate_greedily(
    model: Llava | Decoder,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_tokens: Collection[int] = (),
    images: Images = None,
) -> list[GreedyAnswer]:
    """The likeliest word, again and again.

    Args:
        model: in evaluation mode; a `Decoder` where there are no images.
        prompts: token ids, with placeholders where image features go.
        max_new_tokens: at most so many words an answer.
        stop_tokens: words that end an answer.
        images: tiles of all prompts in order, as for `Llava`.

    Raises:
        InputError: no prompt, an empty prompt, or images for a model without a tower.
    """
    decoder = _decoder_of(model, prompts, images)
    documents = Documents.of_lengths(len(prompt) for prompt in prompts)
    weight = decoder.embed_tokens.weight
    cache = KeyValueCache(
        decoder.config,
        rows=len(prompts),
        capacity_tokens=documents.longest + max_new_tokens,
        dtype=weight.dtype,
        device=weight.device,
    )
    input_ids = torch.tensor([word for prompt in prompts for word in prompt], device=weight.device)
    embeddings = (
        model.embed(input_ids, images=images, visit_tower=False)
        if isinstance(model, Llava)
        else decoder.embed(input_ids)
    )
    stream = decoder(embeddings, AttendPrompts(documents, cache))
    last = torch.tensor([stop - 1 for _, stop in documents.spans()], device=weight.device)
    rows = _Rows(len(prompts), frozenset(stop_tokens))
    words = decoder.logits(stream[last]).argmax(dim=-1)
    for step in range(1, max_new_tokens + 1):
        kept = rows.add(words.tolist())
        if not kept or step == max_new_tokens:
            break
        if len(kept) < len(words):
            chosen = torch.tensor(kept, device=weight.device)
            cache.keep(chosen)
            words = words[chosen]
        words = _next_words(decoder, words, AttendNext(cache, longest=documents.longest + step))
    return rows.answers()


def _next_words(decoder: Decoder, words: Tensor, attend: AttendNext) -> Tensor:
    return decoder.logits(decoder(decoder.embed(words), attend)).argmax(dim=-1)


class _Rows:
    """The answers so far, and which prompt each running row belongs to."""

    def __init__(self, number: int, stop_tokens: frozenset[int]) -> None:
        self._stop_tokens = stop_tokens
        self._words: list[list[int]] = [[] for _ in range(number)]
        self._running = list(range(number))

    def add(self, words: list[int]) -> list[int]:
        """Add a word to every running row; which of these rows go on."""
        for row, word in zip(self._running, words, strict=True):
            self._words[row].append(word)
        kept = [place for place, word in enumerate(words) if word not in self._stop_tokens]
        self._running = [self._running[place] for place in kept]
        return kept

    def answers(self) -> list[GreedyAnswer]:
        """One answer a prompt, in order."""
        return [
            GreedyAnswer(tuple(words), ended=bool(words) and words[-1] in self._stop_tokens) for words in self._words
        ]


def _decoder_of(model: Llava | Decoder, prompts: Sequence[Sequence[int]], images: Images) -> Decoder:
    empty = [number for number, prompt in enumerate(prompts) if not prompt]
    if not prompts or empty:
        raise InputError(f"prompts without tokens: {empty or 'there are none'}. Begin a prompt with the model's BOS.")
    if images is not None and not isinstance(model, Llava):
        raise InputError("images for a language model without a tower. Give a Llava, or no images.")
    decoder = model.language_model if isinstance(model, Llava) else model
    if not isinstance(decoder, Decoder):
        raise InputError(f"{type(decoder).__name__} has no cache of ours. Use its own `generate`.")
    return decoder
