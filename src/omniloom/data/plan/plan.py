"""The plan: which sample comes next. It handles integers and never opens a file.

`Plan` is a frozen description; `Plan.open` gives the stream of one lane. The state of a lane is how many
rows each leaf had given when the running block of draws began, and how far it is into that block.
Everything else is worked out again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal

from omniloom.data.plan.lane import Lane
from omniloom.data.plan.moving import MovingStream
from omniloom.data.plan.order import LeafOrder, Shuffle
from omniloom.data.plan.permute import derive_key
from omniloom.data.plan.stream import PlanStream
from omniloom.data.plan.weights import MOST_WEIGHT, Share
from omniloom.errors import ConfigError

Unit = Literal["samples", "tokens"]


@dataclass(frozen=True)
class Leaf:
    """A data set as the plan sees it.

    Attributes:
        name: stable name in the mix; seeds and saved cursors go by it.
        rows: how many rows it has.
        weight: its weight in the blend; only ratios matter.
        passes: how often it is gone through before it ends, also in part; ``None`` for ever.
        shuffle: how strongly its rows are mixed; ``None``: as the plan says.
        shares: shares that change along the run, of each way that leads to it; the sum of the products of each way is
            multiplied into the weight.
        mean_tokens: what is known beforehand of the mean length of its samples.
        part: which rows of its data set they are, as text: a state does not fit other rows of the same number.
    """

    name: str
    rows: int
    weight: float = 1.0
    passes: int | Fraction | None = None
    shuffle: Shuffle | None = None
    shares: tuple[tuple[Share, ...], ...] = ()
    mean_tokens: float | None = None
    part: str = ""

    def weight_at(self, position: float, known: dict[int, float]) -> float:
        """Its weight when the job has drawn so many samples (or tokens); ``known`` as for `Share.at`."""
        if not self.shares:
            return self.weight
        total = 0.0
        for way in self.shares:
            weight = self.weight
            for share in way:
                weight *= share.at(position, known)
            total += weight
        return total


@dataclass(frozen=True)
class Plan:
    """A blend of leaves, dealt to lanes and shuffled.

    Attributes:
        leaves: the leaves, in the order of the mix. Leaves without rows are left out of the draw.
        shuffle: how strongly rows are mixed.
        seed: seed of the run.
        repeat: begin anew when all leaves have ended, lane by lane; a partial pass goes on where the last one stopped.
        weights_in: whether weights are shares of samples, or of tokens as the work reports them.
        schedule_in: what the positions of changing shares count, over the whole job.
    """

    leaves: tuple[Leaf, ...]
    shuffle: Shuffle = field(default_factory=Shuffle)
    seed: int = 0
    repeat: bool = False
    weights_in: Unit = "samples"
    schedule_in: Unit = "samples"

    def __post_init__(self) -> None:
        names = [leaf.name for leaf in self.leaves]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise ConfigError(f"leaves need names of their own; used twice: {', '.join(twice)}")
        for leaf in self.leaves:
            if not 0 <= leaf.weight <= MOST_WEIGHT:
                raise ConfigError(
                    f"leaf {leaf.name!r}: weight {leaf.weight} found, a number from 0 to {MOST_WEIGHT:g} expected"
                )

    @property
    def drawn_from(self) -> list[int]:
        """Positions of the leaves that can give rows at all."""
        return [i for i, leaf in enumerate(self.leaves) if leaf.rows > 0 and leaf.weight > 0 and leaf.passes != 0]

    @property
    def all_end(self) -> bool:
        """Whether every leaf ends."""
        return all(self.leaves[i].passes is not None for i in self.drawn_from)

    @property
    def repeats(self) -> bool:
        """Whether it begins anew when all leaves have ended."""
        return self.repeat and self.all_end

    @property
    def endless(self) -> bool:
        """Whether it never ends."""
        return bool(self.drawn_from) and (self.repeat or not self.all_end)

    @property
    def moves(self) -> bool:
        """Whether weights change along the run, by schedule or with the lengths of samples."""
        return self.weights_in == "tokens" or any(leaf.shares for leaf in self.leaves)

    @cached_property
    def weights_mark(self) -> str:
        """``fixed``, or what tells apart the ways in which weights change."""
        if not self.moves:
            return "fixed"
        moving = sorted((leaf.name, repr(leaf.shares), str(leaf.mean_tokens)) for leaf in self.leaves)
        return f"{self.weights_in}, {self.schedule_in}, {derive_key(repr(moving)):016x}"

    @property
    def counts_tokens(self) -> bool:
        """Whether the work has to report the length of each sample."""
        return "tokens" in (self.weights_in, self.schedule_in) and self.moves

    @property
    def epoch_rows(self) -> int:
        """Rows of all leaves together, each as often as it is gone through in an epoch of the mix."""
        return sum(int(leaf.rows * (1 if leaf.passes is None else leaf.passes)) for leaf in self.leaves)

    def open(self, lane: Lane) -> PlanStream:
        """The stream of sample keys of one lane."""
        return MovingStream(self, lane) if self.moves else PlanStream(self, lane)

    def shuffle_of(self, index: int) -> Shuffle:
        """How strongly the rows of a leaf are mixed. One that ends is dealt so that its end comes between deals."""
        leaf = self.leaves[index]
        shuffle = self.shuffle if leaf.shuffle is None else leaf.shuffle
        if leaf.passes is None:
            return shuffle
        together = shuffle.epochs_together if leaf.passes % shuffle.epochs_together == 0 else 1
        return replace(shuffle, epochs_together=together, with_replacement=False)

    def order(self, index: int, lanes: int) -> LeafOrder:
        """The order of one leaf. A leaf that ends is dealt pass by pass, each row once a pass."""
        leaf = self.leaves[index]
        return LeafOrder(leaf.name, rows=leaf.rows, lanes=lanes, seed=self.seed, shuffle=self.shuffle_of(index))

    def lane_rows(self, lane: Lane) -> int | None:
        """Rows that a lane draws in one lap; ``None`` when it has no end."""
        if self.endless:
            return None
        start = self.start_cursors(lane)
        return sum((self.rows_until_end(i, lane) or 0) for i in self.drawn_from) - sum(start.values())

    def rows_until_end(self, index: int, lane: Lane) -> int | None:
        """Rows that one leaf has given to a lane when its lap ends; ``None`` for ever.

        Where a lap ends within an epoch, each lane has had its share of that part of the epoch.
        """
        leaf = self.leaves[index]
        if leaf.passes is None:
            return None
        deal = self.order(index, lane.count).deal
        epochs, rest = divmod(int(leaf.rows * leaf.passes * (lane.lap + 1)), deal.rows)
        return deal.dealt(lane.index, epochs) + deal.dealt_within(lane.index, epochs, rest)

    def start_cursors(self, lane: Lane) -> dict[str, int]:
        """Rows that the leaves that end had given to a lane in the laps before this one."""
        if not lane.lap:
            return {}
        laps_before = replace(lane, lap=lane.lap - 1)
        return {
            self.leaves[i].name: rows for i in self.drawn_from if (rows := self.rows_until_end(i, laps_before) or 0)
        }
