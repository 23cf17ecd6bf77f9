"""What of an earlier run in the output folder can stand, and what has to be made again."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from omniloom.data.convert.findings import LEFT_OUT
from omniloom.data.convert.image_type import image_part
from omniloom.data.convert.images import ImageSource
from omniloom.data.convert.journal import JOURNAL_NAME, Journal
from omniloom.data.index.layout import MAIN_FOLDER
from omniloom.errors import ConfigError, SampleError

_CAME_LATE = frozenset(("missing-image", "empty-image", "unreadable-image", "not-a-file", "not-an-image"))


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_output_folder(out: Path, *, overwrite: bool, report_name: str) -> None:
    """Make the folder; refuse to mix with shards that no conversion wrote; clear an earlier conversion if asked.

    Args:
        out: the output folder.
        overwrite: remove what an earlier conversion left there (only that: shards in its journal, report, sidecar).
        report_name: name of the report file.

    Raises:
        ConfigError: there are tar files but no journal.
    """
    out.mkdir(parents=True, exist_ok=True)
    journal = out / JOURNAL_NAME
    if not journal.exists():
        foreign = next(iter(sorted(out.rglob("*.tar"))), None)
        if foreign is not None:
            raise ConfigError(
                f"{out}: holds {foreign.name} and perhaps more, which no conversion into this folder wrote. "
                "Choose an empty folder as --out."
            )
        return
    if not overwrite:
        return
    names = [line.get("shard") for line in _json_lines(journal)]
    for name in filter(None, names):
        (out / name).unlink(missing_ok=True)
        (out / f"{name}.idx").unlink(missing_ok=True)
    shutil.rmtree(out / MAIN_FOLDER, ignore_errors=True)
    (out / report_name).unlink(missing_ok=True)
    journal.unlink()


def drop_stale_shards(journal: Journal, *, out: Path, report: Path, images: ImageSource) -> None:
    """Forget finished shards from the first one on that is gone or cut, or that lacks an image that has come since.

    Whatever follows a changed shard is forgotten too: its samples would move.
    """
    keep = len(journal.shards)
    for number, mark in enumerate(journal.shards):
        path = out / mark.shard
        if not path.is_file() or path.stat().st_size != mark.size_bytes:
            keep = number
            break
    arrived = _first_arrival(report, images)
    if arrived is not None:
        keep = min(keep, sum(mark.entries <= arrived for mark in journal.shards))
    if keep < len(journal.shards) or (journal.end is not None and arrived is not None):
        shutil.rmtree(out / MAIN_FOLDER, ignore_errors=True)  # it would describe shards that are about to change
        journal.keep_only(keep)


def _first_arrival(report: Path, images: ImageSource) -> int | None:
    """Position of the first entry that was left out for want of an image that is there now."""
    for line in _json_lines(report):
        if line["outcome"] == LEFT_OUT and line["reason"] in _CAME_LATE:
            missing = line["reason"] == "missing-image"
            if all(images.has(name) if missing else _is_sound(images, name) for name in line["images"]):
                return int(line["entry"])
    return None


def _is_sound(images: ImageSource, name: str) -> bool:
    try:
        return image_part(images.read(name)) is not None
    except SampleError:
        return False


def _json_lines(path: Path) -> list[dict[str, Any]]:
    lines = []
    if path.is_file():
        for raw in path.read_bytes().splitlines():
            try:
                lines.append(json.loads(raw))
            except ValueError:
                break  # cut by a kill; nothing sound follows
    return [line for line in lines if isinstance(line, dict)]
