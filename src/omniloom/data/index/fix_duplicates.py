"""Rewrites shards so that no key and no part comes twice.

When a key is in several shards, every file of a sample is put into a folder of its shard's name, as Energon does:
``a.jpg`` of ``x/s0.tar`` becomes ``x/s0.tar/a.jpg``. The second part ``jpg`` of a sample ``a`` becomes ``a.2.jpg``.
A shard is written anew under another name and then takes the old one's place; payloads are copied byte by byte.
"""

from __future__ import annotations

import functools
import os
import posixpath
from pathlib import Path
from typing import NamedTuple

from omniloom.data.index.duplicates import KeyedShard, find_duplicates
from omniloom.data.index.layout import PARTS_FOLDER, parts_path
from omniloom.data.index.parallel_work import in_order
from omniloom.data.index.scanning import ScanRequest, ShardFault, scan_one
from omniloom.data.index.sources import find_sources
from omniloom.data.index.work_folder import INDEX_FOLDER, open_work_folder
from omniloom.data.shards.archive_file import open_archive
from omniloom.data.shards.keys import KeyRule, ignored_reason, split_key
from omniloom.data.shards.parts_table import read_keys
from omniloom.data.shards.tar import walk_tar
from omniloom.data.shards.write import TarWriter
from omniloom.errors import BadShardsError, ConfigError, ShardError
from omniloom.storage.urls import is_url, redacted

FIX_FOLDER = "fix"


class RewriteRequest(NamedTuple):
    """A shard that is to be written anew.

    Attributes:
        shard: its name.
        path: the archive.
        prefix: what to put before the names of files that belong to samples.
        rule: how names are split into key and part.
    """

    shard: str
    path: str
    prefix: str
    rule: KeyRule


def fix_duplicates(
    root: str | os.PathLike[str], *, exclude: str | None = None, num_workers: int = 1, rule: KeyRule = "first-dot"
) -> list[str]:
    """Rename files inside the shards of a folder so that every key and part is there once.

    Needs room for as many new shards as are written at once. A run that was interrupted can be repeated: a shard whose
    keys begin with its name is left alone.

    Args:
        root: the folder.
        exclude: a regular expression; shards with a match in their names are left out.
        num_workers: processes at most.
        rule: how names are split into key and part.

    Returns:
        names of the shards that were written anew; none when there was nothing to fix.

    Raises:
        ConfigError: the folder lies in a store.
        BadShardsError: shards cannot be read; nothing was changed.
        StorageError: the disk is full. Shards that are done are whole, the others as they were.
    """
    root = os.fspath(root)
    if is_url(root):
        shown = redacted(root)
        raise ConfigError(
            f"{shown}: shards in a store are not written anew. Fetch them, run `omniloom prepare --fix-duplicates "
            f"FOLDER` and upload what it made; or leave them as they are and keep one part of each name with `omniloom "
            f"prepare {shown} --on-duplicate first` (a key that is in several shards is counted, and no error)."
        )
    names = find_sources(root, exclude=exclude).shards
    with open_work_folder(root) as work:
        requests = [_scan_request(root, name, rule, work / FIX_FOLDER) for name in names]
        outcomes = list(in_order(scan_one, requests, executor=None, num_workers=num_workers))
        faults = tuple(outcome for outcome in outcomes if isinstance(outcome, ShardFault))
        if faults:
            told = "\n".join(f"  [{fault.reason}] {fault.message}" for fault in faults[:20])
            raise BadShardsError(
                f"{root}: {len(faults):,} shards cannot be read, so nothing was renamed:\n{told}", faults=faults
            )
        done = [outcome for outcome in outcomes if not isinstance(outcome, ShardFault)]
        keyed = [
            KeyedShard(number, each.summary.samples, each.summary.key_range, functools.partial(read_keys, each.table))
            for number, each in enumerate(done)
        ]
        across = find_duplicates(keyed, work_folder=work).repeated > 0
        rewrites = []
        for number, each in enumerate(done):
            prefixed = all(key.startswith(f"{each.shard}/") for key in keyed[number].read_keys())
            if (across and not prefixed) or each.summary.fields["dropped_duplicates"]:
                prefix = f"{each.shard}/" if across and not prefixed else ""
                rewrites.append(RewriteRequest(each.shard, f"{root}/{each.shard}", prefix, rule))
    return list(in_order(rewrite_shard, rewrites, executor=None, num_workers=num_workers))


def rewrite_shard(request: RewriteRequest) -> str:
    """Write a shard anew with other names; returns its name.

    Raises:
        ShardError: it cannot be read.
        StorageError: the new one cannot be written; the old one is as it was.
    """
    places: dict[str, tuple[int, int]] = {}
    mode = Path(request.path).stat().st_mode & 0o777
    archive = open_archive(request.path, shard=request.shard)
    seen: dict[tuple[str, str], int] = {}
    try:
        with TarWriter(request.path) as writer:
            for member in walk_tar(request.path, shard=request.shard):
                if member.kind in ("directory", "other"):
                    continue
                start, stop = member.start, member.stop
                if member.kind == "hard-link":  # it becomes a file of its own; the scan has seen to its target
                    start, stop = places[posixpath.normpath(member.link_name)]
                places[posixpath.normpath(member.name)] = start, stop
                data = archive.read(stop - start, start)
                if len(data) != stop - start:
                    raise ShardError(
                        f"{request.shard}: changed while it was read. Run again once nobody writes to it.",
                        shard=request.shard,
                        reason="changed",
                        offset_bytes=start,
                    )
                writer.add(_new_name(member.name, request, seen), data)
    finally:
        archive.close()
    Path(request.path).chmod(mode)
    return request.shard


def _new_name(name: str, request: RewriteRequest, seen: dict[tuple[str, str], int]) -> str:
    """The name of a member in the new shard; files that belong to no sample keep theirs."""
    halves = split_key(name, request.rule)
    if halves is None or ignored_reason(name, request.rule) is not None:
        return name
    key, part = halves
    count = seen[key, part.lower()] = seen.get((key, part.lower()), 0) + 1
    if count == 1:
        return request.prefix + name
    # The number goes where the rule makes it a part of the part's name, so that the sample stays one.
    other = f"{key}.{count}.{part}" if request.rule == "first-dot" else f"{key}.{part}-{count}"
    return request.prefix + other


def _scan_request(root: str, shard: str, rule: KeyRule, folder: Path) -> ScanRequest:
    table = parts_path(folder / PARTS_FOLDER, shard)
    return ScanRequest(
        shard=shard,
        path=f"{root}/{shard}",
        rule=rule,
        on_duplicate="first",
        new_table=table,
        old_tables=(),
        new_index=f"{folder}/{INDEX_FOLDER}/{shard}.idx",
    )
