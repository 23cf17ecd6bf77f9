"""Batches by what they cost: rows of a batch all have room for as many tokens as the longest of them needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from omniloom.errors import ConfigError

Thing = TypeVar("Thing")


def batches_by_tokens(
    things: Iterable[Thing], *, tokens: Callable[[Thing], int], budget_tokens: int, most_rows: int
) -> Iterator[list[Thing]]:
    """Neighbours together, in order; rows times the tokens of the longest stay within the budget.

    Args:
        things: taken one by one, as batches are asked for; one more than the batch is held.
        tokens: what a thing takes: its prompt, and the longest answer.
        budget_tokens: of a batch; a thing that takes more is a batch of its own.
        most_rows: things in a batch at most.

    Raises:
        ConfigError: a bound below 1.
    """
    if min(budget_tokens, most_rows) < 1:
        raise ConfigError(f"budget_tokens {budget_tokens} and most_rows {most_rows}; numbers of at least 1 expected.")
    batch: list[Thing] = []
    longest = 0
    for thing in things:
        size = tokens(thing)
        if batch and (len(batch) == most_rows or max(longest, size) * (len(batch) + 1) > budget_tokens):
            yield batch
            batch, longest = [], 0
        batch.append(thing)
        longest = max(longest, size)
    if batch:
        yield batch
