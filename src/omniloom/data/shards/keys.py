r"""Which sample a member belongs to, and which members belong to none.

The rule ``first-dot`` is WebDataset's and Energon's: the key is the path up to the *first dot of the base name*,
the part is the rest. ``KEY_TABLE`` publishes it by example; tests hold it against Energon's own expression
``^((?:.*/|)[^.]+)[.]([^/]*)$``. The rule ``last-dot`` is for names such as ``22.05.png``: the key is the path up
to the last dot. Names are keys only, never paths to write to: ``../a.jpg`` and ``/a.jpg`` are kept as they are.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

KeyRule = Literal["first-dot", "last-dot"]
KEY_RULES: tuple[KeyRule, ...] = ("first-dot", "last-dot")

IGNORED_REASONS: dict[str, str] = {
    "directory": "a directory",
    "apple-double": "a '._' file that macOS adds for attributes",
    "ds-store": "a '.DS_Store' file of the macOS Finder",
    "macosx": "inside a '__MACOSX' folder, which macOS adds to archives",
    "meta": "inside a top-level '__name__' folder, which WebDataset keeps for itself",
    "no-key": "a name without a dot after the first letter, which gives no key and part",
    "other": "neither file, link nor directory: a fifo, a device, a volume label",
}


class KeyExample(NamedTuple):
    """One row of the published table: a name and what becomes of it under a rule."""

    name: str
    rule: KeyRule
    key: str | None
    part: str | None
    ignored: str | None = None


KEY_TABLE: tuple[KeyExample, ...] = (
    KeyExample("0001.jpg", "first-dot", "0001", "jpg"),
    KeyExample("train/0001.seg.png", "first-dot", "train/0001", "seg.png"),
    KeyExample("v1.0/0001.jpg", "first-dot", "v1.0/0001", "jpg"),
    KeyExample("a.b/c.d.e", "first-dot", "a.b/c", "d.e"),
    KeyExample("22.05.png", "first-dot", "22", "05.png"),
    KeyExample("./0001.jpg", "first-dot", "./0001", "jpg"),
    KeyExample("../0001.jpg", "first-dot", "../0001", "jpg"),
    KeyExample("/data/0001.jpg", "first-dot", "/data/0001", "jpg"),
    KeyExample("0001.", "first-dot", "0001", ""),
    KeyExample("a..b", "first-dot", "a", ".b"),
    KeyExample("dir/.hidden", "first-dot", "dir/", "hidden"),
    KeyExample("a.b/.hidden", "first-dot", None, None, "no-key"),
    KeyExample(".hidden", "first-dot", None, None, "no-key"),
    KeyExample("README", "first-dot", None, None, "no-key"),
    KeyExample(".hidden/README", "first-dot", None, None, "no-key"),
    KeyExample("", "first-dot", None, None, "no-key"),
    KeyExample("a/__meta__/x.json", "first-dot", "a/__meta__/x", "json"),
    KeyExample("__meta__/x.json", "first-dot", None, None, "meta"),
    KeyExample("d/._a.jpg", "first-dot", None, None, "apple-double"),
    KeyExample("d/.DS_Store", "first-dot", None, None, "ds-store"),
    KeyExample("__MACOSX/d/a.jpg", "first-dot", None, None, "macosx"),
    KeyExample("Thumbs.db", "first-dot", "Thumbs", "db"),
    KeyExample("22.05.png", "last-dot", "22.05", "png"),
    KeyExample("v1.0/0001.jpg", "last-dot", "v1.0/0001", "jpg"),
    KeyExample("0001.", "last-dot", "0001", ""),
    KeyExample("dir/.hidden", "last-dot", None, None, "no-key"),
    KeyExample("dir/.hidden.txt", "last-dot", "dir/.hidden", "txt"),
    KeyExample("README", "last-dot", None, None, "no-key"),
)

# The two expressions are the published rule; the code below only comes to the same answer sooner.
_FIRST_DOT = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")
_META = re.compile(r"__[^/]*__($|/)")


def split_key(name: str, rule: KeyRule = "first-dot") -> tuple[str, str] | None:
    """Sample key and part name of a member's name; ``None`` when it has none.

    Says nothing about names that are ignored although they split: ask `ignored_reason` first.
    """
    base = name.rfind("/") + 1
    if rule == "last-dot":
        dot = name.rfind(".", base)
        return (name[:dot], name[dot + 1 :]) if dot > base else None
    dot = name.find(".", base)
    if dot > base and "\n" not in name:
        return name[:dot], name[dot + 1 :]
    if dot < 0:
        return None
    match = _FIRST_DOT.match(name)
    return (match[1], match[2]) if match else None


def ignored_reason(name: str, rule: KeyRule = "first-dot") -> str | None:
    """Why a member of this name belongs to no sample (a word of ``IGNORED_REASONS``), or ``None`` if it does."""
    base = name[name.rfind("/") + 1 :]
    if base.startswith("._"):
        return "apple-double"
    if base == ".DS_Store":
        return "ds-store"
    if "__MACOSX" in name and "__MACOSX" in name.split("/")[:-1]:
        return "macosx"
    if name.startswith("__") and _META.match(name):
        return "meta"
    return "no-key" if split_key(name, rule) is None else None


def may_be_ignored(name: str) -> bool:
    """Whether `ignored_reason` has to be asked about a name that splits: a quick test, sometimes wrongly true."""
    return "._" in name or "__" in name or ".DS" in name
