"""Which store answers for a URL: one table."""

from __future__ import annotations

from typing import Any

from omniloom.errors import StorageError
from omniloom.storage.bucket import BucketStore
from omniloom.storage.local import LocalStore
from omniloom.storage.store import Store

STORES: dict[str, type[LocalStore] | type[BucketStore]] = {
    "": LocalStore,
    "s3": BucketStore,
    "gs": BucketStore,
    "az": BucketStore,
}
"""Stores by URL scheme; the empty one is a plain path."""


def open_store(url: str, **options: Any) -> Store:
    """The store of a URL.

    Args:
        url: an object's or a folder's URL, or a plain path.
        options: options for object stores.

    Raises:
        StorageError: there is no store for its scheme.
    """
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme not in STORES:
        known = ", ".join(f"{name}://" for name in STORES if name)
        raise StorageError(f"{url}: no store for '{scheme}://'; known are plain paths, {known}")
    return STORES[scheme](**options)
