"""What keeps Energon from getting the same samples out of a data set."""

from __future__ import annotations

from collections.abc import Mapping

from omniloom.data.shards.keys import KeyRule

# By the name of the count: what is told of it. Each is a thing that Energon's reader, which goes by the spans of
# .tar.idx and its own key rule, takes for something else or refuses.
_BY_COUNT = {
    "interleaved": "samples have parts that are not neighbours in the archive",
    "hard_links": "parts are hard links, which Energon leaves out",
    "dropped_duplicates": "parts with a name that came twice were left out, which Energon reads",
    "junk_members": "files that an operating system left in the archives (such as ._a.jpg) are parts to Energon",
    "global_names": "shards set names or sizes by PAX global headers, which a single sample does not show",
}


def energon_obstacles(counts: Mapping[str, int], *, rule: KeyRule, repeated_keys: int) -> list[str]:
    """Sentences that say why Energon does not read a set as omniloom does; empty when it does.

    Args:
        counts: sums over all shards, by name of the field of `ShardScan`.
        rule: how names were split.
        repeated_keys: samples with a key that an earlier shard has.
    """
    found = [f"{counts[name]:,} {what}" for name, what in _BY_COUNT.items() if counts.get(name)]
    if rule != "first-dot":
        found.append(f"samples are keyed by the rule {rule}; Energon only knows first-dot")
    if repeated_keys:
        found.append(f"{repeated_keys:,} samples have a key of an earlier shard; Energon finds only one by key")
    return found
