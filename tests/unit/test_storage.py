"""Stores: the local disk, and an S3 server on loopback, by one and the same test."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from omniloom.errors import StorageError
from omniloom.storage.open import open_store
from omniloom.storage.store import Store
from omniloom.storage.urls import without_secrets


@pytest.fixture(scope="module")
def s3_store() -> Iterator[Store]:
    pytest.importorskip("obstore")
    server_module = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    secrets = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **secrets).create_bucket(Bucket="shards")
    yield open_store(
        "s3://shards", endpoint=endpoint, region="us-east-1", client_options={"allow_http": True},
        access_key_id="test", secret_access_key="test",
    )  # fmt: skip
    server.stop()


def check_store(store: Store, root: str) -> None:
    payload = os.urandom(100_000)
    store.write(f"{root}/b/two.bin", payload)
    store.write(f"{root}/a.bin", b"one")
    assert store.size(f"{root}/b/two.bin") == 100_000
    assert store.read(f"{root}/b/two.bin") == payload
    assert store.read(f"{root}/b/two.bin", 50_000, 50_007) == payload[50_000:50_007]
    assert store.read(f"{root}/a.bin", 1) == b"ne"
    assert list(store.list(root)) == [f"{root}/a.bin", f"{root}/b/two.bin"]
    with pytest.raises(StorageError, match="missing"):
        store.read(f"{root}/missing.bin", 0, 3)
    with pytest.raises(StorageError, match="missing"):
        store.size(f"{root}/missing.bin")
    with pytest.raises(StorageError, match="found at byte"):
        store.read(f"{root}/a.bin", 1, 9)
    again = pickle.loads(pickle.dumps(store))
    assert again.read(f"{root}/a.bin") == b"one"


def test_local_disk(tmp_path: Path) -> None:
    check_store(open_store(str(tmp_path)), str(tmp_path / "data"))
    assert not list(tmp_path.rglob("*.partial*"))


def test_s3(s3_store: Store) -> None:
    check_store(s3_store, "s3://shards/data")


def test_unknown_schemes_are_refused_and_not_taken_for_paths() -> None:
    with pytest.raises(StorageError, match="no store for 'ftpx://'"):
        open_store("ftpx://host/x")


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        (
            "s3://b/k?secret_access_key=x&region=eu-west-1&endpoint=https://h",
            "s3://b/k?region=eu-west-1&endpoint=https://h",
        ),
        ("s3://b/k?session_token=x", "s3://b/k"),
        ("https://me:pass@host/x?sig=1", "https://host/x"),
        ("s3://b/k", "s3://b/k"),
        ("/a/plain?key=path", "/a/plain?key=path"),
    ],
)
def test_what_is_kept_of_a_url_holds_no_secret(url: str, kept: str) -> None:
    assert without_secrets(url) == kept
