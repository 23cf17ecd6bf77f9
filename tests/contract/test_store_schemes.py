"""Every scheme of the table by one and the same test, on real servers on loopback where it needs one."""

from __future__ import annotations

import errno
import functools
import http.server
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omniloom.data.shards.remote_archive import mark_of, states_of
from omniloom.errors import ConfigError, StorageError
from omniloom.storage.files import file_exists, read_file, remove_file, replace_file
from omniloom.storage.open import open_store
from omniloom.storage.store import Stat, Store, Writer
from omniloom.storage.urls import join_url, parent_url, redacted, relative_to, resolve_url
from tests.contract.azure_server import ACCOUNT, AZURE_KEY, azure_server
from tests.contract.s3_server import ACCESS_KEY, SECRET_KEY, environment, s3_server

PAYLOAD = os.urandom(300_000)


@pytest.fixture(autouse=True)
def _fresh_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omniloom.storage.open._OPENED", {})
    monkeypatch.setenv("OMNILOOM_STORAGE_RETRY_SECONDS", "5")


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[str, int]]:
    with s3_server("schemes") as place:
        yield place


def write_and_stop(writer: Writer) -> None:
    writer.write(b"half")
    raise KeyError("stopped")


def check_store(store: Store, root: str) -> None:
    store.write(f"{root}/b/two.bin", PAYLOAD)
    store.write(f"{root}/a.bin", b"one")
    assert store.size(f"{root}/b/two.bin") == len(PAYLOAD)
    assert store.read(f"{root}/b/two.bin") == PAYLOAD
    assert store.read(f"{root}/a.bin", 1) == b"ne"
    ranges = [(200_000, 200_010), (0, 3), (5, 5), (1, 100_000)]
    assert store.read_ranges(f"{root}/b/two.bin", ranges) == [PAYLOAD[start:stop] for start, stop in ranges]
    assert list(store.list(root)) == [f"{root}/a.bin", f"{root}/b/two.bin"]
    assert [entry.size_bytes for entry in store.scan(root)] == [3, len(PAYLOAD)]
    assert store.children(root) == ("a.bin", "b/")
    objects, folders = store.entries(root)
    assert ([entry.url for entry in objects], folders) == ([f"{root}/a.bin"], ("b",))
    # What a listing tells of an object is what looking at it tells.
    assert mark_of(store.stat(f"{root}/a.bin")).state in ("", *states_of(Stat(objects[0].size_bytes, objects[0].etag)))
    assert store.exists(f"{root}/a.bin")
    assert not store.exists(f"{root}/b")
    assert store.is_folder(f"{root}/b")
    assert not store.is_folder(f"{root}/c")
    for ask in (store.size, store.read, store.stat, lambda url: store.read(url, 0, 3)):
        with pytest.raises(StorageError) as caught:
            ask(f"{root}/missing.bin")
        assert caught.value.errno == errno.ENOENT
    with pytest.raises(StorageError, match="found at byte"):
        store.read(f"{root}/a.bin", 1, 9)
    half = store.open_writer(f"{root}/c.bin")
    with pytest.raises(KeyError), half:
        write_and_stop(half)
    assert not store.exists(f"{root}/c.bin")
    with store.open_writer(f"{root}/c.bin") as writer:
        writer.write(b"ha")
        writer.write(memoryview(b"lf"))
    again = pickle.loads(pickle.dumps(store))
    assert again.read(f"{root}/c.bin") == b"half"
    store.delete(f"{root}/c.bin")
    store.delete(f"{root}/c.bin")
    assert [url.rpartition("/")[2] for url in store.list(root)] == ["a.bin", "two.bin"]


def test_plain_paths_and_file_urls(tmp_path: Path) -> None:
    check_store(open_store(str(tmp_path)), str(tmp_path / "plain"))
    check_store(open_store("file:///x"), f"file://{tmp_path}/url")
    with pytest.raises(StorageError, match="on this machine"):
        open_store("file://elsewhere/x").read("file://elsewhere/x")


