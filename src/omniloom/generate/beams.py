"""Beam search: several beginnings of an answer grow side by side, and the likeliest whole one is taken.

As in transformers with ``num_beams``, ``length_penalty`` 1 and ``early_stopping`` off: an answer is worth the mean log
probability of its words, the one that ends it included; a prompt is done when no running beginning, at its present
length, is worth more than the worst of as many whole answers as there are beams.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from omniloom.errors import InputError
from omniloom.generate.forward import Forward
from omniloom.model.decoder import LanguageModel

Words = tuple[int, ...]


def search_beams(
    decoder: LanguageModel,
    forward: Forward,
    *,
    beams: int,
    limits: Sequence[int],
    least: int = 0,
    stop_tokens: Collection[int] = (),
) -> list[tuple[Words, bool]]:
    """The answer of each prompt, and whether a stop token ended it.

    Args:
        decoder: scores words.
        forward: of the prompts, one row each, nothing of which has been asked for yet.
        beams: beginnings of each prompt.
        limits: words of each answer at most.
        least: no stop token before so many words.
        stop_tokens: words that end an answer.

    Raises:
        InputError: scores are no finite numbers.
    """
    stops = sorted(stop_tokens)
    searches = [_Search(beams, limit, frozenset(stops)) for limit in limits]
    running = list(searches)
    stream = forward.first()
    while running:
        scores = torch.log_softmax(decoder.logits(stream).float(), dim=-1)
        if len(running[0].words) < least:
            scores[:, stops] = -math.inf
        rows, words, left, first = [], [], [], 0
        for search, own in zip(running, torch.split(scores, [len(each.sums) for each in running]), strict=True):
            kept = search.grow(own)
            rows += [first + row for row, _ in kept]
            words += [word for _, word in kept]
            left += [search] if kept else []
            first += len(own)
        if left:
            forward.keep(rows)
            stream = forward.next(torch.tensor(words, device=scores.device))
        running = left
    return [search.best() for search in searches]


class _Search:
    """The beginnings of one prompt's answer, and its whole answers.

    Attributes:
        sums: summed log probability of each running beginning; all are of one length.
        words: the words so far of the likeliest.
    """

    def __init__(self, beams: int, limit: int, stops: frozenset[int]) -> None:
        self._beams, self._limit, self._stops = beams, limit, stops
        self._running: list[Words] = [()]
        self._whole: list[tuple[float, Words, bool]] = []
        self.sums = [0.0]

    @property
    def words(self) -> Words:
        return self._running[0]

    def grow(self, scores: Float[Tensor, "running vocab"]) -> list[tuple[int, int]]:
        """Take the log probabilities of what comes next; which beginnings go on, each with which word. None: done."""
        totals = (scores.double() + torch.tensor(self.sums, device=scores.device)[:, None]).flatten()
        # Enough that as many as there are beams are left if each word that ends an answer is among them.
        wanted = min(len(totals), self._beams * (1 + max(1, len(self._stops))))
        values, places = totals.topk(wanted)
        if not math.isfinite(float(values[0])):
            raise InputError("the scores of a prompt's next word are no finite numbers. Check the model's weights.")
        length, vocabulary = len(self.words) + 1, scores.shape[1]
        going: list[tuple[float, int, int]] = []
        for rank, (value, place) in enumerate(zip(values.tolist(), places.tolist(), strict=True)):
            row, word = divmod(place, vocabulary)
            ends = word in self._stops
            if rank < self._beams and (ends or length == self._limit) and math.isfinite(value):
                self._whole.append((value / length, (*self._running[row], word), ends))
            elif not ends and len(going) < self._beams and math.isfinite(value):
                going.append((value, row, word))
        self._whole = sorted(self._whole, key=lambda one: -one[0])[: self._beams]
        full = len(self._whole) == self._beams
        if length == self._limit or not going or (full and going[0][0] / length <= self._whole[-1][0]):
            return []
        self._running = [(*self._running[row], word) for _, row, word in going]
        self.sums = [value for value, _, _ in going]
        return [(row, word) for _, row, word in going]

    def best(self) -> tuple[Words, bool]:
        """The answer that is worth most, and whether a stop token ended it."""
        _, words, ended = self._whole[0]
        return words, ended
