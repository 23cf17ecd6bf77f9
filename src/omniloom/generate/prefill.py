"""The prompts of a batch go through the model: packed, and a beginning that several share goes through it once.

Questions about one image begin with the same words and the same image; its tokens are most of each prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from omniloom.generate.features import Embedded
from omniloom.model.cache import AttendPrompts, AttendSuffixes, KeyValueCache
from omniloom.model.decoder import Decoder
from omniloom.model.documents import Documents

LEAST_SHARE = 0.25
"""Of all tokens that must be saved, for a second pass through the model to be worth it."""


class Shared(NamedTuple):
    """Prompts that begin alike.

    Attributes:
        rows: their numbers.
        tokens: how many at the beginning are the same: all of a prompt that is alone, fewer than any has of several.
    """

    rows: tuple[int, ...]
    tokens: int


def prefill(
    decoder: Decoder, embedded: Embedded, documents: Documents, cache: KeyValueCache
) -> Float[Tensor, "rows dim"]:
    """Fill a cache with prompts, and give the stream at the last token of each.

    Args:
        decoder: the language model.
        embedded: the tokens of all prompts.
        documents: where each prompt lies.
        cache: empty, a row for each prompt.
    """
    groups = shared_beginnings([embedded.names[start:stop].numpy() for start, stop in documents.spans()])
    if sum((len(group.rows) - 1) * group.tokens for group in groups) < LEAST_SHARE * documents.tokens:
        return _through(decoder, embedded, documents.spans(), AttendPrompts(documents, cache))
    starts = documents.bounds
    firsts = [group.rows[0] for group in groups]
    lengths = Documents.of_lengths(group.tokens for group in groups)
    spans = [(starts[row], starts[row] + group.tokens) for row, group in zip(firsts, groups, strict=True)]
    streams = dict(
        zip(firsts, _through(decoder, embedded, spans, AttendPrompts(lengths, cache, rows=firsts)), strict=True)
    )
    several = [group for group in groups if len(group.rows) > 1]
    for group in several:
        cache.copy_row(group.rows[0], group.rows[1:], tokens=group.tokens)
    rows = [row for group in several for row in group.rows]
    spans = [(starts[row] + group.tokens, starts[row + 1]) for group in several for row in group.rows]
    suffixes = Documents.of_lengths(stop - start for start, stop in spans)
    streams |= zip(rows, _through(decoder, embedded, spans, AttendSuffixes(suffixes, cache, rows=rows)), strict=True)
    return torch.stack([streams[row] for row in range(len(documents))])


def _through(
    decoder: Decoder, embedded: Embedded, spans: Sequence[tuple[int, int]], attend: AttendPrompts | AttendSuffixes
) -> Float[Tensor, "spans dim"]:
    """The stream at the last token of some spans of the tokens, after these went through the model."""
    tokens = torch.cat([embedded.embeddings[start:stop] for start, stop in spans])
    ends = list(accumulate(stop - start for start, stop in spans))
    last: Tensor = decoder(tokens, attend)[torch.tensor(ends, device=tokens.device) - 1]
    return last


def shared_beginnings(prompts: Sequence[NDArray[np.int64]]) -> list[Shared]:
    """All prompts in groups, whose shared beginnings save the most tokens of all divisions of their lexical order.

    Prompts that begin alike are neighbours in that order. The best division of the first ``n`` of them follows from
    those of fewer.
    """
    order = sorted(range(len(prompts)), key=lambda row: prompts[row].tolist())
    sizes = [len(prompts[row]) for row in order]
    alike = [_same_tokens(prompts[one], prompts[other]) for one, other in pairwise(order)]
    saved: list[int] = [0]
    last: list[tuple[int, int]] = []  # of each best division: where its last group begins, and what that shares
    for stop in range(1, len(order) + 1):
        most, begin, tokens, common = saved[-1], stop - 1, sizes[stop - 1], sizes[stop - 1] - 1
        for start in range(stop - 2, -1, -1):
            common = min(common, alike[start], sizes[start] - 1)
            if saved[start] + (stop - start - 1) * common > most:
                most, begin, tokens = saved[start] + (stop - start - 1) * common, start, common
        saved.append(most)
        last.append((begin, tokens))
    groups = []
    stop = len(order)
    while stop:
        begin, tokens = last[stop - 1]
        groups.append(Shared(tuple(order[begin:stop]), tokens))
        stop = begin
    return groups[::-1]


def _same_tokens(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    length = min(len(one), len(other))
    differ = np.flatnonzero(one[:length] != other[:length])
    return int(differ[0]) if len(differ) else length
