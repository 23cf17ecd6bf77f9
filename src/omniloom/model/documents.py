"""Where the documents of a packed sequence lie.

The language model sees one flat row of tokens. Documents lie in it one after another, each with positions from 0
and none that can see another. A padded batch has no place here: its rows are documents, without their padding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from omniloom.errors import InputError


@dataclass(frozen=True)
class Alike:
    """Documents sorted into groups of one length.

    Attributes:
        groups: number of documents and their tokens, group by group.
        order: tokens in the order of the groups, int64 (tokens,), where that is another than the row's; else ``None``.
        places: where each token of the row is in that order, int64 (tokens,).
    """

    groups: tuple[tuple[int, int], ...]
    order: Tensor | None = None
    places: Tensor | None = None

    def moves(self, device: torch.device) -> tuple[Tensor, Tensor] | None:
        """Order and places on a device; ``None`` where nothing moves."""
        if self.order is None or self.places is None:
            return None
        return self.order.to(device), self.places.to(device)


@dataclass(frozen=True)
class Documents:
    """Borders of documents in a flat row of tokens.

    Attributes:
        bounds: first token of each document, then the number of tokens: ``(0, 5, 9)`` are two of 5 and 4 tokens.
    """

    bounds: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.bounds[:1] != (0,) or any(start >= stop for start, stop in pairwise(self.bounds)):
            raise InputError(f"document borders {self.bounds}: they begin with 0 and rise. Leave empty documents out.")

    @classmethod
    def of_lengths(cls, lengths: Iterable[int]) -> Documents:
        """Documents of so many tokens each, in this order."""
        return cls((0, *accumulate(lengths)))

    @property
    def tokens(self) -> int:
        """Tokens of all documents."""
        return self.bounds[-1]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each document."""
        return tuple(stop - start for start, stop in self.spans())

    @property
    def longest(self) -> int:
        """Tokens of the longest document."""
        return max(self.lengths, default=0)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def spans(self) -> list[tuple[int, int]]:
        """First token and the one after the last, of each document."""
        return list(pairwise(self.bounds))

    @cached_property
    def alike(self) -> Alike:
        """The documents by length, lengths in the order of their first document."""
        numbers_by_length: dict[int, list[int]] = {}
        for number, length in enumerate(self.lengths):
            numbers_by_length.setdefault(length, []).append(number)
        groups = tuple((len(numbers), length) for length, numbers in numbers_by_length.items())
        numbers = [number for group in numbers_by_length.values() for number in group]
        if numbers == sorted(numbers):
            return Alike(groups)
        order = torch.cat([torch.arange(*self.bounds[number : number + 2]) for number in numbers])
        return Alike(groups, order, order.argsort())

    def positions(self, device: torch.device | str = "cpu") -> Int[Tensor, " tokens"]:
        """Position of each token within its document, int64."""
        pieces = [torch.arange(length) for length in self.lengths]
        return torch.cat(pieces).to(device) if pieces else torch.zeros(0, dtype=torch.int64, device=device)

    def numbers(self, device: torch.device | str = "cpu") -> Int[Tensor, " tokens"]:
        """Number of the document of each token, int64."""
        lengths = torch.tensor(self.lengths, dtype=torch.int64)
        return torch.repeat_interleave(torch.arange(len(self)), lengths).to(device)

    def cumulative(self, device: torch.device | str = "cpu") -> Int[Tensor, " borders"]:
        """The borders as int32, as variable-length kernels want them."""
        return torch.tensor(self.bounds, dtype=torch.int32, device=device)
