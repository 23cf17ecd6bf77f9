"""Blending with weights that change: by a schedule, or because they are shares of tokens and not of samples.

What changes does so only where a block of draws begins. Each leaf is owed its share of what was drawn, in samples or in
tokens; what it is still owed is carried from block to block, so that no share is lost to rounding or to samples that
are longer than the mean. With shares of tokens, how many draws make them up follows from the mean length of each leaf
so far, which the work reports and the state keeps: the plan opens no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from omniloom.data.plan.blend import BLOCK_DRAWS, Blend
from omniloom.data.plan.lane import Lane
from omniloom.data.plan.stream import LeafStream, PlanStream, State
from omniloom.data.sample import SampleKey

if TYPE_CHECKING:
    from omniloom.data.plan.plan import Plan

FIRST_BLOCK_DRAWS = 8
"""Draws in the first block of a lane that counts tokens; each next one is as long as all before it together."""

OWED_SCALE = {"samples": 1_024, "tokens": 1}
"""What is owed is kept in whole numbers of so small a part of a sample or token."""

_TOLD = ("told_draws", "told_tokens")

LEAST_SHARE = 1e-12
"""Below this a share is none."""

PRIOR_DRAWS = 64
"""Draws that a mean length which is given beforehand counts for."""


def block_counts(draws: int, *, shares: Sequence[float], means: Sequence[float], owed: Sequence[float]) -> list[int]:
    """How many draws of a block come from each leaf.

    Args:
        draws: draws in the block.
        shares: the leaves' shares, with the sum 1.
        means: mean length of their samples; 1 where samples are counted.
        owed: what each leaf is owed, in the same unit.

    Returns:
        counts with the sum ``draws``; a leaf that had too much gets none.
    """
    alive = [i for i, share in enumerate(shares) if share > LEAST_SHARE]
    wanted = [0.0] * len(shares)
    while True:
        # The block's length in units, so that shares and debts come to just so many draws.
        per_unit = sum(shares[i] / means[i] for i in alive)
        units = (draws - sum(owed[i] / means[i] for i in alive)) / per_unit
        wanted = [0.0] * len(shares)
        for i in alive:
            wanted[i] = (shares[i] * units + owed[i]) / means[i]
        overdrawn = [i for i in alive if wanted[i] < 0]
        if not overdrawn:
            break
        alive = [i for i in alive if wanted[i] >= 0]
    counts = [int(number) for number in wanted]
    missing = draws - sum(counts)
    by_deadline = sorted(alive, key=lambda i: ((1 - wanted[i] + counts[i]) * means[i] / shares[i], i))
    for turn in range(missing):  # fewer than leaves, but for the rounding of floating point
        counts[by_deadline[turn % len(by_deadline)]] += 1
    return counts


class MovingStream(PlanStream):
    """The sample keys of one lane, under weights that change where a block begins."""

    def __init__(self, plan: Plan, lane: Lane) -> None:
        self._started = False
        self._counts: Mapping[str, int] = {}
        self._owed: Mapping[str, float] = {}
        self._since: dict[str, int] = {}
        self._told: dict[str, Mapping[str, int]] = {}
        self._scale = OWED_SCALE[plan.weights_in]
        super().__init__(plan, lane)

    def tell(self, dataset: int, tokens: int) -> None:
        """Report the length of a sample that was made of the running block, for the blocks after it."""
        name = self._plan.leaves[dataset].name
        self._since[name] = self._since.get(name, 0) + tokens

    def state_dict(self) -> State:
        """As of any stream, and what the weights of this block and the next ones hang on.

        ``counts``: draws of the block by leaf; ``owed``: what leaves were owed when it began; ``told_tokens``: lengths
        of all draws up to then; ``told_draws``: how many these were, where not ``cursors``; ``since``: lengths of draws
        of the block.
        """
        state = super().state_dict()
        if not self._started:
            return state
        state |= {"counts": self._counts, "owed": self._owed}
        if self._since:
            state["since"] = dict(self._since)
        if self._told:
            state["told_tokens"] = self._told["told_tokens"]
            if self._told["told_draws"] != self._cursors:
                state["told_draws"] = self._told["told_draws"]
        return state

    def load_state_dict(self, state: State) -> None:
        """Go to a saved place; the running block stays as it was, whatever the weights are now."""
        super().load_state_dict(state)
        self._started = "counts" in state
        self._counts = state.get("counts", {})
        self._owed = state.get("owed", {})
        self._since = dict(state.get("since", {}))
        self._told = {}
        if "told_tokens" in state:
            draws: Mapping[str, int] = state["told_draws"] if "told_draws" in state else state["cursors"]
            self._told = {"told_draws": draws, "told_tokens": state["told_tokens"]}

    def carried(self) -> State:
        """What of the state, cursors aside, a stream under other weights goes on with: the lengths."""
        if not self._plan.counts_tokens:
            return super().carried()
        cursors = self.cursors()
        drawn = {name: rows - self._cursors.get(name, 0) for name, rows in cursors.items()}
        return super().carried() | self._told_with(drawn)

    def _next_block(self) -> None:
        cursors = self._cursors_after_block()
        if self._counts:
            self._settle()
        self._go_to(cursors=cursors, base={}, index=0)

    def _settle(self) -> None:
        """A block has ended: what was drawn is taken off what was owed."""
        used = self._used()
        whole = sum(used.values())
        self._owed = {
            name: round(owed + (self._shares[name] * whole - used.get(name, 0)) * self._scale)
            for name, owed in self._owed_before.items()
        }
        if self._plan.counts_tokens:
            self._told = self._told_with(self._counts)
        self._since, self._counts = {}, {}

    def _used(self) -> dict[str, float]:
        """What each leaf had of the block.

        Of one whose length was not known, what it was taken for: a first guess would else be paid back over
        thousands of draws.
        """
        if self._plan.weights_in != "tokens":
            return dict(self._counts)
        known = self._known_means(list(self._shares))
        return {
            name: self._since.get(name, 0) if name in known else count * self._block_means[name]
            for name, count in self._counts.items()
        }

    def _told_with(self, drawn: Mapping[str, int]) -> dict[str, Mapping[str, int]]:
        more = (drawn, self._since)
        return {name: _added(self._told.get(name, {}), new) for name, new in zip(_TOLD, more, strict=True)}

    def _draw_block(self) -> list[SampleKey]:
        leaves = self._plan.leaves
        names = [leaves[i].name for i in self._blended]
        self._take_weights(names)
        streams = [self._leaves[i] for i in self._blended]
        counts = [self._counts.get(name, 0) for name in names] if self._counts else self._block_counts(streams)
        counts = [stream.left(count) for stream, count in zip(streams, counts, strict=True)]
        self._counts = {name: count for name, count in zip(names, counts, strict=True) if count}
        self._started = True
        return self._keys_of(counts)

    def _take_weights(self, names: Sequence[str]) -> None:
        """Shares of this block, and what is owed when it begins."""
        plan = self._plan
        if plan.schedule_in == "tokens":
            position = sum(self._told.get("told_tokens", {}).values()) * self._lane.count
        else:
            position = sum(self._cursors.values()) * self._lane.count
        known: dict[int, float] = {}
        weights = [plan.leaves[i].weight_at(position, known) for i in self._blended]
        total = sum(weights)
        shares = [weight / total if total else 1 / len(names) for weight in weights]
        self._shares = dict(zip(names, shares, strict=True))
        self._block_means = dict(zip(names, self._means(names), strict=True))
        if not self._started:
            self._owed = self._start_owed(names, weights)
        owed = self._owed
        gone = sum(debt for name, debt in owed.items() if name not in self._shares)
        self._owed_before = {name: owed.get(name, 0) + gone * self._shares[name] for name in names}

    def _start_owed(self, names: Sequence[str], weights: Sequence[float]) -> dict[str, float]:
        """What leaves are owed at a lane's start: its clock does not start at nought, see `Blend`."""
        known = [max(weight, 1e-9) for weight in weights]
        fractions = Blend(known, lane=self._lane.index, seed=self._plan.seed).start_owed()
        return {
            name: round(fraction * self._block_means[name] * self._scale)
            for name, fraction in zip(names, fractions, strict=True)
        }

    def _block_counts(self, streams: Sequence[LeafStream]) -> list[int]:
        names = list(self._shares)
        drawn = sum(self._cursors.values())
        counts_tokens = self._plan.weights_in == "tokens"
        return block_counts(
            min(BLOCK_DRAWS, max(FIRST_BLOCK_DRAWS, drawn)) if counts_tokens else BLOCK_DRAWS,
            shares=list(self._shares.values()),
            means=[self._block_means[name] for name in names],
            owed=[self._owed_before[name] / self._scale for name in names],
        )

    def _means(self, names: Sequence[str]) -> list[float]:
        """Mean length of the samples of leaves, in tokens; 1 where samples are counted.

        Of a leaf that has not been drawn, it is what was said beforehand, or else the mean of the others.
        """
        if self._plan.weights_in != "tokens":
            return [1.0] * len(names)
        known = self._known_means(names)
        others = sum(known.values()) / len(known) if known else 1.0
        return [known.get(name, others) for name in names]

    def _known_means(self, names: Sequence[str]) -> dict[str, float]:
        """Mean length of the samples of those leaves of which anything is known."""
        priors = {leaf.name: leaf.mean_tokens for leaf in self._plan.leaves}
        draws, tokens = (self._told.get(name, {}) for name in _TOLD)
        known: dict[str, float] = {}
        for name in names:
            prior = priors[name]
            weight = PRIOR_DRAWS if prior else 0
            count = draws.get(name, 0) + weight
            if count:
                known[name] = max(1.0, (tokens.get(name, 0) + weight * (prior or 0.0)) / count)
        return known


def _added(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    total = dict(before)
    for name, count in more.items():
        total[name] = total.get(name, 0) + count
    return total
