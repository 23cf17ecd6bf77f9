"""Where this machine keeps what can be had again."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "OMNILOOM_CACHE"


def node_cache(*names: str) -> Path:
    """A folder of this machine for what can be had again: below ``OMNILOOM_CACHE``, or the user's cache."""
    root = os.environ.get(CACHE_VARIABLE)
    if root is None:
        root = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "omniloom")  # noqa: PTH118, PTH111
    return Path(root, *names)
