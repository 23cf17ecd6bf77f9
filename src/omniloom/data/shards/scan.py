"""One pass over a shard's headers: its samples, their parts and positions, and all that was out of the ordinary."""

from __future__ import annotations

import hashlib
import os
import posixpath
from array import array
from dataclasses import dataclass, field
from typing import Literal

from omniloom.data.shards.archive_file import Archive, open_archive
from omniloom.data.shards.header import BLOCK_BYTES
from omniloom.data.shards.keys import KeyRule, ignored_reason, may_be_ignored, split_key
from omniloom.data.shards.tar import Member, TarWalk
from omniloom.errors import ShardError

DuplicatePolicy = Literal["error", "first", "last"]

WHOLE_SHARD_ROWS = 64
SAMPLED_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardScan:
    """What one pass over a shard's headers found; columns, so that it pickles small and fast.

    Attributes:
        shard: name of the shard.
        size_bytes: size of the file.
        rule: how names were split.
        keys: key of each sample, in order of its first part.
        offsets: n + 1 bytes: first header of each sample, then the end of the last member. For a regular shard the
            content of Energon's ``.tar.idx``.
        part_rows: sample of each part; sorted, in archive order within a sample.
        part_names: name of each part.
        part_headers: first header byte of each part.
        part_starts: first payload byte of each part.
        part_stops: byte after each payload.
        ignored: members that belong to no sample, counted by reason.
        junk_members: of those, the ones that Energon's rule makes parts of samples; its reader fails on our index
            when such a member lies between the parts of a sample.
        interleaved: samples whose parts were not neighbours.
        hard_links: parts that are hard links, resolved to the bytes of their targets.
        dropped_duplicates: parts left out by the duplicate policy.
        dotted_keys: members whose part name has a dot, as ``05.png``; perhaps meant for the rule ``last-dot``.
        dotted_names: the first two of their names.
        empty_members: parts of zero bytes.
        has_end_marker: two zero blocks end the archive.
        trailing_bytes: bytes after the end marker from the first that is not zero.
        global_names: PAX global headers set names or sizes, so that no sample can be read on its own.
        fingerprint: see `fingerprint`.
    """

    shard: str
    size_bytes: int
    rule: KeyRule
    keys: list[str]
    offsets: array[int]
    part_rows: array[int]
    part_names: list[str]
    part_headers: array[int]
    part_starts: array[int]
    part_stops: array[int]
    ignored: dict[str, int]
    junk_members: int
    interleaved: int
    hard_links: int
    dropped_duplicates: int
    dotted_keys: int
    dotted_names: tuple[str, ...]
    empty_members: int
    has_end_marker: bool
    trailing_bytes: int
    global_names: bool
    fingerprint: str

    @property
    def irregular(self) -> bool:
        """Whether going by the spans of ``.tar.idx`` alone would not give these samples to every reader."""
        return (
            self.rule != "first-dot"
            or self.interleaved > 0
            or self.hard_links > 0
            or self.dropped_duplicates > 0
            or self.global_names
        )


def scan_shard(
    path: str | os.PathLike[str],
    *,
    shard: str,
    rule: KeyRule = "first-dot",
    on_duplicate: DuplicatePolicy = "error",
    case_preserving: bool = False,
    expected_samples: int | None = None,
    archive: Archive | None = None,
) -> ShardScan:
    """Index one shard: group its members to samples, wherever in the archive their parts lie.

    Args:
        path: the archive, by path or URL.
        shard: its name in messages, relative to the data set.
        rule: how a name is split into key and part.
        on_duplicate: what to do when a sample has two parts of one name: refuse, or keep the first or last.
        case_preserving: take ``JPG`` and ``jpg`` for two parts instead of a duplicate.
        expected_samples: how many samples a manifest promises, where there is one.
        archive: the same archive, where it is open already; it stays open.

    Raises:
        ShardError: a reason of `walk_tar`; ``link`` for a symbolic link, or a hard link without its target;
            ``duplicate``; ``sample-count`` when there are fewer or more samples than expected.
        StorageError: the file cannot be read.
    """
    opened = archive or open_archive(os.fspath(path), shard=shard)
    try:
        collected = _Collected(TarWalk(path, shard=shard, archive=opened), rule)
        return _scan(collected, opened, on_duplicate, case_preserving, expected_samples)
    finally:
        if archive is None:
            opened.close()


