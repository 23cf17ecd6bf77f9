"""Ids of any form become sample keys that mean the same in a tar archive.

A key is the name of an archive member up to the first dot of its base name. So an id may not have a dot there, may
not climb out of its folder, and may not be a name that readers ignore. Whatever is not allowed is written as ``%``
and two hexadecimal digits, as in a URL; ``%`` itself only where two hexadecimal digits follow it. Two ids never get
the same key, and an id that needs no change (also one with folders, such as ``00453/004539375``) keeps its name.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple
from urllib.parse import unquote

from omniloom.data.shards.keys import ignored_reason, split_key

MAX_KEY_BYTES = 1024
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]|%(?=[0-9A-Fa-f]{2})")


class SafeKey(NamedTuple):
    """A key that is safe as a member name.

    Attributes:
        key: the key.
        reason: why it differs from the id: ``escaped-id`` or ``long-id``; ``None`` when it does not.
    """

    key: str
    reason: str | None


def safe_key(identifier: str) -> SafeKey:
    """Make a key out of ``identifier``, which must not be empty."""
    parts = _UNSAFE.sub(_escape_match, identifier).split("/")
    if "" in parts:  # a leading, trailing or double slash: no folders at all
        parts = ["%2F".join(parts)]
    *folders, base = parts
    folders = [folder.replace(".", "%2E") if set(folder) == {"."} else folder for folder in folders]
    base = base.replace(".", "%2E")
    key = "/".join([*folders, base])
    if not _is_read_back(key):  # folders such as __MACOSX or __meta__, which readers of archives skip
        key = "/".join([*("%5F" + f[1:] if f.startswith("__") else f for f in folders), base])
    if len(key.encode()) > MAX_KEY_BYTES:
        return SafeKey(_shorten(identifier), "long-id")
    return SafeKey(key, None if key == identifier else "escaped-id")


def original_id(key: str) -> str:
    """The id that an escaped key was made of (not for keys that were shortened)."""
    return unquote(key)


def _is_read_back(key: str) -> bool:
    name = f"{key}.json"
    return ignored_reason(name) is None and split_key(name) == (key, "json")


def _escape_match(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


def _shorten(identifier: str) -> str:
    digest = hashlib.sha256(identifier.encode()).hexdigest()[:32]
    start = re.sub(r"[^A-Za-z0-9_-]", "_", identifier[:64])
    return f"{start}~{digest}"
