"""Azurite, Microsoft's own emulator of Azure Blob Storage, on loopback."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # Azurite's own


@contextmanager
def azure_server(container: str) -> Iterator[str]:
    """Endpoint of a server with a container; the test is skipped where Azurite is not installed."""
    program = os.environ.get("AZURITE_BLOB") or shutil.which("azurite-blob")
    if program is None:
        pytest.skip("Azurite is not installed: `npm install -g azurite`, or name its azurite-blob in AZURITE_BLOB")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--inMemoryPersistence", "--blobPort", str(port), "--silent", "--skipApiVersionCheck"]
    server = subprocess.Popen([program, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        _make_container(endpoint, container)
        yield endpoint
    finally:
        server.kill()
        server.wait()


def _make_container(endpoint: str, name: str) -> None:
    date = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:2021-08-06\n"
    signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(AZURE_KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": "2021-08-06",
        "Content-Length": "0",
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
    }
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container", method="PUT", headers=headers)
    urllib.request.urlopen(request).close()
