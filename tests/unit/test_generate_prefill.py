"""Prompts that begin alike go through the model once, and say what they say alone."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.generate.greedy import generate_greedily
from omniloom.generate.prefill import shared_beginnings
from omniloom.model.cache import AttendNext, AttendPrompts, AttendSuffixes, KeyValueCache
from omniloom.model.config import DecoderConfig
from omniloom.model.decoder import Decoder
from omniloom.model.documents import Documents

CPU = torch.device("cpu")


def decoder(*, window: int | None = None) -> Decoder:
    torch.manual_seed(3)
    config = DecoderConfig(
        family="llama",
        vocab_size=80,
        dim=16,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        mlp_dim=24,
        window=window,
    )
    model = Decoder(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data = 0.5 * torch.randn(parameter.shape)
    return model


def saved(prompts: list[list[int]], rows: tuple[int, ...]) -> int:
    """Tokens that a group saves, from the definition."""
    tokens = 0
    while all(
        tokens < len(prompts[row]) - 1 and prompts[row][: tokens + 1] == prompts[rows[0]][: tokens + 1] for row in rows
    ):
        tokens += 1
    return (len(rows) - 1) * tokens


def best_of_all_cuts(prompts: list[list[int]]) -> int:
    """The most that any division of the prompts in lexical order saves."""
    order = sorted(range(len(prompts)), key=prompts.__getitem__)
    best = 0
    for cuts in product([False, True], repeat=len(order) - 1):
        borders = [0, *(place for place, cut in enumerate(cuts, 1) if cut), len(order)]
        best = max(best, sum(saved(prompts, tuple(order[start:stop])) for start, stop in pairwise(borders)))
    return best


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=1, max_size=6))
def test_no_division_saves_more(prompts: list[list[int]]) -> None:
    groups = shared_beginnings([np.array(prompt, dtype=np.int64) for prompt in prompts])
    assert sorted(row for group in groups for row in group.rows) == list(range(len(prompts)))
    for group in groups:
        alone = len(group.rows) == 1
        first = prompts[group.rows[0]]
        assert group.tokens == len(first) if alone else group.tokens < min(len(prompts[row]) for row in group.rows)
        assert all(prompts[row][: group.tokens] == first[: group.tokens] for row in group.rows)
    made = sum((len(group.rows) - 1) * group.tokens for group in groups)
    assert made == best_of_all_cuts(prompts)


def test_two_images_with_two_questions_each_are_two_groups() -> None:
    system, cat, dog = [1, 2, 3], [-1] * 8, [-2] * 8
    prompts = [[*system, *image, *question] for question in ([7], [8, 9]) for image in (cat, dog)]
    groups = shared_beginnings([np.array(prompt) for prompt in prompts])
    assert sorted((tuple(sorted(group.rows)), group.tokens) for group in groups) == [((0, 2), 11), ((1, 3), 11)]


def test_answers_of_prompts_that_begin_alike() -> None:
    model = decoder()
    images = [torch.randint(10, 80, (30,)).tolist() for _ in range(2)]
    prompts = [
        [1, *images[0], 5],
        [1, *images[1], 6, 7],
        [1, *images[0]],
        [1, *images[0], 5],
        [9, 8],
        [1, *images[1], 6],
    ]
    together = generate_greedily(model, prompts, max_new_tokens=12)
    assert together == [generate_greedily(model, [prompt], max_new_tokens=12)[0] for prompt in prompts]


@pytest.mark.parametrize("window", [None, 3])
@torch.no_grad()
def test_suffixes_see_their_rows_and_nothing_else(window: int | None) -> None:
    model = decoder(window=window)
    prompt, suffixes = torch.randint(0, 80, (6,)), [torch.randint(0, 80, (length,)) for length in (4, 1)]
    cache = KeyValueCache(model.config, rows=3, capacity_tokens=12, dtype=torch.float32, device=CPU)
    model(model.embed(prompt), AttendPrompts(Documents.of_lengths([6]), cache, rows=[1]))
    cache.copy_row(1, [2], tokens=5)
    documents = Documents.of_lengths([4, 1])
    stream = model(model.embed(torch.cat(suffixes)), AttendSuffixes(documents, cache, rows=[2, 1]))
    wholes = [torch.cat([prompt[:5], suffixes[0]]), torch.cat([prompt, suffixes[1]])]
    assert cache.lengths == [0, 7, 9]
    for whole, last in zip(wholes, (3, 4), strict=True):
        alone = KeyValueCache(model.config, rows=1, capacity_tokens=12, dtype=torch.float32, device=CPU)
        expected = model(model.embed(whole), AttendPrompts(Documents.of_lengths([len(whole)]), alone))
        assert torch.allclose(stream[last], expected[-1], atol=1e-5)
    cache.keep([2, 1])
    following = torch.tensor([3, 4])
    stream = model(model.embed(following), AttendNext(cache))
    for row, whole in enumerate(wholes):
        longer = torch.cat([whole, following[row : row + 1]])
        alone = KeyValueCache(model.config, rows=1, capacity_tokens=12, dtype=torch.float32, device=CPU)
        expected = model(model.embed(longer), AttendPrompts(Documents.of_lengths([len(longer)]), alone))
        assert torch.allclose(stream[row], expected[-1], atol=1e-5)


@pytest.mark.parametrize("order", [[0, 3, 2], [2, 1], [1, 0], [3], [0, 1, 2, 3]])
def test_rows_that_are_kept(order: list[int]) -> None:
    cache = KeyValueCache(decoder().config, rows=4, capacity_tokens=3, dtype=torch.float32, device=CPU)
    cache.keys.copy_(torch.randn(cache.keys.shape))
    cache.lengths = [1, 2, 3, 2]
    expected = [(length, cache.keys[:, row, :, :length].clone()) for row, length in enumerate(cache.lengths)]
    cache.keep(order)
    assert (cache.rows, cache.lengths) == (len(order), [expected[row][0] for row in order])
    for place, row in enumerate(order):
        assert torch.equal(cache.keys[:, place, :, : expected[row][0]], expected[row][1])


def test_rows_one_by_one_and_together_see_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [torch.randint(1, 80, (length,)).tolist() for length in (3, 21, 9)]
    for window in (None, 4):
        monkeypatch.setattr("omniloom.model.cache._WASTE_PER_CALL", -1)
        alone = generate_greedily(decoder(window=window), prompts, max_new_tokens=10)
        monkeypatch.setattr("omniloom.model.cache._WASTE_PER_CALL", 1 << 40)
        assert generate_greedily(decoder(window=window), prompts, max_new_tokens=10) == alone
