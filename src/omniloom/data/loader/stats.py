"""What a loader did: counts by data set and reason, seconds waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from omniloom.data.loader.runner import Produced
from omniloom.data.pipeline.desk import LeafTally


@dataclass(slots=True)
class LoaderStats:
    """Counts since the loader was made.

    Attributes:
        batches: batches handed to the caller.
        seconds_waited: time that the caller waited for them.
        leaves: counts by position of the leaf in the mix; samples of batches that were handed over.
        remade: the same of what was read again only to get back to a saved place.
    """

    batches: int = 0
    seconds_waited: float = 0.0
    leaves: dict[int, LeafTally] = field(default_factory=dict)
    remade: dict[int, LeafTally] = field(default_factory=dict)

    def add(self, produced: Produced) -> None:
        """Add the counts of what a lane gave."""
        for total, part in ((self.leaves, produced.tally), (self.remade, produced.remade)):
            for dataset, tally in part.items():
                total.setdefault(dataset, LeafTally()).add(tally)

    def to_plain(self, leaf_names: Sequence[str]) -> dict[str, Any]:
        """The counts as plain values, by leaf name."""
        datasets = {}
        for dataset in sorted(self.leaves.keys() | self.remade.keys()):
            tally, again = (counts.get(dataset, LeafTally()) for counts in (self.leaves, self.remade))
            datasets[leaf_names[dataset]] = {
                "read": tally.read,
                "read_bytes": tally.read_bytes,
                "yielded": tally.yielded,
                "skipped": dict(tally.skipped),
                **({"store": dict(tally.store)} if tally.store else {}),
                "read_again": again.read,
                "read_again_bytes": again.read_bytes,
                **({"skipped_again": dict(again.skipped)} if again.skipped else {}),
            }
        return {"batches": self.batches, "seconds_waited": self.seconds_waited, "datasets": datasets}
