"""Paths and URLs as text: joined, split, and shown without what is secret in them."""

from __future__ import annotations

import functools
import os
import posixpath
import re
from urllib.parse import parse_qsl, urlencode

from omniloom.errors import StorageError

_URL = re.compile(r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
_USER = re.compile(r"(?<=://)[^/@\s]*@")
_SECRET_WORD = (
    r"(?:[\w-]*(?:secret|token|password|passwd|signature|credential|account_?key|access_?key|sas|api_?key|private_?key)"
    r"[\w-]*|sig|authorization|awsaccesskeyid|key)"
)
_SECRET_NAME = re.compile(_SECRET_WORD, re.IGNORECASE)
_SECRET_VALUE = re.compile(
    rf"(?P<name>\b{_SECRET_WORD}[\"']?\s*[=:]\s*)(?:Bearer\s+|\")?[^\s&,;\"')}}]+", re.IGNORECASE
)
HIDDEN = "***"


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether it is a URL of a scheme and not a plain path."""
    return isinstance(path, str) and _URL.match(path) is not None


def scheme_of(path: str) -> str:
    """The scheme in lower case; empty for a plain path."""
    found = _URL.match(path)
    return found["scheme"].lower() if found else ""


def split_query(url: str) -> tuple[str, dict[str, str]]:
    """A URL without its query, and the query's names and values. A plain path has none."""
    if not is_url(url):
        return url, {}
    bare, _, query = url.partition("?")
    return bare, dict(parse_qsl(query, keep_blank_values=True))


@functools.lru_cache(maxsize=4096)  # asked for at each request
def split_url(url: str) -> tuple[str, str]:
    """``scheme://authority`` and the key below it, without its query.

    The authority is what comes before the first slash: a bucket, a host, a profile.
    """
    bare = url.partition("?")[0]
    scheme, _, rest = bare.partition("://")
    authority, _, key = rest.partition("/")
    return f"{scheme.lower()}://{authority}", key


def join_url(base: str, relative: str) -> str:
    """What lies below a folder, by its relative name. A query of the folder's URL stays at the end.

    Args:
        base: the folder, a plain path or a URL.
        relative: name below it, with ``/`` between parts.

    Raises:
        StorageError: the name is absolute or climbs out of the folder.
    """
    plain = posixpath.normpath(relative) if relative else ""
    if is_url(relative) or relative.startswith(("/", "\\")) or plain == ".." or plain.startswith("../"):
        raise StorageError(f"{redacted(base)}: {relative!r} leads out of the folder. Name what lies below it.")
    if "\0" in relative:
        raise StorageError(f"{redacted(base)}: {relative!r} is no name")
    if not is_url(base):
        return os.path.join(base, plain) if plain not in ("", ".") else base  # noqa: PTH118 - text in, text out
    bare, mark, query = base.partition("?")
    if plain in ("", "."):
        return base
    return f"{bare.rstrip('/')}/{plain}{mark}{query}"


def resolve_url(base: str, reference: str) -> str:
    """What a reference in a file means: an absolute path or URL as it is, else seen from the file's folder.

    Unlike `join_url` this may climb with ``..``, though never above the bucket, host or profile.

    Args:
        base: folder of the file, a plain path or a URL.
        reference: an absolute path, a URL or a relative path.

    Raises:
        StorageError: it climbs out of the bucket.
    """
    if is_url(reference) or (not is_url(base) and reference.startswith("/")):
        return reference
    if not is_url(base):
        return os.path.normpath(os.path.join(base, reference))  # noqa: PTH118 - lexical
    bare, mark, query = base.partition("?")
    root, key = split_url(bare)
    inner = posixpath.normpath(posixpath.join(key, reference)) if not reference.startswith("/") else reference[1:]
    if inner == ".." or inner.startswith("../"):
        raise StorageError(f"{redacted(base)}: {reference!r} climbs out of {root}")
    return f"{root}/{'' if inner == '.' else inner}{mark}{query}"


def parent_url(path: str) -> str:
    """The folder that a file or folder lies in; of a bucket, the bucket."""
    if not is_url(path):
        return os.path.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")  # noqa: PTH120 - text
    bare, mark, query = path.partition("?")
    root, key = split_url(bare)
    above = posixpath.dirname(key.rstrip("/"))
    return f"{root}/{above}{mark}{query}".rstrip("/") if above else f"{root}{mark}{query}"


def name_of(path: str) -> str:
    """The last part of a path or URL."""
    return posixpath.basename(path.partition("?")[0].rstrip("/")) if is_url(path) else posixpath.basename(path)


def relative_to(path: str, base: str) -> str:
    """The name of what lies below a folder, as `join_url` takes it. Raises StorageError where it lies elsewhere."""
    below = path.partition("?")[0] if is_url(path) else path
    folder = (base.partition("?")[0] if is_url(base) else base).rstrip("/") + "/"
    if not below.startswith(folder):
        raise StorageError(f"{redacted(path)} does not lie below {redacted(base)}")
    return below[len(folder) :]


@functools.lru_cache(maxsize=4096)  # asked for at each request
def redacted(text: str) -> str:
    """A URL or a message with its secrets hidden: user names before hosts, and values whose names say so."""
    text = _USER.sub("", text)
    if is_url(text) and "?" in text and " " not in text:
        bare, query = split_query(text)
        shown = [(name, HIDDEN if _SECRET_NAME.fullmatch(name) else value) for name, value in query.items()]
        return f"{bare}?{urlencode(shown, safe='*/:')}"
    return _SECRET_VALUE.sub(lambda found: f"{found['name']}{HIDDEN}", text)


def without_secrets(url: str) -> str:
    """A URL that can be kept: what is secret in it is left out, so that whoever reads it looks for it anew."""
    if not is_url(url):
        return url
    bare, query = split_query(_USER.sub("", url))
    kept = {name: value for name, value in query.items() if not _SECRET_NAME.fullmatch(name)}
    return f"{bare}?{urlencode(kept, safe='*/:')}" if kept else bare