def test_versioned_folders_of_energon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVDATASET_CACHE_DIR", str(tmp_path))
    check_store(open_store("dss://coco@1.2"), "dss://coco@1.2/data")
    assert (tmp_path / "coco" / "1.2" / "data" / "a.bin").read_bytes() == b"one"
    with pytest.raises(StorageError, match="leads out"):
        open_store("dss://x").read("dss://coco@1.2/../../../etc/passwd")


def test_s3(s3: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(f"http://{s3[0]}:{s3[1]}").items():
        monkeypatch.setenv(name, value)
    check_store(open_store("s3://schemes"), "s3://schemes/s3")


def test_what_fsspec_knows() -> None:
    pytest.importorskip("fsspec")
    check_store(open_store("memory://schemes"), "memory://schemes/data")


def test_profiles_of_the_multi_storage_client(
    s3: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("multistorageclient")
    provider = {
        "type": "s3",
        "options": {"base_path": "schemes", "endpoint_url": f"http://{s3[0]}:{s3[1]}", "region_name": "us-east-1"},
    }
    keys = {"type": "S3Credentials", "options": {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}}
    config = tmp_path / "msc.yaml"
    config.write_text(json.dumps({"profiles": {"ours": {"storage_provider": provider, "credentials_provider": keys}}}))
    monkeypatch.setenv("MSC_CONFIG", str(config))
    check_store(open_store("msc://ours"), "msc://ours/msc")


def test_gcs_over_its_xml_interface(s3: tuple[str, int]) -> None:
    # fake-gcs-server takes no uploads by PUT (see test_gcs.py for all else); moto's S3 answers the same requests.
    store = open_store(
        "gs://schemes",
        base_url=f"http://{s3[0]}:{s3[1]}",
        bearer_token="planted",
        skip_signature=False,
        allow_http=True,
    )
    check_store(store, "gs://schemes/gs")


@pytest.fixture(scope="module")
def azurite() -> Iterator[str]:
    with azure_server("schemes") as endpoint:
        yield endpoint


@pytest.mark.parametrize("place", ["az://schemes", f"abfss://schemes@{ACCOUNT}.dfs.core.windows.net"])
def test_azure(azurite: str, place: str) -> None:
    named = {} if ACCOUNT in place else {"account_name": ACCOUNT}  # else the URL names it
    options = {**named, "account_key": AZURE_KEY, "endpoint": azurite, "allow_http": True}
    check_store(open_store(place, **options), f"{place}/data")


class _Ranges(http.server.SimpleHTTPRequestHandler):
    """Python's own server, with ranges."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        path = Path(self.translate_path(self.path))
        if wanted is None or not path.is_file():
            super().do_GET()
            return
        data = path.read_bytes()
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        part = data[int(first) : int(last) + 1 if last else None]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Last-Modified", self.date_time_string(int(path.stat().st_mtime)))
        self.end_headers()
        self.wfile.write(part)


class _NoRanges(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("handler", [_Ranges, _NoRanges])
def test_web_servers_with_and_without_ranges(
    handler: type[http.server.SimpleHTTPRequestHandler], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.bin").write_bytes(PAYLOAD)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/x.bin"
    with pytest.raises(ConfigError, match="without TLS"):
        open_store(url).read(url)
    monkeypatch.setenv("OMNILOOM_STORAGE_ALLOW_HTTP", "1")
    monkeypatch.setattr("omniloom.storage.open._OPENED", {})
    store = open_store(url)
    assert store.read(url) == PAYLOAD
    assert store.read(url, 1000, 2000) == PAYLOAD[1000:2000]
    assert store.read_ranges(url, [(5, 6), (200_000, 200_100)]) == [PAYLOAD[5:6], PAYLOAD[200_000:200_100]]
    assert store.size(url) == len(PAYLOAD)
    assert not store.exists(f"{url}.idx")
    assert store.read(f"{url}?sig=secret", 0, 5) == PAYLOAD[:5]  # the server's own query goes along
    if handler is _NoRanges:
        small = open_store(url, allow_http=True, whole_bytes=1000)
        with pytest.raises(StorageError, match="gives no ranges, and 300,000 bytes are more than the 1,000"):
            small.read(url, 1000, 2000)
    server.shutdown()


def test_a_forked_process_is_told_and_does_not_hang(s3: tuple[str, int]) -> None:
    program = """
import os
from omniloom.storage.open import open_store
store = open_store("s3://schemes")
store.write("s3://schemes/forked", b"x")
if os.fork() == 0:
    try:
        store.read("s3://schemes/forked")
    except OSError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
    variables = os.environ | environment(f"http://{s3[0]}:{s3[1]}")
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=True)
    assert "Use start_method='spawn'" in ran.stdout


def test_files_by_url(s3: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(f"http://{s3[0]}:{s3[1]}").items():
        monkeypatch.setenv(name, value)
    url = "s3://schemes/files/x.json"
    replace_file(url, "{}")
    assert read_file(url, what="file", advice="") == b"{}"
    remove_file(url)
    assert not file_exists(url)
    with pytest.raises(ValueError, match="there is no index"):
        read_file(url, what="index", advice="Make it.")


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "s3://other/x", "..", "a/../.."])
@pytest.mark.parametrize("base", ["s3://bucket/set", "/data/set", "https://host/set?token=1"])
def test_names_that_climb_out_are_refused(base: str, name: str) -> None:
    with pytest.raises(StorageError, match="leads out"):
        join_url(base, name)


