"""How a store is asked: endpoint and credentials for the cloud's own client, patience and parallelism for us.

An option is looked for in the URL's query, in what the caller gave, in the storage file, and in the environment; the
first one found counts.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from omniloom.errors import ConfigError
from omniloom.storage.urls import HIDDEN, redacted, split_query

CONFIG_VARIABLE = "OMNILOOM_STORAGE"
"""Names the storage file; without it, ``~/.config/omniloom/storage.yaml``."""
VARIABLE_PREFIX = "OMNILOOM_STORAGE_"


@dataclass(frozen=True)
class Tuning:
    """How a store is asked.

    Attributes:
        allow_http: requests without TLS are allowed.
        stall_seconds: no byte for so long ends a request, which is tried again.
        connect_seconds: the same for the connection.
        retry_seconds: faults that may pass are tried again for so long.
        connections: requests at a time, of this process to one host or bucket.
        gap_bytes: bytes between two wanted ranges that are fetched along rather than asked around.
        part_bytes: a longer range is fetched as several, in parallel; parts of uploads have this size, too.
        whole_bytes: of servers that give no ranges, objects of up to so many bytes are fetched whole.
        cache_bytes: blocks of objects are kept on this machine's disk up to so many bytes; 0: none are.
        cache_folder: where; empty: ``blocks`` below ``OMNILOOM_CACHE`` or the user's cache.
    """

    allow_http: bool = False
    stall_seconds: float = 30.0
    connect_seconds: float = 10.0
    retry_seconds: float = 180.0
    connections: int = 16
    gap_bytes: int = 256 << 10
    part_bytes: int = 8 << 20
    whole_bytes: int = 256 << 20
    cache_bytes: int = 0
    cache_folder: str = ""


@dataclass(frozen=True, repr=False)
class Options:
    """All options of a URL.

    Attributes:
        tuning: ours.
        client: those of the cloud's client, such as ``endpoint``, ``region`` and ``profile``.
    """

    tuning: Tuning
    client: tuple[tuple[str, Any], ...]

    def __repr__(self) -> str:
        shown = {name: HIDDEN if "key" in name or "secret" in name or "token" in name else value
                 for name, value in self.client}  # fmt: skip
        return f"Options({self.tuning}, {shown})"


def options_of(url: str, given: Mapping[str, Any], *, query_is_ours: bool) -> Options:
    """The options of a URL.

    Args:
        url: an object's or a folder's URL.
        given: what the caller gave; ``client_options`` of obstore are options of the client.
        query_is_ours: whether the query of such URLs holds options; that of ``https://`` belongs to the server.

    Raises:
        ConfigError: a value is not of the kind that the option has.
    """
    found: dict[str, Any] = {}
    for name in _TUNING:
        variable = VARIABLE_PREFIX + name.upper()
        if variable in os.environ:
            found[name] = _value(name, os.environ[variable], f"${variable}")
    for prefix, options in sorted(_storage_file().items(), key=lambda item: len(item[0])):
        if prefix == "*" or url.startswith(prefix):
            found |= {name: _value(name, value, f"storage file, {prefix}") for name, value in options.items()}
    found |= {name: _value(name, value, "options") for name, value in given.items()}
    if isinstance(found.get("client_options"), dict) and "allow_http" in found["client_options"]:
        found.setdefault("allow_http", bool(found["client_options"]["allow_http"]))
    if query_is_ours:
        found |= {name: _value(name, value, redacted(url)) for name, value in split_query(url)[1].items()}
    tuning = Tuning(**{name: found.pop(name) for name in list(found) if name in _TUNING})
    return Options(tuning, tuple(sorted(found.items())))


def _value(name: str, value: Any, where: str) -> Any:
    kind = _TUNING.get(name)
    if kind is None:
        return value
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {name}={value!r}: {error}") from error


def _switch(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError("true or false expected")
    return text in ("true", "1", "yes")


_KINDS: dict[str, Callable[[Any], Any]] = {"bool": _switch, "float": float, "int": int, "str": str}
_TUNING = {one.name: _KINDS[str(one.type)] for one in dataclasses.fields(Tuning)}


def _storage_file() -> Mapping[str, Mapping[str, Any]]:
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named) if named else Path.home() / ".config" / "omniloom" / "storage.yaml"
    return _read_storage_file(str(path), required=bool(named))


@functools.lru_cache(maxsize=8)
def _read_storage_file(path: str, *, required: bool) -> Mapping[str, Mapping[str, Any]]:
    try:
        content = yaml.safe_load(Path(path).read_text("utf-8")) or {}
    except FileNotFoundError:
        if required:
            raise ConfigError(f"{path}: ${CONFIG_VARIABLE} names it, and there is no such file.") from None
        return {}
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {type(error).__name__}") from None
    if not isinstance(content, dict) or not all(isinstance(options, dict) for options in content.values()):
        raise ConfigError(f"{path}: URL prefixes (or '*') with options below each expected.")
    return content
