"""Keyed permutations in O(1) memory: shuffling ten billion rows costs a key and a few multiplications.

A permutation of ``[0, size)`` is evaluated at the positions that are asked for, never held as a
list. Long ones are a Feistel network on the grid ``rows x columns`` with ``rows * columns`` just
above ``size`` (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002, their
generalised Feistel cipher); results outside ``[0, size)`` are walked on until they fall inside.
Short ones are sorted by hashed position, which is exact for the few sizes where a Feistel
network of four rounds reaches only part of all permutations.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt

UInt64 = npt.NDArray[np.uint64]
Int64 = npt.NDArray[np.int64]

TABLE_SIZE = 1_024
"""Up to this size a permutation is one sorted table."""

_ROUNDS = 4
_MASK = (1 << 64) - 1


def derive_key(*names: str | int) -> int:
    """A 64-bit key from names and numbers, the same on every machine and in every process."""
    text = "\x1f".join(str(name) for name in names)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def mix_key(key: int, number: int) -> int:
    """Fold a number into a 64-bit key (the finaliser of SplitMix64, in Python integers)."""
    value = (key + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def hash_positions(positions: UInt64, key: int) -> UInt64:
    """`mix_key` of many numbers at once."""
    value = (positions + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    value += np.uint64(key)
    value ^= value >> np.uint64(30)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(27)
    value *= np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return value


class Permutation:
    """A bijection of ``[0, size)`` onto itself, chosen by a 64-bit key."""

    def __init__(self, size: int, key: int) -> None:
        self.size = size
        self.key = key
        self._rows = max(1, math.isqrt(max(size - 1, 0)) + 1)
        self._columns = max(1, -(-size // self._rows))

    def __call__(self, positions: Int64) -> Int64:
        """Images of positions in ``[0, size)``."""
        if self.size <= TABLE_SIZE:
            return self._table[positions]
        return self._walk(positions, self._forward)

    def inverse(self, images: Int64) -> Int64:
        """The positions whose images are given."""
        if self.size <= TABLE_SIZE:
            return np.argsort(self._table)[images]
        return self._walk(images, self._backward)

    @cached_property
    def _table(self) -> Int64:
        order = hash_positions(np.arange(self.size, dtype=np.uint64), self.key)
        return np.argsort(order, kind="stable")

    def _walk(self, values: Int64, step: Callable[[UInt64], UInt64]) -> Int64:
        result = step(values.astype(np.uint64))
        outside = np.flatnonzero(result >= self.size)
        while outside.size:  # fewer than one in sqrt(size) needs another step
            result[outside] = step(result[outside])
            outside = outside[result[outside] >= self.size]
        return result.astype(np.int64)

    def _forward(self, values: UInt64) -> UInt64:
        rows, columns = np.uint64(self._rows), np.uint64(self._columns)
        row, column = values // columns, values % columns
        for number in range(0, _ROUNDS, 2):
            row = (row + hash_positions(column, mix_key(self.key, number)) % rows) % rows
            column = (column + hash_positions(row, mix_key(self.key, number + 1)) % columns) % columns
        return row * columns + column

    def _backward(self, values: UInt64) -> UInt64:
        rows, columns = np.uint64(self._rows), np.uint64(self._columns)
        row, column = values // columns, values % columns
        for number in range(_ROUNDS - 2, -1, -2):
            column = (column + columns - hash_positions(row, mix_key(self.key, number + 1)) % columns) % columns
            row = (row + rows - hash_positions(column, mix_key(self.key, number)) % rows) % rows
        return row * columns + column
