"""What becomes of names: which ones were perhaps meant otherwise, and how one name is read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from omniloom.data.index.field_map import FieldOption, part_names
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.shards.keys import IGNORED_REASONS, KEY_RULES, KeyRule, ignored_reason, split_key
from omniloom.data.shards.scan import ShardScan

EXTRA_PART = "extra.json"
"""Where converters keep what a row holds beside images and texts."""


def doubtful_names(scan: ShardScan, fields: Mapping[str, tuple[FieldOption, ...]]) -> list[str]:
    """Names with more than one dot whose samples were perhaps meant to be several, in the order of the shard.

    ``22.05.png`` and ``22.06.png`` become one sample ``22``, which is seldom meant. Meant are parts that a field map
    names or other samples have too (``seg.png``), where they do not begin with a number, and images that are numbered
    from 0 within their sample (``0.jpg``, ``1.jpg``), as converters write them.
    """
    if not scan.dotted_keys:
        return []
    named = part_names(fields) | {EXTRA_PART}
    samples_with = Counter(part for part in scan.part_names if "." in part)
    numbers: dict[int, set[str]] = defaultdict(set)
    for row, part in zip(scan.part_rows, scan.part_names, strict=True):
        if "." in part:
            numbers[row].add(part.partition(".")[0])
    doubtful = []
    for row, part in zip(scan.part_rows, scan.part_names, strict=True):
        first, dot, _ = part.partition(".")
        if not dot:
            continue
        if first.isdecimal():
            meant = str(int(first)) == first and _is_counted(numbers[row])
        else:
            meant = part in named or samples_with[part] > 1
        if meant:
            continue
        doubtful.append(f"{scan.keys[row]}.{part}")
    return doubtful


def _is_counted(names: set[str]) -> bool:
    """Whether the numbers among these names are 0, 1, 2 and so on."""
    found = {name for name in names if name.isdecimal()}
    return found == {str(number) for number in range(len(found))}


class NameReading(NamedTuple):
    """How a rule reads a member's name.

    Attributes:
        rule: the rule.
        key: key of the sample; ``None`` where the member belongs to none.
        part: name of the part.
        ignored: why it belongs to none.
        becomes: what the decoder makes of the part.
    """

    rule: KeyRule
    key: str | None
    part: str | None
    ignored: str
    becomes: str


def explain_name(name: str, *, decoder: SampleDecoder) -> list[NameReading]:
    """How each rule reads a member's name, and what a decoder makes of the part."""
    return [_reading(name, rule, decoder) for rule in KEY_RULES]


def _reading(name: str, rule: KeyRule, decoder: SampleDecoder) -> NameReading:
    reason = ignored_reason(name, rule)
    split = split_key(name, rule)
    if reason is not None or split is None:
        return NameReading(rule, None, None, IGNORED_REASONS[reason or "no-key"], "")
    key, part = split
    return NameReading(rule, key, part, "", decoder.describe(part))
