"""What a packer says of a window: which samples go together, which wait, which are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Selection:
    """A window of samples, sorted out. A sample that is named nowhere is left out, counted as ``not-selected``.

    Attributes:
        packs: lists of samples that belong together.
        again: samples that wait for the next window, where they come first. No sample waits for ever: a selection
            that does nothing but let all wait is asked again with more samples, and in the end does without the oldest.
        left_out: reason to the samples that are left out for it; counted by the reason.
        failed: samples that are faulty, with the fault; dealt with by the fault policy.
    """

    packs: Sequence[Sequence[Any]]
    again: Sequence[Any] = ()
    left_out: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    failed: Sequence[tuple[Any, Exception]] = ()

    def moves(self, window: Sequence[Any]) -> bool:
        """Whether a sample of the window at least is used up."""
        return len(self.again) < len(window)
