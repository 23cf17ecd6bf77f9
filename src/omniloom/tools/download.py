"""Downloads one file so that a break costs nothing: resumed where it stopped, checked, and complete or absent."""

from __future__ import annotations

import hashlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from omniloom._version import __version__
from omniloom.errors import StorageError

Tell = Callable[[int, int], None]
"""Called with the bytes of this file that are there, and its size (0 where the server does not say)."""

_CHUNK_BYTES = 1 << 20
_PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0)
_TIMEOUT_SECONDS = 60.0
_BEYOND_END = 416
_GONE = {401, 403, 404, 410}


class Remote(NamedTuple):
    """A file on a server.

    Attributes:
        url: where it is.
        size_bytes: how long it should be; ``None`` where that is not known beforehand.
        sha256: its checksum; ``None`` where its publisher does not say.
        headers: to send along, to the host of ``url`` only.
    """

    url: str
    size_bytes: int | None = None
    sha256: str | None = None
    headers: Mapping[str, str] = {}


def is_there(remote: Remote, path: Path) -> bool:
    """Whether the file is there already, of the right length and checksum."""
    if not path.is_file() or remote.size_bytes not in {None, path.stat().st_size}:
        return False
    return remote.sha256 is None or sha256_of(path) == remote.sha256


def download(
    remote: Remote, path: Path, *, tell: Tell | None = None, pauses_seconds: tuple[float, ...] = _PAUSES_SECONDS
) -> str:
    """Download a file; what an earlier try has of it is kept.

    Args:
        remote: the file.
        path: where it goes. Until it is complete, ``PATH.partial`` grows beside it.
        tell: told how far it is.
        pauses_seconds: how long to wait after each failure before the next try.

    Returns:
        Its SHA-256.

    Raises:
        StorageError: the server refuses it, all tries failed, or length or checksum is not what it should be.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    for pause in (*pauses_seconds, None):
        try:
            _attempt(remote, partial, tell)
            break
        except urllib.error.HTTPError as error:
            last: Exception = error
            if error.code == _BEYOND_END:
                partial.unlink(missing_ok=True)  # the file became shorter than what an earlier try has of it
            if error.code in _GONE:
                hint = " Set HF_TOKEN, and accept the model's terms on its page." if error.code in {401, 403} else ""
                raise StorageError(f"{remote.url}: the server says {error.code} {error.reason}.{hint}") from error
        except (OSError, HTTPException) as error:
            last = error
        if pause is None:
            raise StorageError(
                f"{remote.url}: failed {len(pauses_seconds) + 1} times, at last with {last}. What there is of it is "
                "kept; run the command again."
            ) from last
        time.sleep(pause)
    checksum = _checked(remote, partial)
    partial.replace(path)
    _tag_path(partial).unlink(missing_ok=True)
    return checksum


def read_url(remote: Remote) -> tuple[bytes, Mapping[str, str]]:
    """A short answer and its headers.

    Raises:
        StorageError: the server refuses it.
    """
    try:
        with _open(remote, {}) as answer:
            return answer.read(), dict(answer.headers.items())
    except urllib.error.HTTPError as error:
        raise StorageError(f"{remote.url}: the server says {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise StorageError(f"{remote.url}: no answer ({error})") from error


def sha256_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _attempt(remote: Remote, partial: Path, tell: Tell | None) -> None:
    have = partial.stat().st_size if partial.is_file() else 0
    if remote.size_bytes is not None and have == remote.size_bytes:
        return
    if remote.size_bytes is not None and have > remote.size_bytes:
        have = 0  # of another revision of the file
    tag = _read_tag(partial)
    resume = have and (tag or remote.sha256 is not None)
    headers = {"Range": f"bytes={have}-", **({"If-Range": tag} if tag else {})} if resume else {}
    with _open(remote, headers) as answer:
        if answer.status != 206 or not _continues(answer, have):
            have = 0  # the server sends the whole file: it cannot resume, or the file has changed
        total = have + int(answer.headers.get("Content-Length") or 0)
        _tag_path(partial).write_text(json.dumps({"etag": answer.headers.get("ETag")}))
        with partial.open("r+b" if have else "wb") as file:
            file.seek(have)
            while chunk := answer.read(_CHUNK_BYTES):
                file.write(chunk)
                have += len(chunk)
                if tell is not None:
                    tell(have, total)
    if total and have < total:
        raise ConnectionError(f"the connection ended after {have} of {total} bytes")


def _continues(answer: HTTPResponse, have: int) -> bool:
    return (answer.headers.get("Content-Range") or "").startswith(f"bytes {have}-")


def _open(remote: Remote, headers: Mapping[str, str]) -> HTTPResponse:
    if urlsplit(remote.url).scheme not in {"http", "https"}:
        raise StorageError(f"{remote.url}: only http and https are fetched")
    request = urllib.request.Request(remote.url, headers={"User-Agent": f"omniloom/{__version__}", **headers})
    for name, value in remote.headers.items():
        # Unredirected: a token goes to the hub, not to the store that it sends us to.
        request.add_unredirected_header(name, value)
    answer: HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    return answer


def _checked(remote: Remote, partial: Path) -> str:
    size = partial.stat().st_size
    if remote.size_bytes is not None and size != remote.size_bytes:
        partial.unlink()
        raise StorageError(
            f"{remote.url}: has {size} bytes; {remote.size_bytes} were announced. Run the command again."
        )
    checksum = sha256_of(partial)
    if remote.sha256 is not None and checksum != remote.sha256:
        partial.unlink()
        raise StorageError(
            f"{remote.url}: has SHA-256 {checksum}; {remote.sha256} was announced. It was damaged on the way, or is "
            "not what it says; it was thrown away. Run the command again."
        )
    return checksum


def _tag_path(partial: Path) -> Path:
    return partial.with_name(partial.name + ".json")


def _read_tag(partial: Path) -> str | None:
    try:
        tag = json.loads(_tag_path(partial).read_text()).get("etag")
    except (OSError, ValueError, AttributeError):
        return None
    # A weak tag does not promise the same bytes.
    return tag if isinstance(tag, str) and not tag.startswith("W/") else None
