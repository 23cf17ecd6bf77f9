"""Buckets of S3, GCS and Azure and plain HTTP servers through obstore (Rust object_store)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError, StorageError, StoreAwayError
from omniloom.storage.backend import Got
from omniloom.storage.store import Stat
from omniloom.storage.tuning import Options
from omniloom.storage.writing import BlockWriter

_NO_RETRY = {"max_retries": 0, "retry_timeout": timedelta(seconds=30)}  # `RemoteStore` retries


class Bucket:
    """One bucket or host.

    Args:
        root: ``scheme://bucket``.
        options: its options; secrets among them go to obstore and nowhere else.
    """

    def __init__(self, root: str, options: Options) -> None:
        try:
            import obstore  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise StorageError(f"{root}: object stores need the extra: pip install 'omniloom[cloud]'") from error
        _refuse_after_fork(root)
        self._obstore = obstore
        self._store = _open(root, options, _NO_RETRY)
        self._root, self._options = root, options

    def get(self, key: str, start: int, stop: int | None) -> Got:
        """Bytes of an object, with its size and ETag."""
        wanted: Any = (start, stop) if stop is not None else {"offset": start} if start else None
        answer = self._obstore.get(self._store, key, options={"range": wanted} if wanted else {})
        data = answer.bytes().to_bytes()
        return Got(data, _stat(answer.meta))

    def head(self, key: str) -> Stat:
        """Size and ETag."""
        return _stat(self._obstore.head(self._store, key))

    def scan(self, prefix: str) -> Iterator[tuple[str, Stat]]:
        """Keys below a folder; listings come page by page."""
        for page in self._obstore.list(self._store, prefix or None):
            for found in page:
                yield found["path"], _stat(found)

    def children(self, prefix: str) -> tuple[list[tuple[str, Stat]], list[str]]:
        """Keys directly in a folder: of objects and of folders."""
        found = self._obstore.list_with_delimiter(self._store, prefix or None)
        return [(one["path"], _stat(one)) for one in found["objects"]], list(found["common_prefixes"])

    def put(self, key: str, data: bytes) -> None:
        """Write a whole object; stores put objects atomically."""
        self._obstore.put(self._store, key, data, use_multipart=False)

    def open_writer(self, key: str, part_bytes: int) -> BucketWriter:
        """A multipart upload."""
        # Only the upload itself can send one of its parts again.
        patience = {"max_retries": 20, "retry_timeout": timedelta(seconds=self._options.tuning.retry_seconds)}
        store = _open(self._root, self._options, patience)
        return BucketWriter(self._obstore.open_writer(store, key, buffer_size=max(part_bytes, 5 << 20)))

    def delete(self, key: str) -> None:
        """Remove an object."""
        self._obstore.delete(self._store, key)


_PROCESSES: list[int] = []
"""The process whose threads obstore runs in, from its first use on."""


def _refuse_after_fork(root: str) -> None:
    """A forked process has obstore's locks and not its threads: asking would wait for ever."""
    if not _PROCESSES:
        _PROCESSES.append(os.getpid())
    if _PROCESSES[0] != os.getpid():
        raise StoreAwayError(
            f"{root}: cannot be asked by a process that was forked after its parent had asked a store. "
            "Use start_method='spawn' (the default) for workers that read from stores."
        )


class BucketWriter(BlockWriter):
    """A multipart upload that is not there until it is closed."""

    def __init__(self, upload: Any) -> None:
        self._upload = upload
        self._open = True

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Take more bytes; a full part is sent."""
        return int(self._upload.write(data))

    def close(self) -> None:
        """Send the rest and finish the upload."""
        if self._open:
            self._open = False
            self._upload.close()

    def abort(self) -> None:
        """Tell the store to forget the parts."""
        if self._open:
            self._open = False
            stop = StorageError("upload given up")
            self._upload.__exit__(StorageError, stop, None)


def _stat(meta: Any) -> Stat:
    tag = meta.get("e_tag")
    modified = meta.get("last_modified")
    if tag is None and modified is not None and modified.timestamp() > 0:  # what plain web servers tell
        tag = f"modified {modified.isoformat()}"
    return Stat(int(meta["size"]), tag)


def _open(root: str, options: Options, retry: dict[str, Any]) -> Any:
    from obstore import store  # noqa: PLC0415 - an extra

    from_url: Any = store.from_url  # its options depend on the scheme

    tuning = options.tuning
    client = dict(options.client)
    http = dict(client.pop("client_options", None) or {})
    http.setdefault("connect_timeout", timedelta(seconds=tuning.connect_seconds))
    http.setdefault("read_timeout", timedelta(seconds=tuning.stall_seconds))
    http.setdefault("timeout", timedelta(seconds=max(600.0, 4 * tuning.stall_seconds)))
    http["allow_http"] = tuning.allow_http
    scheme = root.partition("://")[0]
    if scheme == "http" and not tuning.allow_http:
        raise ConfigError(_no_tls(root))
    endpoint = str(client.get("endpoint") or client.get("aws_endpoint") or _endpoint_variable(scheme) or "")
    if endpoint.startswith("http://") and not tuning.allow_http:
        raise ConfigError(_no_tls(f"{root}: endpoint {endpoint}"))
    prepare = _PREPARE.get(scheme)
    if prepare is not None:
        client = prepare(client)
    return from_url(root, client_options=http, retry_config=retry, **client)


def _no_tls(what: str) -> str:
    return (
        f"{what}: would be asked without TLS. Use https, or allow it: allow_http=true in the URL's query or the "
        "storage file, or OMNILOOM_STORAGE_ALLOW_HTTP=1."
    )


_ENDPOINT_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}


def _endpoint_variable(scheme: str) -> str | None:
    return next((value for name in _ENDPOINT_VARIABLES.get(scheme, ()) if (value := os.environ.get(name))), None)


def _prepare_s3(client: dict[str, Any]) -> dict[str, Any]:
    """Credentials by profile, where one is named or the usual files hold the only ones; else obstore's own chain."""
    profile = client.pop("profile", None)
    named = profile or os.environ.get("AWS_PROFILE")
    explicit = "access_key_id" in client or "aws_access_key_id" in client or client.get("skip_signature")
    chain = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
             "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
    if explicit or (not named and any(os.environ.get(name) for name in chain)):
        return client
    files = (os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
             os.environ.get("AWS_CONFIG_FILE", "~/.aws/config"))  # fmt: skip
    if not named and not any(Path(name).expanduser().is_file() for name in files):
        return client
    try:
        import boto3  # noqa: PLC0415 - an extra
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415
    except ImportError as error:
        raise StorageError(f"AWS profile {named or 'default'!r}: profiles need boto3: pip install boto3") from error
    session = boto3.Session(profile_name=named)
    if session.region_name and "region" not in client:
        client["region"] = session.region_name
    return {**client, "credential_provider": Boto3CredentialProvider(session)}


_PREPARE: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"s3": _prepare_s3}
