"""Gives every sample of a conversion a key of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from omniloom.data.convert.safe_keys import safe_key

OnDuplicate = Literal["rename", "skip"]


class GivenKey(NamedTuple):
    """The key for one sample; with ``notices``, (reason, detail) of how it differs from the id."""

    key: str
    notices: tuple[tuple[str, str], ...]


class KeyRing:
    """The keys in use. An id that comes again gets ``~2``, ``~3`` and so on, or none at all.

    Args:
        on_duplicate: give a new name, or none, to an id that comes again.
    """

    def __init__(self, *, on_duplicate: OnDuplicate = "rename") -> None:
        self._used: set[str] = set()
        self._on_duplicate = on_duplicate
        self._next_number: dict[str, int] = {}

    def take(self, keys: Iterable[str]) -> None:
        """Count keys as used that were given out in an earlier run."""
        self._used.update(keys)

    def give(self, identifier: str) -> GivenKey | None:
        """Take a key for an id; ``None`` when the id was there before and duplicates are skipped."""
        key, reason = safe_key(identifier)
        notices: tuple[tuple[str, str], ...] = ((reason, f"written as {key}"),) if reason else ()
        if key in self._used:
            if self._on_duplicate == "skip":
                return None
            key = self._numbered(key)
            notices += (("duplicate-id", f"renamed {key}"),)
        self._used.add(key)
        return GivenKey(key, notices)

    def _numbered(self, key: str) -> str:
        number = self._next_number.get(key, 2)
        while f"{key}~{number}" in self._used:
            number += 1
        self._next_number[key] = number + 1
        return f"{key}~{number}"
