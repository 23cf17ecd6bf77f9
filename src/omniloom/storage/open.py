"""Which store answers for a URL: one table."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omniloom.errors import StorageError
from omniloom.storage.local import LocalStore, file_path, versioned_path
from omniloom.storage.store import Store
from omniloom.storage.urls import redacted, scheme_of

if TYPE_CHECKING:
    from omniloom.storage.backend import Backend
    from omniloom.storage.tuning import Options


def _bucket(root: str, options: Options) -> Backend:
    from omniloom.storage.bucket import Bucket  # noqa: PLC0415 - a command on local files starts without it

    return Bucket(root, options)


def _file_system(root: str, options: Options) -> Backend:
    from omniloom.storage.filesystem import FileSystem  # noqa: PLC0415

    return FileSystem(root, options)


def _multi_storage(root: str, options: Options) -> Backend:
    from omniloom.storage.multi_storage import MultiStorage  # noqa: PLC0415

    return MultiStorage(root, options)


@dataclass(frozen=True)
class Scheme:
    """How the URLs of a scheme are answered.

    Attributes:
        what: what lies there.
        local: gives the plain path of a URL; ``None``: it is not on this machine.
        connect: opens a bucket or host; ``None``: it is on this machine.
        query_is_ours: whether queries hold our options, or belong to the server.
    """

    what: str
    local: Callable[[str], str] | None = None
    connect: Callable[[str, Options], Backend] | None = None
    query_is_ours: bool = True


SCHEMES: dict[str, Scheme] = {
    "": Scheme("a plain path", local=str),
    "file": Scheme("a file on this machine", local=file_path),
    "s3": Scheme("Amazon S3 and what speaks it", connect=_bucket),
    "s3a": Scheme("the same, as Hadoop writes it", connect=_bucket),
    "gs": Scheme("Google Cloud Storage", connect=_bucket),
    "az": Scheme("Azure Blob Storage", connect=_bucket),
    "abfss": Scheme("Azure Data Lake Storage", connect=_bucket),
    "https": Scheme("a web server", connect=_bucket, query_is_ours=False),
    "http": Scheme("a web server without TLS, where that is allowed", connect=_bucket, query_is_ours=False),
    "hf": Scheme("the Hugging Face hub: hf://datasets/OWNER/NAME/...", connect=_file_system),
    "msc": Scheme("a profile of the Multi-Storage Client", connect=_multi_storage),
    "dss": Scheme("NAME@VERSION/... below NVDATASET_CACHE_DIR, as Energon has it", local=versioned_path),
}
"""All schemes but those that only fsspec knows."""

_OPENED: dict[str, Store] = {}


def open_store(url: str, **options: Any) -> Store:
    """The store of a URL. Without options it is one per scheme and process, whose connections all callers share.

    Args:
        url: an object's or a folder's URL, or a plain path.
        options: see `Tuning`, and those of the cloud's client.

    Raises:
        StorageError: there is no store for its scheme.
    """
    scheme = scheme_of(url)
    if options:
        return _make(scheme_for(url), options)
    if scheme not in _OPENED:
        _OPENED[scheme] = _make(scheme_for(url), {})
    return _OPENED[scheme]


def scheme_for(url: str) -> Scheme:
    """How a URL is answered: by the table, or by fsspec where that knows its scheme. Raises StorageError."""
    scheme = scheme_of(url)
    known = SCHEMES.get(scheme)
    if known is not None:
        return known
    with contextlib.suppress(ImportError):
        import fsspec  # noqa: PLC0415 - an extra

        if scheme in fsspec.available_protocols():
            return Scheme("what fsspec knows", connect=_file_system)
    names = ", ".join(f"{name}://" for name in SCHEMES if name)
    raise StorageError(
        f"{redacted(url)}: no store for '{scheme}://'; known are plain paths, {names}, and what fsspec knows"
    )


def is_local(url: str | os.PathLike[str]) -> bool:
    """Whether it lies on this machine."""
    known = SCHEMES.get(scheme_of(os.fspath(url)))
    return known is not None and known.local is not None


def local_path(url: str) -> str:
    """The plain path of what lies on this machine. Raises StorageError for what does not."""
    known = SCHEMES.get(scheme_of(url))
    if known is None or known.local is None:
        raise StorageError(f"{redacted(url)}: does not lie on this machine")
    return known.local(url)


def _make(scheme: Scheme, options: dict[str, Any]) -> Store:
    if scheme.connect is None:
        return LocalStore(scheme.local or str)
    from omniloom.storage.remote import RemoteStore  # noqa: PLC0415 - a command on local files starts without it

    return RemoteStore(scheme.connect, query_is_ours=scheme.query_is_ours, given=options)
