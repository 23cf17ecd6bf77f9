"""Keyed permutations: bijections, invertible, keyed, in no order, and close to uniform where they are small."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.plan.permute import TABLE_SIZE, Permutation, derive_key, hash_positions, mix_key


@pytest.mark.parametrize("size", [1, 2, 3, 10, TABLE_SIZE, TABLE_SIZE + 1, 5_000, 99_991])
def test_is_a_bijection_and_its_inverse_undoes_it(size: int) -> None:
    permutation = Permutation(size, key=7)
    images = permutation(np.arange(size))
    assert np.array_equal(np.sort(images), np.arange(size))
    assert np.array_equal(permutation.inverse(images), np.arange(size))


@given(size=st.integers(TABLE_SIZE + 1, 10**13), key=st.integers(0, 2**64 - 1), seed=st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_huge_ones_are_injective_and_in_range_where_they_are_looked_at(size: int, key: int, seed: int) -> None:
    positions = np.unique(np.random.default_rng(seed).integers(0, size, 500))
    images = Permutation(size, key)(positions)
    assert len(np.unique(images)) == len(positions)
    assert images.min() >= 0
    assert images.max() < size
    assert np.array_equal(Permutation(size, key).inverse(images), positions)


def test_every_order_of_four_comes_up_about_equally_often() -> None:
    counts = Counter(tuple(Permutation(4, key=derive_key("test", k))(np.arange(4))) for k in range(24_000))
    assert set(counts) == set(permutations(range(4)))
    # 1,000 expected; five standard deviations of a binomial are 155
    assert all(abs(count - 1_000) < 155 for count in counts.values())


def test_long_ones_leave_no_more_neighbours_than_chance() -> None:
    images = Permutation(100_000, key=3)(np.arange(100_000))
    kept = int(np.sum(np.diff(images) == 1))
    assert kept < 12  # Poisson with mean 1: twelve or more has a chance below 1e-9
    assert abs(np.corrcoef(np.arange(100_000), images)[0, 1]) < 0.02  # six standard deviations


def test_mix_key_agrees_with_its_vector_form_and_with_splitmix64() -> None:
    # First outputs of SplitMix64 with seed 0, as its reference implementation prints them.
    assert [mix_key(0, n) for n in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    numbers = np.arange(100, dtype=np.uint64)
    assert hash_positions(numbers, 12_345).tolist() == [mix_key(12_345, n) for n in range(100)]


def test_names_that_run_together_give_different_keys() -> None:
    assert derive_key("ab", "c") != derive_key("a", "bc")
    assert derive_key("a", 1) == derive_key("a", "1")
