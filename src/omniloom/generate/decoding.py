"""Answers of a batch, word by word: prompts are packed, so none is padded; each row then grows by a token a step.

Rows that have ended leave the batch. One answer is the same in any batch, as far as the arithmetic of the device
gives equal sums.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from omniloom.errors import InputError
from omniloom.generate.beams import search_beams
from omniloom.generate.features import embed_prompts
from omniloom.generate.forward import forward_of
from omniloom.generate.products import quick_products
from omniloom.generate.sampling import NO_WORD, Chooser, SamplingConfig
from omniloom.generate.stops import text_before_stop
from omniloom.model.decoder import LanguageModel
from omniloom.model.documents import Documents
from omniloom.model.llava import Images, Llava

Given = TypeVar("Given")
OnWords = Callable[[int, Sequence[int]], None]
"""Called with the number of a prompt and all words of its answer so far, each time there is one more."""


@dataclass(frozen=True)
class Generated:
    """What follows a prompt.

    Attributes:
        token_ids: the words chosen, the one that ended the answer included.
        ended: whether a stop token or a stop text ended it, rather than the limit.
    """

    token_ids: tuple[int, ...]
    ended: bool


@torch.inference_mode()
def generate(
    model: Llava | LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    sampling: SamplingConfig,
    stop_tokens: Collection[int] = (),
    images: Images = None,
    keys: Sequence[str] | None = None,
    limits: Sequence[int] | None = None,
    text_of: Callable[[Sequence[int]], str] | None = None,
    on_words: OnWords | None = None,
) -> list[Generated]:
    """Answers to prompts.

    Args:
        model: in evaluation mode; a language model where there are no images.
        prompts: token ids, with placeholders where image features go.
        sampling: how words are chosen and what ends an answer.
        stop_tokens: words that end an answer.
        images: tiles of all prompts in order, as for `Llava`; on any device.
        keys: names of the answers, which draws hang on; by default the prompts' numbers. Give the items' own ids, and
            an answer does not hang on its place in a batch.
        limits: words of each answer at most; ``SamplingConfig.max_new_tokens`` holds as well.
        text_of: the text of ids, where `SamplingConfig.stop` has texts to look for.
        on_words: told of each word; with beams, of none: there is no word before there is the whole answer.

    Returns:
        One answer a prompt, in order.

    Raises:
        InputError: no prompt, an empty one, images for a model without a tower, stop texts without `text_of`,
            numbers of keys or limits that are not those of the prompts, or scores that are no finite numbers.
    """
    decoder = _decoder_of(model, prompts, images)
    rows = _Rows(prompts, sampling, stop_tokens=stop_tokens, limits=limits, text_of=text_of, on_words=on_words)
    documents = Documents.of_lengths(len(prompt) for prompt in prompts)
    everything = [word for prompt in prompts for word in prompt]
    device = decoder.head_weight.device
    chooser = Chooser(
        sampling,
        prompts=prompts,
        keys=_one_each("keys", keys, prompts) if keys is not None else [str(row) for row in range(len(prompts))],
        vocab_size=decoder.head_weight.shape[0],
        stop_tokens=stop_tokens,
        device=device,
    )
    with quick_products(model):
        embedded = embed_prompts(model, everything, images=images, device=device)
        forward = forward_of(decoder, embedded, documents, capacity_tokens=rows.capacity_tokens)
        if sampling.beams > 1:
            found = search_beams(
                decoder, forward,
                beams=sampling.beams, limits=rows.limits, least=sampling.min_new_tokens, stop_tokens=stop_tokens,
            )  # fmt: skip
            return [Generated(chosen, ended) for chosen, ended in found]
        words = chooser.choose(decoder.logits(forward.first()))
        while kept := rows.add(words.tolist()):
            if len(kept) < len(words):
                chooser.keep(kept)
                forward.keep(kept)
                words = words[torch.tensor(kept, device=device)]
            words = chooser.choose(decoder.logits(forward.next(words)))
    return rows.answers()


class _Rows:
    """The answers so far, and which prompt each running row belongs to."""

    def __init__(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: SamplingConfig,
        *,
        stop_tokens: Collection[int],
        limits: Sequence[int] | None,
        text_of: Callable[[Sequence[int]], str] | None,
        on_words: OnWords | None,
    ) -> None:
        most = sampling.max_new_tokens
        given = [most] * len(prompts) if limits is None else _one_each("limits", limits, prompts)
        if min(given) < 1:
            raise InputError(f"a limit of {min(given)} words for an answer; at least 1 expected.")
        if sampling.stop and text_of is None:
            raise InputError(f"stop texts {list(sampling.stop)}, but no text_of to find them with. Give it.")
        self.limits = [min(limit, most) for limit in given]
        self._lengths = [len(prompt) for prompt in prompts]
        self._stop_tokens, self._stop = frozenset(stop_tokens), sampling.stop
        self._text_of, self._on_words = text_of, on_words
        self._words: list[list[int]] = [[] for _ in prompts]
        self._ended = [False] * len(prompts)
        self._running = list(range(len(prompts)))

    @property
    def capacity_tokens(self) -> int:
        """Room that the row that may grow longest needs."""
        return max(length + limit for length, limit in zip(self._lengths, self.limits, strict=True))

    def add(self, words: list[int]) -> list[int]:
        """Add a word to every running row; which of these go on, the last of them in the places of those that end."""
        for row, word in zip(self._running, words, strict=True):
            if word == NO_WORD:
                raise InputError(
                    f"prompt {row}: the scores after {len(self._words[row])} words are no finite numbers. Check the "
                    "model's weights and the images, or compute in a wider type."
                )
            self._words[row].append(word)
            self._ended[row] = word in self._stop_tokens or self._has_stop_text(row)
            if self._on_words is not None:
                self._on_words(row, self._words[row])
        going = [self._goes_on(row) for row in self._running]
        left = sum(going)
        moving = iter([place for place in range(left, len(going)) if going[place]])
        kept = [place if going[place] else next(moving) for place in range(left)]
        self._running = [self._running[place] for place in kept]
        return kept

    def answers(self) -> list[Generated]:
        """One answer a prompt, in order."""
        return [Generated(tuple(words), ended) for words, ended in zip(self._words, self._ended, strict=True)]

    def _goes_on(self, row: int) -> bool:
        return not self._ended[row] and len(self._words[row]) < self.limits[row]

    def _has_stop_text(self, row: int) -> bool:
        if not self._stop or self._text_of is None:
            return False
        return text_before_stop(self._text_of(self._words[row]), self._stop) is not None


def _one_each(name: str, given: Sequence[Given], prompts: Sequence[Sequence[int]]) -> Sequence[Given]:
    if len(given) != len(prompts):
        raise InputError(f"{len(given)} {name} for {len(prompts)} prompts. Give one each.")
    return given


def _decoder_of(model: Llava | LanguageModel, prompts: Sequence[Sequence[int]], images: Images) -> LanguageModel:
    empty = [number for number, prompt in enumerate(prompts) if not prompt]
    if not prompts or empty:
        raise InputError(f"prompts without tokens: {empty or 'there are none'}. Begin a prompt with the model's BOS.")
    if images is not None and not isinstance(model, Llava):
        raise InputError("images for a language model without a tower. Give a Llava, or no images.")
    return model.language_model if isinstance(model, Llava) else model
