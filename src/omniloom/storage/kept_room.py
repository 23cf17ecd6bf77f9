"""How much room copies of objects take on this machine: beyond a bound, those that were not used for longest go."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from omniloom.errors import ConfigError

ROOM_VARIABLE = "OMNILOOM_COPIES_BYTES"
IN_USE_SECONDS = 86_400.0
"""A copy that was opened so short a time ago stays, whatever the bound."""


def note_use(copy: Path) -> None:
    """A copy, a folder of its own, is used now."""
    with contextlib.suppress(OSError):
        os.utime(copy)


def make_room(folder: Path) -> int:
    """Remove copies below a folder until they fit in half of its disk, or in ``OMNILOOM_COPIES_BYTES``.

    Returns:
        bytes that were removed.

    Raises:
        ConfigError: the variable is no number.
    """
    try:
        copies = [(path.stat().st_mtime, path) for path in folder.iterdir() if path.is_dir()]
        room_bytes = _room_bytes(folder)
    except OSError:
        return 0
    sizes = {path: sum(one.stat().st_size for one in path.rglob("*") if one.is_file()) for _, path in copies}
    total, removed = sum(sizes.values()), 0
    for used, path in sorted(copies):
        if total - removed <= room_bytes or time.time() - used < IN_USE_SECONDS:
            break
        shutil.rmtree(path, ignore_errors=True)
        removed += sizes[path]
    return removed


def _room_bytes(folder: Path) -> int:
    text = os.environ.get(ROOM_VARIABLE)
    if text is None:
        return shutil.disk_usage(folder).total // 2
    if not text.isdecimal():
        raise ConfigError(f"{ROOM_VARIABLE}={text!r}: expected a whole number of bytes.")
    return int(text)
