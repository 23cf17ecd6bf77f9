"""Choosing words: the scores equal those of transformers bit by bit, draws follow them and hang on names alone."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.errors import ConfigError
from omniloom.generate.sampling import Chooser, SamplingConfig, bent_scores, draw, uniform

CPU = torch.device("cpu")


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from([0.1, 0.7, 1.0, 1.9]),
    top_k=st.none() | st.integers(2, 60),
    top_p=st.none() | st.floats(0.01, 1.0),
    penalty=st.sampled_from([1.0, 0.5, 1.3]),
    ties=st.booleans(),
)
def test_scores_are_those_of_transformers(
    seed: int, temperature: float, top_k: int | None, top_p: float | None, penalty: float, ties: bool
) -> None:
    theirs: Any = pytest.importorskip("transformers")
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 50, generator=generator) * 3
    logits = logits.round() if ties else logits
    said = torch.randint(0, 50, (3, 8), generator=generator)
    expected = logits
    if penalty != 1:
        expected = theirs.RepetitionPenaltyLogitsProcessor(penalty)(said, expected)
    expected = theirs.MinNewTokensLengthLogitsProcessor(5, 4, [7, 9])(said, expected)
    expected = theirs.TemperatureLogitsWarper(temperature)(said, expected)
    if top_k is not None:
        expected = theirs.TopKLogitsWarper(top_k)(said, expected)
    if top_p is not None:
        expected = theirs.TopPLogitsWarper(top_p)(said, expected)
    seen = torch.zeros(3, 50, dtype=torch.bool).scatter(1, said, True)
    forbidden = torch.zeros(3, 50, dtype=torch.bool)
    forbidden[:, [7, 9]] = True
    sampling = SamplingConfig(temperature=temperature, top_k=top_k, top_p=top_p, repetition_penalty=penalty)
    assert torch.equal(bent_scores(logits, sampling=sampling, seen=seen, forbidden=forbidden), expected)


def test_numbers_are_uniform_and_stay_as_they_are() -> None:
    numbers = [uniform(3, f"item {n}", step) for n in range(400) for step in range(25)]
    assert len(set(numbers)) == len(numbers)
    assert all(0 <= number < 1 for number in numbers)
    # 10,000 numbers in 10 bins of 1,000: the chi square of 9 degrees is above 27.9 once in a thousand.
    bins = Counter(int(number * 10) for number in numbers)
    assert sum((bins[n] - 1000) ** 2 / 1000 for n in range(10)) < 27.9
    # sha256sum of "0\n2\nphoto 7" begins with 7c4352475db3623a.
    assert uniform(0, "photo 7", 2) == 0x7C4352475DB3623A // 2**11 / 2**53


def test_draws_follow_the_scores() -> None:
    scores = torch.tensor([[0.5, 0.0, 0.3, 0.2, 0.0]]).log()  # a word of probability 0 scores minus infinity
    words = draw(scores.expand(20_000, 5), seed=1, keys=[str(n) for n in range(20_000)], step=0)
    counts = torch.bincount(words, minlength=5) / 20_000
    assert counts[[1, 4]].sum() == 0
    # Five standard deviations of a share of one half.
    assert (counts[[0, 2, 3]] - torch.tensor([0.5, 0.3, 0.2])).abs().max() < 5 * 0.5 / math.sqrt(20_000)


def test_a_draw_hangs_on_seed_key_and_step_alone() -> None:
    scores = torch.randn(4, 200, generator=torch.Generator().manual_seed(0))
    together = draw(scores, seed=5, keys=["a", "b", "c", "d"], step=3)
    alone = [draw(scores[n : n + 1], seed=5, keys=["abcd"[n]], step=3).item() for n in range(4)]
    assert together.tolist() == alone
    same = scores[:1].expand(50, 200)
    keys = [str(n) for n in range(50)]
    words = draw(same, seed=5, keys=keys, step=3)
    assert len(set(words.tolist())) > 10
    assert not torch.equal(words, draw(same, seed=6, keys=keys, step=3))
    assert not torch.equal(words, draw(same, seed=5, keys=keys, step=4))


def test_a_chooser_remembers_what_was_said() -> None:
    sampling = SamplingConfig(repetition_penalty=2.0, min_new_tokens=2)
    chooser = Chooser(sampling, prompts=[[0, 99], [3]], keys=["a", "b"], vocab_size=4, stop_tokens=[3], device=CPU)
    logits = torch.tensor([[4.0, 3.0, 2.5, 9.0], [1.0, -1.0, 0.9, 9.0]])
    assert chooser.choose(logits).tolist() == [1, 0]  # 0 was in the prompt: 4 / 2; the stop word has to wait
    assert chooser.choose(logits).tolist() == [2, 2]  # 1 / 2 and 3 / 2 are less than what was not said
    chooser.keep([1])
    assert chooser.choose(logits[1:]).tolist() == [3]  # two words are there: 9 / 2, said in the prompt


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"temperature": -1.0}, "temperature -1.0"),
        ({"temperature": math.nan}, "temperature nan"),
        ({"top_p": 0.9}, "top_p 0.9 at temperature 0"),
        ({"top_k": 5}, "top_k 5 and top_p None at temperature 0"),
        ({"temperature": 1.0, "top_p": 1.5}, r"top_p 1\.5"),
        ({"temperature": 1.0, "top_k": 0}, "top_k 0"),
        ({"repetition_penalty": 0.0}, r"repetition_penalty 0\.0"),
        ({"stop": ("",)}, "empty text"),
        ({"max_new_tokens": 0}, "max_new_tokens 0"),
        ({"max_new_tokens": 3, "min_new_tokens": 4}, "min_new_tokens 4"),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        SamplingConfig(**wrong)
