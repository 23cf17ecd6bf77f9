"""An S3 server (moto) on loopback, and the environment in which omniloom finds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

ACCESS_KEY = "PLANTEDACCESSKEY"
SECRET_KEY = "planted-secret-key"


def environment(endpoint: str) -> dict[str, str]:
    """Variables by which an S3 server on loopback is found."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
        "OMNILOOM_STORAGE_ALLOW_HTTP": "1",
    }


@contextmanager
def s3_server(*buckets: str) -> Iterator[tuple[str, int]]:
    """Host and port of a server with some buckets."""
    pytest.importorskip("obstore")
    server_module = pytest.importorskip("moto.server")
    boto3: Any = pytest.importorskip("boto3")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY,
    )  # fmt: skip
    for bucket in buckets:
        client.create_bucket(Bucket=bucket)
    try:
        yield host, port
    finally:
        server.stop()