def test_urls_are_joined_and_taken_apart() -> None:
    assert join_url("s3://b/set/?region=x", "a/./b.tar") == "s3://b/set/a/b.tar?region=x"
    assert parent_url("s3://b/set/a.tar?region=x") == "s3://b/set?region=x"
    assert parent_url("s3://b/set") == "s3://b"
    assert resolve_url("s3://b/mixes", "../sets/x") == "s3://b/sets/x"
    assert resolve_url("s3://b/mixes", "gs://c/x") == "gs://c/x"
    assert relative_to("s3://b/set/a/b.tar?x=1", "s3://b/set") == "a/b.tar"
    with pytest.raises(StorageError, match="climbs out of s3://b"):
        resolve_url("s3://b/mixes", "../../x")


def test_planted_secrets_show_up_nowhere(
    s3: tuple[str, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in environment(f"http://{s3[0]}:{s3[1]}").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMNILOOM_STORAGE_RETRY_SECONDS", "0")
    caplog.set_level(logging.DEBUG)
    planted = ["PLANTED-IN-QUERY", "PLANTED-OPTION", "PLANTED-USER", SECRET_KEY, ACCESS_KEY]
    urls = [
        "s3://schemes/nothing.bin?secret_access_key=PLANTED-IN-QUERY&access_key_id=PLANTED-IN-QUERY",
        f"http://PLANTED-USER:PLANTED-USER@{s3[0]}:{s3[1]}/schemes/x?X-Amz-Signature=PLANTED-IN-QUERY&sig=PLANTED-IN-QUERY",
        "https://127.0.0.1:1/x?token=PLANTED-IN-QUERY",
        "nosuch://PLANTED-USER:PLANTED-USER@host/x?sas=PLANTED-IN-QUERY",
    ]
    said = []
    for url in urls:
        for options in ({}, {"secret_access_key": "PLANTED-OPTION", "session_token": "PLANTED-OPTION"}):
            for ask in ("read", "stat", "write"):
                try:
                    store = open_store(url, **options)
                    said.append(repr(store) + str(store))
                    getattr(store, ask)(url, *([b"x"] if ask == "write" else []))
                except Exception as error:
                    said += [str(error), repr(error), str(error.__context__ if error.__suppress_context__ else "")]
                    said[-1] = ""  # what is suppressed is not shown by a trace
        said.append(redacted(url))
    said.append(redacted(f"connect failed: Authorization: Bearer PLANTED-OPTION, aws_secret_access_key={SECRET_KEY}"))
    ours = [one.getMessage() for one in caplog.records if one.name.startswith(("omniloom", "obstore"))]
    text = "\n".join(said + ours)
    assert "schemes" in text
    for secret in planted[:3]:
        assert secret not in text, [line for line in text.splitlines() if secret in line][:3]
    assert SECRET_KEY not in text
