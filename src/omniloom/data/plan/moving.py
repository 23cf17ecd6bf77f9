"""Blending with weights that change: by a schedule, or because they are shares of tokens and not of samples.

What changes does so only where a block of draws begins. Each leaf is owed its share of what was drawn, in samples or in
tokens; what it is still owed is carried from block to block, so that no share is lost to rounding or to samples that
are longer than the mean. With shares of tokens, how many draws make them up follows from the mean length of each leaf
so far, which the work reports and the state keeps: the plan opens no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import TYPE_CHECKING

import numpy as np

from omniloom.data.plan.blend import BLOCK_DRAWS, Blend
from omniloom.data.plan.lane import Lane
from omniloom.data.plan.permute import Int64
from omniloom.data.plan.stream import PlanStream, State
from omniloom.data.plan.weights_at import Float64, WeightsAt
from omniloom.data.sample import SampleKey

if TYPE_CHECKING:
    from omniloom.data.plan.plan import Plan

FIRST_BLOCK_DRAWS = 8
"""Draws in the first block of a lane that counts tokens; each next one is as long as all before it together."""

OWED_SCALE = {"samples": 1_024, "tokens": 1}
"""What is owed is kept in whole numbers of so small a part of a sample or token."""

LEAST_SHARE = 1e-12
"""Below this a share is none."""

PRIOR_DRAWS = 64
"""Draws that a mean length which is given beforehand counts for."""


def block_counts(
    draws: int, *, shares: Sequence[float] | Float64, means: Sequence[float] | Float64, owed: Sequence[float] | Float64
) -> Int64:
    """How many draws of a block come from each leaf.

    Args:
        draws: draws in the block.
        shares: the leaves' shares, with the sum 1.
        means: mean length of their samples; 1 where samples are counted.
        owed: what each leaf is owed, in the same unit.

    Returns:
        counts with the sum ``draws``; a leaf that had too much gets none.
    """
    share, mean, debt = (np.asarray(numbers, dtype=np.float64) for numbers in (shares, means, owed))
    alive = share > LEAST_SHARE
    while True:
        # The block's length in units, so that shares and debts come to just so many draws. Sums are exact: the order
        # of samples must not hang on how a machine adds.
        per_unit = fsum((share / mean)[alive].tolist())
        units = (draws - fsum((debt / mean)[alive].tolist())) / per_unit
        wanted = np.where(alive, (share * units + debt) / mean, 0.0)
        overdrawn = wanted < 0
        if not overdrawn.any():
            break
        alive &= ~overdrawn
    counts = wanted.astype(np.int64)
    missing = draws - int(counts.sum())
    if missing > 0:
        places = np.flatnonzero(alive)
        deadlines = ((1 - wanted + counts) * mean)[places] / share[places]
        by_deadline = places[np.argsort(deadlines, kind="stable")]
        for turn in range(missing):  # fewer than leaves, but for the rounding of floating point
            counts[by_deadline[turn % len(by_deadline)]] += 1
    return counts


class MovingStream(PlanStream):
    """The sample keys of one lane, under weights that change where a block begins."""

    def __init__(self, plan: Plan, lane: Lane) -> None:
        leaves = len(plan.leaves)
        self._started = False
        self._counts: Int64 | None = None  # of the running block, by leaf
        self._owed = np.zeros(leaves, dtype=np.int64)
        self._since = [0] * leaves
        self._told: tuple[Int64, Int64] | None = None  # draws and tokens by leaf, where any were told of
        self._prior_draws = np.array([PRIOR_DRAWS if leaf.mean_tokens else 0 for leaf in plan.leaves])
        self._priors = np.array([leaf.mean_tokens or 0.0 for leaf in plan.leaves])
        self._scale = OWED_SCALE[plan.weights_in]
        self._of_tokens = plan.weights_in == "tokens"
        self._weighed = np.zeros(0, dtype=np.int64)
        super().__init__(plan, lane)

    def tell(self, dataset: int, tokens: int) -> None:
        """Report the length of a sample that was made of the running block, for the blocks after it."""
        self._since[dataset] += tokens

    def state_dict(self) -> State:
        """As of any stream, and what the weights of this block and the next ones hang on.

        ``counts``: draws of the block by leaf; ``owed``: what leaves were owed when it began; ``told_tokens``: lengths
        of all draws up to then; ``told_draws``: how many these were, where not ``cursors``; ``since``: lengths of draws
        of the block.
        """
        if self._started and "counts" not in self._block_state:
            super().state_dict()
            counts = self._counts
            self._block_state |= {
                "counts": self._by_name(counts) if counts is not None else {},
                "owed": self._by_name(self._owed),
            }
            if self._told is not None:
                draws, tokens = self._told
                self._block_state["told_tokens"] = self._by_name(tokens)
                if not np.array_equal(draws, self._cursors):
                    self._block_state["told_draws"] = self._by_name(draws)
        state = super().state_dict()
        if self._started and any(self._since):
            state["since"] = {name: told for name, told in zip(self._names, self._since, strict=True) if told}
        return state

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place; the running block stays as it was, whatever the weights are now."""
        super().load_state_dict(state)
        self._started = "counts" in state
        self._counts = self._by_leaf(state["counts"]) if state.get("counts") else None
        self._owed = self._by_leaf(state.get("owed", {}))
        self._since = self._by_leaf(state.get("since", {})).tolist()
        self._told = None
        if "told_tokens" in state:
            draws: Mapping[str, int] = state["told_draws"] if "told_draws" in state else state["cursors"]
            self._told = self._by_leaf(draws), self._by_leaf(state["told_tokens"])

    def carried(self) -> State:
        """What of the state, cursors aside, a stream under other weights goes on with: the lengths."""
        if not self._plan.counts_tokens:
            return super().carried()
        draws, tokens = self._told_with(self._drawn_of_block())
        return super().carried() | {"told_draws": self._by_name(draws), "told_tokens": self._by_name(tokens)}

    def _next_block(self) -> None:
        cursors = self._leaves.drawn
        if self._counts is not None:
            self._settle(self._counts)
        self._go_to(cursors=cursors, base=np.zeros_like(cursors), index=0)

    def _settle(self, counts: Int64) -> None:
        """A block has ended: what was drawn is taken off what was owed."""
        used = self._used(counts)
        whole = fsum(used.tolist())
        owed = np.rint(self._owed_before + (self._shares * whole - used) * self._scale)
        self._owed = np.zeros_like(self._owed)
        self._owed[self._blended] = owed.astype(np.int64)
        if self._plan.counts_tokens:
            self._told = self._told_with(counts)
        self._since, self._counts = [0] * len(self._since), None

    def _used(self, counts: Int64) -> Float64:
        """What each leaf that is blended had of the block.

        Of one whose length was not known, what it was taken for: a first guess would else be paid back over
        thousands of draws.
        """
        drawn = counts[self._blended].astype(np.float64)
        if not self._of_tokens:
            return drawn
        since = np.array(self._since, dtype=np.float64)[self._blended]
        return np.where(self._known, since, drawn * self._block_means)

    def _told_with(self, drawn: Int64) -> tuple[Int64, Int64]:
        since = np.array(self._since, dtype=np.int64)
        return (drawn, since) if self._told is None else (self._told[0] + drawn, self._told[1] + since)

    def _draw_block(self) -> list[SampleKey]:
        self._take_weights()
        counts = self._block_counts() if self._counts is None else self._counts[self._blended]
        counts = self._up_to_ends(counts)
        self._counts = np.zeros_like(self._owed)
        self._counts[self._blended] = counts
        self._started = True
        self._block_state = {}
        return self._keys_of(counts)

    def _take_weights(self) -> None:
        """Shares of this block, and what is owed when it begins, of the leaves that are blended."""
        plan, blended = self._plan, self._blended
        if not np.array_equal(self._weighed, blended):
            self._weighed, self._weights_at = blended, WeightsAt([plan.leaves[i] for i in blended.tolist()])
        drawn = self._cursors if plan.schedule_in == "samples" else self._told[1] if self._told else self._cursors[:0]
        weights = self._weights_at.at(int(drawn.sum()) * self._lane.count)
        total = fsum(weights)
        self._shares = np.array(weights) / total if total else np.full(len(weights), 1 / len(weights))
        self._block_means = self._means()
        if not self._started:
            self._owed = np.zeros_like(self._owed)
            self._owed[blended] = self._start_owed(weights)
        owed = self._owed[blended]
        gone = int(self._owed.sum() - owed.sum())
        self._owed_before = owed + gone * self._shares

    def _start_owed(self, weights: Sequence[float]) -> Int64:
        """What leaves are owed at a lane's start: its clock does not start at nought, see `Blend`."""
        known = [max(weight, 1e-9) for weight in weights]
        fractions = np.array(Blend(known, lane=self._lane.index, seed=self._plan.seed).start_owed())
        return np.rint(fractions * self._block_means * self._scale).astype(np.int64)

    def _block_counts(self) -> Int64:
        draws = min(BLOCK_DRAWS, max(FIRST_BLOCK_DRAWS, int(self._cursors.sum()))) if self._of_tokens else BLOCK_DRAWS
        owed = self._owed_before / self._scale
        return block_counts(draws, shares=self._shares, means=self._block_means, owed=owed)

    def _means(self) -> Float64:
        """Mean length of the samples of the leaves that are blended, in tokens; 1 where samples are counted.

        Of a leaf of which nothing is known, it is the mean of the others.
        """
        blended = self._blended
        if not self._of_tokens:
            return np.ones(len(blended))
        weight = self._prior_draws[blended]
        tokens, draws = weight * self._priors[blended], weight
        if self._told is not None:
            tokens, draws = self._told[1][blended] + tokens, self._told[0][blended] + draws
        self._known = draws > 0
        means = np.maximum(1.0, np.divide(tokens, draws, out=np.ones(len(blended)), where=self._known))
        known = means[self._known].tolist()
        return np.where(self._known, means, fsum(known) / len(known) if known else 1.0)
