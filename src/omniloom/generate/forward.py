"""The stream at the last token of each running answer: with a cache, or, for models that have none of ours, without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from omniloom.generate.features import Embedded
from omniloom.generate.prefill import prefill
from omniloom.model.attention import AttendPacked
from omniloom.model.cache import AttendNext, KeyValueCache
from omniloom.model.decoder import Decoder, LanguageModel
from omniloom.model.documents import Documents
from omniloom.parallel.tensor import kv_heads_of


@runtime_checkable
class Forward(Protocol):
    """Answers that grow."""

    def first(self) -> Float[Tensor, "rows dim"]:
        """The stream at the last token of each prompt."""

    def next(self, words: Int[Tensor, " rows"]) -> Float[Tensor, "rows dim"]:
        """The stream at a further word of each row."""

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows only, in this order."""


def forward_of(decoder: LanguageModel, embedded: Embedded, documents: Documents, *, capacity_tokens: int) -> Forward:
    """What runs a model forward.

    Args:
        decoder: the language model; one of transformers has no cache of ours.
        embedded: the tokens of all prompts.
        documents: where each prompt lies.
        capacity_tokens: of the longest row when all words are there.
    """
    if isinstance(decoder, Decoder):
        return WithCache(decoder, embedded, documents, capacity_tokens=capacity_tokens)
    return WithoutCache(decoder, embedded, documents)


class WithCache:
    """Each token goes through the model once."""

    def __init__(self, decoder: Decoder, embedded: Embedded, documents: Documents, *, capacity_tokens: int) -> None:
        self._decoder, self._embedded, self._documents = decoder, embedded, documents
        self._cache = KeyValueCache(
            decoder.config,
            rows=len(documents),
            capacity_tokens=capacity_tokens,
            dtype=embedded.embeddings.dtype,
            device=embedded.embeddings.device,
            kv_heads=kv_heads_of(decoder),
        )

    def first(self) -> Float[Tensor, "rows dim"]:
        """See `Forward`."""
        return prefill(self._decoder, self._embedded, self._documents, self._cache)

    def next(self, words: Int[Tensor, " rows"]) -> Float[Tensor, "rows dim"]:
        """See `Forward`."""
        stream: Tensor = self._decoder(self._decoder.embed(words), AttendNext(self._cache))
        return stream

    def keep(self, rows: Sequence[int]) -> None:
        """See `Forward`."""
        self._cache.keep(rows)


class WithoutCache:
    """All tokens of a row go through the model for each of its words: slow, and right for any model."""

    def __init__(self, decoder: LanguageModel, embedded: Embedded, documents: Documents) -> None:
        self._decoder = decoder
        self._rows = [embedded.embeddings[start:stop] for start, stop in documents.spans()]

    def first(self) -> Float[Tensor, "rows dim"]:
        """See `Forward`."""
        documents = Documents.of_lengths(map(len, self._rows))
        tokens = torch.cat(self._rows)
        stream: Tensor = self._decoder(tokens, AttendPacked(documents, tokens.device))
        return stream[torch.tensor(documents.bounds[1:], device=tokens.device) - 1]

    def next(self, words: Int[Tensor, " rows"]) -> Float[Tensor, "rows dim"]:
        """See `Forward`."""
        further = self._decoder.embed(words)
        self._rows = [torch.cat([row, further[number : number + 1]]) for number, row in enumerate(self._rows)]
        return self.first()

    def keep(self, rows: Sequence[int]) -> None:
        """See `Forward`."""
        self._rows = [self._rows[row] for row in rows]