def _scan(
    collected: _Collected,
    archive: Archive,
    on_duplicate: DuplicatePolicy,
    case_preserving: bool,
    expected_samples: int | None,
) -> ShardScan:
    walk, shard = collected.walk, collected.walk.shard
    collected.run()
    if collected.scattered:
        collected.sort_by_row()
    dropped = _settle_duplicates(collected, on_duplicate, case_preserving)
    if expected_samples is not None and expected_samples != len(collected.keys):
        raise ShardError(
            f"{shard}: the archive holds {len(collected.keys):,} samples, expected {expected_samples:,}. "
            "It was cut or changed; copy it again, or run `omniloom prepare` anew.",
            shard=shard,
            reason="sample-count",
            offset_bytes=walk.end,
        )
    offsets = collected.offsets
    offsets.append(walk.end)
    return ShardScan(
        shard=shard,
        size_bytes=walk.size_bytes,
        rule=collected.rule,
        keys=collected.keys,
        offsets=offsets,
        part_rows=collected.rows,
        part_names=collected.names,
        part_headers=collected.headers,
        part_starts=collected.starts,
        part_stops=collected.stops,
        ignored=collected.ignored,
        junk_members=collected.junk_members,
        interleaved=len(collected.scattered),
        hard_links=collected.hard_links,
        dropped_duplicates=dropped,
        dotted_keys=collected.dotted,
        dotted_names=tuple(collected.dotted_names),
        empty_members=sum(map(int.__eq__, collected.starts, collected.stops)),
        has_end_marker=walk.has_end_marker,
        trailing_bytes=walk.trailing_bytes,
        global_names=walk.globals.changes_members,
        fingerprint=fingerprint_of(archive, offsets),
    )


@dataclass(slots=True)
class _Collected:
    """The columns of a scan while they grow."""

    walk: TarWalk
    rule: KeyRule
    keys: list[str] = field(default_factory=list)
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    rows: array[int] = field(default_factory=lambda: array("I"))
    names: list[str] = field(default_factory=list)
    headers: array[int] = field(default_factory=lambda: array("Q"))
    starts: array[int] = field(default_factory=lambda: array("Q"))
    stops: array[int] = field(default_factory=lambda: array("Q"))
    ignored: dict[str, int] = field(default_factory=dict)
    scattered: set[int] = field(default_factory=set)
    junk_members: int = 0
    hard_links: int = 0
    dotted: int = 0
    dotted_names: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Go through the archive once."""
        rule, keys = self.rule, self.keys
        add_row, add_name = self.rows.append, self.names.append
        add_header, add_start, add_stop = self.headers.append, self.starts.append, self.stops.append
        row_of: dict[str, int] = {}
        shared_names: dict[str, str] = {}
        links = _LinkTargets(self.walk)
        last_key, row = None, -1
        for member in self.walk:
            name, kind, header_start, start, stop, _ = member
            split = split_key(name, rule)
            if split is None or kind != "file" or may_be_ignored(name):
                reason = _reason_of(member, rule)
                if reason is None and kind != "file":
                    start, stop = links.resolve(member)
                    self.hard_links += 1
            else:
                reason = None
            if links.names is not None and kind == "file":
                links.names[name] = (start, stop)
            if split is None or reason is not None:
                self._ignore(name, reason or "no-key")
                continue
            key, part = split
            if key != last_key:
                last_key = key
                row = row_of.setdefault(key, len(keys))
                if row == len(keys):
                    keys.append(key)
                    self.offsets.append(header_start)
                else:
                    self.scattered.add(row)
            if "." in part:
                self._note_dots(name)
            add_row(row)
            add_name(shared_names.setdefault(part, part))
            add_header(header_start)
            add_start(start)
            add_stop(stop)

    def _note_dots(self, name: str) -> None:
        self.dotted += 1
        if len(self.dotted_names) < 2:
            self.dotted_names.append(name)

    def _ignore(self, name: str, reason: str) -> None:
        self.ignored[reason] = self.ignored.get(reason, 0) + 1
        if reason in ("apple-double", "ds-store", "macosx") and split_key(name) is not None:
            self.junk_members += 1

    def sort_by_row(self) -> None:
        """Bring the parts of each sample together, in archive order within it."""
        self.keep(sorted(range(len(self.rows)), key=self.rows.__getitem__))

    def keep(self, order: list[int]) -> None:
        """Keep these parts, in this order."""
        self.names = [self.names[at] for at in order]
        self.rows = array("I", [self.rows[at] for at in order])
        self.headers = array("Q", [self.headers[at] for at in order])
        self.starts = array("Q", [self.starts[at] for at in order])
        self.stops = array("Q", [self.stops[at] for at in order])


def _reason_of(member: Member, rule: KeyRule) -> str | None:
    """Why a member is left out, judged by its kind and then by its name."""
    if member.kind in ("directory", "other"):
        return member.kind
    return ignored_reason(member.name, rule)


class _LinkTargets:
    """Where the bytes of hard links' targets lie. Costs nothing until the first link is met."""

    def __init__(self, walk: TarWalk) -> None:
        self._walk = walk
        self.names: dict[str, tuple[int, int]] | None = None

    def resolve(self, link: Member) -> tuple[int, int]:
        """Payload of the member that a hard link stands for.

        Raises:
            ShardError: ``link``: it is a symbolic link, or no file of that name came before it.
        """
        shard = self._walk.shard
        if link.kind == "symbolic-link":
            raise ShardError(
                f"{shard}: member {link.name!r} at byte {link.header_start:,} is a symbolic link to "
                f"{link.link_name!r}; a shard has to hold the bytes themselves. Write it with `tar --dereference`.",
                shard=shard,
                reason="link",
                offset_bytes=link.header_start,
            )
        if self.names is None:
            self.names = {}
            for member in TarWalk(self._walk.path, shard=shard):
                if member.header_start >= link.header_start:
                    break
                if member.kind == "file":
                    self.names[member.name] = (member.start, member.stop)
        target = self.names.get(link.link_name)
        if target is None:
            wanted = posixpath.normpath(link.link_name)
            target = next((at for name, at in self.names.items() if posixpath.normpath(name) == wanted), None)
        if target is None:
            raise ShardError(
                f"{shard}: member {link.name!r} at byte {link.header_start:,} is a hard link to {link.link_name!r}, "
                "but no file of that name comes before it. Write the archive with `tar --hard-dereference`.",
                shard=shard,
                reason="link",
                offset_bytes=link.header_start,
            )
        self.names[link.name] = target
        return target


