"""Compressed archives become plain ones, one file or a folder of them, so that samples can be read at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from omniloom.data.index.sources import find_sources
from omniloom.data.shards.compressed import recompress_to_tar
from omniloom.data.shards.compression import compression_of, plain_name
from omniloom.errors import ConfigError, DatasetError, ShardError

_HEAD_BYTES = 8


class Unpacking(NamedTuple):
    """One archive and where its plain form goes."""

    source: Path
    target: Path


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
            "written": [str(one.target) for one in self.written],
            "kept": [str(one.target) for one in self.kept],
            "faults": [
                {"source": str(one.source), "reason": error.reason, "byte": error.offset_bytes, "message": str(error)}
                for one, error in self.faults
            ],
            "size_bytes": self.size_bytes,
        }


def plan_unpacking(source: Path, out: Path) -> list[Unpacking]:
    """Which archives are to be unpacked, and to where.

    Args:
        source: an archive, or a folder in which every compressed archive is meant.
        out: for one archive the plain file, or an existing folder to put it in; for a folder the folder to make, in
            which names are kept but for the suffix (``a.tar.gz`` becomes ``a.tar``).

    Raises:
        DatasetError: there is no such file or folder, or no compressed archive in it.
        ConfigError: two archives would get the same name, or a folder would become a file.
    """
    if not source.is_dir():
        if not source.is_file():
            raise DatasetError(f"{source}: there is no such file or folder. Check the path.")
        target = out / Path(plain_name(source.name)).name if out.is_dir() else out
        return [Unpacking(source, target)]
    if out.is_file():
        raise ConfigError(f"{out}: is a file, but {source} is a folder. Give a folder as --out.")
    found = find_sources(source)
    hidden = [name for name in found.shards if _is_compressed(source / name)]
    planned = [Unpacking(source / name, out / plain_name(name)) for name in sorted([*found.compressed, *hidden])]
    if not planned:
        raise DatasetError(
            f"{source}: no compressed archive below it; {len(found.shards):,} plain ones need no conversion."
        )
    first: dict[Path, Path] = {}
    for one in planned:
        other = first.setdefault(one.target, one.source)
        if other != one.source:
            raise ConfigError(f"{other} and {one.source} would both become {one.target}. Rename one of them.")
    return planned


def unpack_archives(
    planned: Sequence[Unpacking], *, overwrite: bool = False, on_progress: Callable[[float, int], None] | None = None
) -> UnpackedArchives:
    """Unpack archives one after the other. A damaged one is reported and the others go on.

    A target that is there is kept, so that a run that was stopped goes on; each is complete or not there.

    Args:
        planned: from `plan_unpacking`.
        overwrite: write targets again that are there.
        on_progress: called after each archive with the share of bytes read and the number of archives done.

    Raises:
        StorageError: a target cannot be written.
        ConfigError: a library for the compression is not installed.
    """
    written: list[Unpacking] = []
    kept: list[Unpacking] = []
    faults: list[tuple[Unpacking, ShardError]] = []
    size_bytes = 0
    sizes = [one.source.stat().st_size for one in planned]
    for number, one in enumerate(planned):
        if one.target.exists() and not overwrite:
            kept.append(one)
        else:
            one.target.parent.mkdir(parents=True, exist_ok=True)
            try:
                size_bytes += recompress_to_tar(one.source, one.target).size_bytes
                written.append(one)
            except ShardError as error:
                faults.append((one, error))
        if on_progress is not None:
            on_progress(sum(sizes[: number + 1]) / max(1, sum(sizes)), number + 1)
    return UnpackedArchives(written=tuple(written), kept=tuple(kept), faults=tuple(faults), size_bytes=size_bytes)


def _is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return compression_of(file.read(_HEAD_BYTES)) is not None
