"""Compressed archives become plain ones, one file or a folder of them, so that samples can be read at random."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from omniloom.data.index.parallel_work import in_order
from omniloom.data.index.sources import find_sources
from omniloom.data.shards.compressed import recompress_to_tar
from omniloom.data.shards.compression import compression_of, plain_name
from omniloom.errors import ConfigError, DatasetError, ShardError
from omniloom.storage.files import file_exists, file_size, folder_exists, remove_file
from omniloom.storage.node_copy import copy_there, node_cache
from omniloom.storage.open import open_store
from omniloom.storage.urls import is_url, join_url, name_of, redacted

_HEAD_BYTES = 8


class Unpacking(NamedTuple):
    """One archive and where its plain form goes, by path or URL."""

    source: str
    target: str

    @property
    def shard(self) -> str:
        """What messages call it."""
        return redacted(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackedArchives:
    """What became of some archives.

    Attributes:
        written: those that were unpacked now.
        kept: those whose target was there already.
        faults: those that cannot be unpacked, each with its error.
        size_bytes: bytes of the plain archives written.
    """

    written: tuple[Unpacking, ...]
    kept: tuple[Unpacking, ...]
    faults: tuple[tuple[Unpacking, ShardError], ...]
    size_bytes: int

    def to_json(self) -> dict[str, Any]:
        """The summary as ``--json`` prints it."""
        return {
            "written": [redacted(one.target) for one in self.written],
            "kept": [redacted(one.target) for one in self.kept],
            "faults": [
                {"source": one.shard, "reason": error.reason, "byte": error.offset_bytes, "message": str(error)}
                for one, error in self.faults
            ],
            "size_bytes": self.size_bytes,
        }


def plan_unpacking(source: str, out: str) -> list[Unpacking]:
    """Which archives are to be unpacked, and to where. Both are paths or URLs.

    Args:
        source: an archive, or a folder in which every compressed archive is meant.
        out: for one archive the plain file, or an existing folder to put it in; for a folder the folder to make, in
            which names are kept but for the suffix (``a.tar.gz`` becomes ``a.tar``).

    Raises:
        DatasetError: there is no such file or folder, or no compressed archive in it.
        ConfigError: two archives would get the same name, or a folder would become a file.
    """
    if file_exists(source):
        target = join_url(out, name_of(plain_name(name_of(source)))) if folder_exists(out) else out
        return [Unpacking(source, target)]
    if not folder_exists(source):
        raise DatasetError(f"{redacted(source)}: there is no such file or folder. Check the path.")
    if file_exists(out):
        raise ConfigError(f"{redacted(out)}: is a file, but {redacted(source)} is a folder. Give a folder as --out.")
    found = find_sources(source)
    hidden = [name for name in found.shards if _is_compressed(join_url(source, name))]
    planned = [
        Unpacking(join_url(source, name), join_url(out, plain_name(name)))
        for name in sorted([*found.compressed, *hidden])
    ]
    if not planned:
        raise DatasetError(
            f"{redacted(source)}: no compressed archive below it; {len(found.shards):,} plain ones need no conversion."
        )
    first: dict[str, str] = {}
    for one in planned:
        other = first.setdefault(one.target, one.source)
        if other != one.source:
            raise ConfigError(
                f"{redacted(other)} and {one.shard} would both become {redacted(one.target)}. Rename one of them."
            )
    return planned


class _Request(NamedTuple):
    archive: Unpacking
    overwrite: bool

    @property
    def shard(self) -> str:
        return self.archive.shard


def unpack_archives(
    planned: Sequence[Unpacking],
    *,
    overwrite: bool = False,
    on_progress: Callable[[float, int], None] | None = None,
    executor: Executor | None = None,
    num_workers: int = 1,
) -> UnpackedArchives:
    """Unpack archives. A damaged one is reported and the others go on.

    A target that is there is kept, so that a run that was stopped goes on; each is complete or not there.

    Args:
        planned: from `plan_unpacking`.
        overwrite: write targets again that are there.
        on_progress: called after each archive with the share of bytes read and the number of archives done.
        executor: unpacks there, see `executors`.
        num_workers: without one, processes of this machine at most; 1 unpacks one after the other.

    Raises:
        StorageError: a target cannot be written.
        ConfigError: a library for the compression is not installed.
    """
    written: list[Unpacking] = []
    kept: list[Unpacking] = []
    faults: list[tuple[Unpacking, ShardError]] = []
    size_bytes = read_bytes = 0
    sizes = [file_size(one.source) for one in planned]
    requests = [_Request(one, overwrite) for one in planned]
    outcomes = in_order(_unpack, requests, executor=executor, num_workers=num_workers)
    for number, (one, outcome) in enumerate(zip(planned, outcomes, strict=True)):
        if outcome is None:
            kept.append(one)
        elif isinstance(outcome, ShardError):
            faults.append((one, outcome))
        else:
            written.append(one)
            size_bytes += outcome
        read_bytes += sizes[number]
        if on_progress is not None:
            on_progress(read_bytes / max(1, sum(sizes)), number + 1)
    return UnpackedArchives(written=tuple(written), kept=tuple(kept), faults=tuple(faults), size_bytes=size_bytes)


def _unpack(request: _Request) -> int | ShardError | None:
    """Bytes of the plain archive; ``None`` where it was there; what is wrong with the compressed one."""
    source, target = request.archive
    if file_exists(target) and not request.overwrite:
        return None
    try:
        if not is_url(target):
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            return recompress_to_tar(source, target, shard=request.shard).size_bytes
        here = node_cache("unpacked", hashlib.sha256(target.encode()).hexdigest()[:24])
        here.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            stack.callback(remove_file, here)
            size_bytes = recompress_to_tar(source, here, shard=request.shard).size_bytes
            copy_there(here, target)
            return size_bytes
    except ShardError as error:
        return error


def _is_compressed(path: str) -> bool:
    size_bytes = file_size(path)
    return compression_of(open_store(path).read(path, 0, min(_HEAD_BYTES, size_bytes))) is not None
