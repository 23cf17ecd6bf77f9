"""Paths in a mix: variables and ``~`` filled in, relative ones taken from the folder of their file."""

from __future__ import annotations

import os
import re

from omniloom.data.mix.place import Place
from omniloom.errors import ConfigError
from omniloom.storage.urls import is_url, resolve_url

_VARIABLE = re.compile(r"\$(?:\$|(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\})")
FILESYSTEM = "filesystem"


def expand_path(text: str, *, place: Place) -> str:
    """``$NAME``, ``${NAME}``, ``${NAME:-default}`` and a leading ``~`` filled in; ``$$`` is a dollar sign.

    Raises:
        ConfigError: a variable is not set.
    """

    def value_of(match: re.Match[str]) -> str:
        name = match["name"] or match["braced"]
        if name is None:
            return "$"
        value = os.environ.get(name) or match["default"]
        if value is None:
            raise ConfigError(
                f"{place}: the environment variable {name!r} of {text!r} is not set. Set it, write "
                f"${{{name}:-default}}, or write $$ for a dollar sign."
            )
        return value

    expanded = _VARIABLE.sub(value_of, text)
    return os.path.expanduser(expanded) if expanded.startswith("~") else expanded  # noqa: PTH111 - texts, also URLs


def resolve_path(text: str, *, folder: str, place: Place) -> str:
    """An absolute path or a URL. Links are not followed.

    Args:
        text: as it is written.
        folder: folder (or URL) of the file it stands in.
        place: where it is written.
    """
    path = expand_path(text, place=place)
    if path.startswith("file:///"):
        path = path.removeprefix("file://")
    if is_url(path):
        return path
    if is_url(folder):
        return path if path.startswith("/") else resolve_url(folder, path)
    return os.path.normpath(os.path.join(folder, path))  # noqa: PTH118 - lexical, as in Energon


def resolve_aux(reference: str, *, folder: str, place: Place) -> str:
    """An auxiliary store's reference with its path made absolute.

    ``filesystem://`` names a plain folder, ``filesystem+msc://`` one at a URL; all else is a prepared data set.
    """
    scheme, found, rest = reference.partition("://")
    if found and scheme == FILESYSTEM:
        return f"{FILESYSTEM}://{resolve_path(rest, folder=folder, place=place)}"
    if found and "+" in scheme:
        kind = scheme.partition("+")[0]
        if kind != FILESYSTEM:
            raise ConfigError(f"{place}: {reference!r}: only 'filesystem' may stand before a '+', found {kind!r}")
        return f"{scheme}://{expand_path(rest, place=place)}"
    return resolve_path(reference, folder=folder, place=place)


def is_metadataset(path: str) -> bool:
    """Whether a path names a metadataset and not a data set."""
    return (path.partition("?")[0] if is_url(path) else path).endswith((".yaml", ".yml"))
