"""Tokens dealt over ranks and attention of a rank's own, without any ranks: each part by itself, put together again."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from omniloom.model.attention import attend_each_document
from omniloom.model.documents import Documents
from omniloom.parallel.context import (
    attend_by_kernel,
    attend_each_piece,
    pieces_of,
    rows_of,
    spans_in_order,
    spans_in_pairs,
)

lengths_of_documents = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(st.integers(1, 5), st.integers(1, 4))
def test_each_token_is_of_one_part(each: int, parts: int) -> None:
    for deal, tokens in ((spans_in_order, each * parts), (spans_in_pairs, 2 * each * parts)):
        rows = torch.cat([rows_of(deal(tokens, part, parts)) for part in range(parts)])
        assert sorted(rows.tolist()) == list(range(tokens))
    # In pairs, the tokens before a part's tokens are as many for each part: causal work is equal.
    work = {int((rows_of(spans_in_pairs(2 * each * parts, part, parts)) + 1).sum()) for part in range(parts)}
    assert len(work) == 1


def parts_of(documents: Documents, parts: int) -> list[list[tuple[int, int]]]:
    return [spans_in_pairs(documents.tokens, part, parts) for part in range(parts)]


@settings(deadline=None, max_examples=60)
@given(lengths_of_documents, st.integers(1, 3), st.sampled_from([None, 1, 3]), st.sampled_from([1, 2]))
def test_own_attention_is_that_of_whole_documents(
    lengths: list[int], parts: int, window: int | None, kv_heads: int
) -> None:
    filling = -sum(lengths) % (2 * parts)
    documents = Documents.of_lengths([*lengths, *([filling] if filling else [])])
    draw = torch.Generator().manual_seed(sum(lengths))
    query = torch.randn(documents.tokens, 2, 4, generator=draw)
    key, value = (torch.randn(documents.tokens, kv_heads, 4, generator=draw) for _ in range(2))
    expected = attend_each_document(query, key, value, documents, window=window)
    for spans in parts_of(documents, parts):
        for span in spans:
            own = query[slice(*span)]
            found = attend_each_piece(own, key, value, pieces_of(documents, span), window=window)
            torch.testing.assert_close(found, expected[slice(*span)], rtol=1e-5, atol=1e-6)


def documented(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    window_size: tuple[int, int],
    enable_gqa: bool,
) -> Tensor:
    """A plain reading of what torch says of its kernel, with FlashAttention's rule: the last query is the last key."""
    assert (cu_seq_q.dtype, cu_seq_k.dtype) == (torch.int32, torch.int32)
    assert enable_gqa == (query.shape[1] != key.shape[1])
    key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], dim=1) for each in (key, value))
    gathered = []
    for number in range(len(cu_seq_q) - 1):
        looking, seen = (slice(int(c[number]), int(c[number + 1])) for c in (cu_seq_q, cu_seq_k))
        own, keys, values = query[looking], key[seen], value[seen]
        assert len(own) <= max_q
        assert len(keys) <= max_k
        distance = torch.arange(len(keys)) - (torch.arange(len(own))[:, None] + len(keys) - len(own))
        hidden = distance > window_size[1]
        if window_size[0] >= 0:
            hidden |= distance < -window_size[0]
        scores = torch.einsum("qhd,khd->hqk", own, keys) / own.shape[-1] ** 0.5
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        gathered.append(torch.einsum("hqk,khd->qhd", weights, values))
    return torch.cat(gathered)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("lengths", [[16], [3, 7, 6], [1, 1, 9, 5]])
def test_the_kernel_is_asked_for_the_same(lengths: list[int], window: int | None) -> None:
    documents = Documents.of_lengths(lengths)
    query, key, value = torch.randn(16, 4, 8), torch.randn(16, 2, 8), torch.randn(16, 2, 8)
    for spans in parts_of(documents, 2):
        for span in spans:
            pieces = pieces_of(documents, span)
            expected = attend_each_piece(query[slice(*span)], key, value, pieces, window=window)
            found = attend_by_kernel(documented, query[slice(*span)], key, value, pieces, window=window)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_the_installed_kernel_takes_the_shapes() -> None:
    kernel = pytest.importorskip("torch.nn.attention.varlen").varlen_attn
    documents = Documents.of_lengths([3, 7, 6])
    query, key = (torch.empty(16, heads, 64, dtype=torch.bfloat16, device="meta") for heads in (4, 2))
    pieces = pieces_of(documents, (4, 8))
    found = attend_by_kernel(kernel, query[4:8], key, key, pieces, window=None)
    assert found.shape == (4, 4, 64)