def _settle_duplicates(collected: _Collected, policy: DuplicatePolicy, case_preserving: bool) -> int:
    """Apply the duplicate policy; returns how many parts were left out."""
    rows, names = collected.rows, collected.names
    count = len(rows)
    if count == len(collected.keys):
        return 0
    sound: set[tuple[str, ...]] = set()
    losers: set[int] = set()
    begin = 0
    while begin < count:
        end = begin + 1
        while end < count and rows[end] == rows[begin]:
            end += 1
        group = tuple(names[begin:end])
        if group not in sound:
            pairs = _duplicate_pairs(group, case_preserving)
            if not pairs:
                sound.add(group)
            elif policy == "error":
                raise _duplicate_error(collected, begin, pairs[0])
            losers.update(begin + pair[1 if policy == "first" else 0] for pair in pairs)
        begin = end
    if losers:
        collected.keep([at for at in range(count) if at not in losers])
    return len(losers)


def _duplicate_pairs(group: tuple[str, ...], case_preserving: bool) -> list[tuple[int, int]]:
    """Positions of an earlier and a later part of one name; for a third, the pair is second and third."""
    seen: dict[str, int] = {}
    pairs = []
    for at, name in enumerate(group):
        folded = name if case_preserving else name.lower()
        if folded in seen:
            pairs.append((seen[folded], at))
        seen[folded] = at
    return pairs


def _duplicate_error(collected: _Collected, begin: int, pair: tuple[int, int]) -> ShardError:
    first, second = begin + pair[0], begin + pair[1]
    one, other = collected.names[first], collected.names[second]
    parts = f"called {one!r}" if one == other else f"that differ only in case, {one!r} and {other!r}"
    shard = collected.walk.shard
    return ShardError(
        f"{shard}: sample {collected.keys[collected.rows[begin]]!r} has two parts {parts}, at bytes "
        f"{collected.headers[first]:,} and {collected.headers[second]:,}. Rename one, as `omniloom "
        "prepare --fix-duplicates` does, or choose which to keep: on_duplicate='first' or 'last'.",
        shard=shard,
        reason="duplicate",
        offset_bytes=collected.headers[second],
    )


def fingerprint_rows(samples: int) -> list[int]:
    """The rows a fingerprint looks at: all of a small shard, else evenly spaced ones with first and last."""
    if samples <= WHOLE_SHARD_ROWS:
        return list(range(samples))
    return [at * (samples - 1) // (SAMPLED_ROWS - 1) for at in range(SAMPLED_ROWS)]


def fingerprint(path: str | os.PathLike[str], offsets: array[int], *, shard: str) -> str:
    """A cheap mark of a shard's content: a digest of its size and of header blocks at sampled rows.

    Tells a shard that was written again after it was indexed, also with the same size and its samples in another
    order, as long as a sampled row moved. Reads 512 bytes per sampled row.

    Args:
        path: the archive.
        offsets: n + 1 bytes where the samples' headers begin and the last one ends.
        shard: name of the shard, for messages.

    Returns:
        32 hexadecimal digits.
    """
    archive = open_archive(os.fspath(path), shard=shard)
    try:
        return fingerprint_of(archive, offsets)
    finally:
        archive.close()


def fingerprint_of(archive: Archive, offsets: array[int]) -> str:
    """`fingerprint` of an archive that is already open."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(archive.mark().size_bytes.to_bytes(8, "little"))
    starts = [offsets[row] for row in fingerprint_rows(len(offsets) - 1)]
    for block in archive.read_many([*starts, offsets[-1]], BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest()
