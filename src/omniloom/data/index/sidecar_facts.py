"""What is known of a data set once its shards are scanned: sums over them, and a mark of each."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from omniloom._version import __version__
from omniloom.data.index.duplicates import DuplicateKeys
from omniloom.data.index.obstacles import energon_obstacles
from omniloom.data.index.omniloom_json import OmniloomInfo, ShardMark, encode_omniloom_info
from omniloom.data.index.scanning import ScanDone, ShardFault
from omniloom.data.shards.keys import KeyRule
from omniloom.data.shards.parts_table import ScanSummary

MAX_PART_NAMES = 1_000
_NAMES_KEPT = 20


@dataclass(slots=True)
class Totals:
    """Sums over the shards so far."""

    counts: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    parts: dict[str, int] = field(default_factory=dict)
    dotted_names: list[str] = field(default_factory=list)
    without_end_marker: list[str] = field(default_factory=list)

    def add(self, shard: str, summary: ScanSummary) -> None:
        """Take a shard in."""
        fields = summary.fields
        summed = ("junk_members", "interleaved", "hard_links", "dropped_duplicates", "dotted_keys", "empty_members")
        self.counts.update({name: fields[name] for name in summed})
        self.counts["global_names"] += bool(fields["global_names"])
        self.ignored.update(fields["ignored"])
        for name, count in summary.part_counts.items():
            if name in self.parts or len(self.parts) < MAX_PART_NAMES:
                self.parts[name] = self.parts.get(name, 0) + count
        self.dotted_names += fields["dotted_names"][: 2 - len(self.dotted_names)]
        if not fields["has_end_marker"] and len(self.without_end_marker) < _NAMES_KEPT:
            self.without_end_marker.append(shard)


def facts_of(
    totals: Totals,
    done: Sequence[ScanDone],
    *,
    empty: Sequence[str],
    faults: Sequence[ShardFault],
    rule: KeyRule,
    key_database: bool,
    duplicates: DuplicateKeys,
    in_store: bool,
) -> OmniloomInfo:
    """Content of ``omniloom.json``. The same shards give the same facts, whoever scanned them, and the same identity.

    Args:
        totals: the sums.
        done: the scans, in the order of the shards.
        empty: shards without samples.
        faults: shards that cannot be used.
        rule: how names were split.
        key_database: whether there is one.
        duplicates: keys that several shards have.
        in_store: whether the shards lie in a store, which tells when one changes.
    """
    obstacles = energon_obstacles(totals.counts, rule=rule, repeated_keys=duplicates.repeated)
    facts = OmniloomInfo(
        index_uuid="",
        omniloom_version=__version__,
        key_rule=rule,
        readable_by_energon=not obstacles,
        energon_obstacles=obstacles,
        key_database=key_database,
        samples=sum(one.summary.samples for one in done),
        repeated_keys=duplicates.repeated,
        part_counts=totals.parts,
        ignored=dict(totals.ignored),
        interleaved=totals.counts["interleaved"],
        hard_links=totals.counts["hard_links"],
        dropped_duplicates=totals.counts["dropped_duplicates"],
        dotted_keys=totals.counts["dotted_keys"],
        dotted_names=totals.dotted_names,
        empty_members=totals.counts["empty_members"],
        without_end_marker=totals.without_end_marker,
        empty_shards=list(empty),
        bad_shards={fault.shard: fault.reason for fault in faults},
        shards={one.shard: _mark(one.summary, in_store=in_store) for one in done},
    )
    digest = hashlib.sha256(encode_omniloom_info(facts).encode()).digest()
    return replace(facts, index_uuid=str(uuid.UUID(bytes=digest[:16], version=5)))


def _mark(summary: ScanSummary, *, in_store: bool) -> ShardMark:
    state = f"{summary.mtime_ns:x}" if in_store and summary.mtime_ns else ""
    return ShardMark(summary.fields["size_bytes"], summary.fields["fingerprint"], summary.irregular, state)


def duplicate_message(root: str, duplicates: DuplicateKeys, shards: Sequence[str]) -> str:
    """What is told of keys that several shards have."""
    first = duplicates.examples[0]
    places = " and ".join(f"{shards[number]} (row {row:,})" for number, row in first.places[:3])
    return (
        f"{root}: {duplicates.repeated:,} samples have a key that an earlier sample has; {first.key!r} is in {places}. "
        f"Make the keys unique: `omniloom prepare --fix-duplicates {root}` puts each shard's name before them."
    )
