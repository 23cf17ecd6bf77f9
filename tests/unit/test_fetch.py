"""Downloads against a server on loopback: resumed, checked, refused; and the table of names."""

import hashlib
import json
import re
import shutil
import threading
from collections import namedtuple
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest
from click.testing import CliRunner

from omniloom.errors import ConfigError, StorageError
from omniloom.tools import fetch as fetch_module
from omniloom.tools.download import Remote, download, is_there
from omniloom.tools.fetch import CHECKSUMS, command, find_item
from omniloom.tools.fetch_table import ALIASES, ITEMS

BODY = bytes(range(256)) * 5000
SUM = hashlib.sha256(BODY).hexdigest()
Seen = namedtuple("Seen", "path range authorization")


class Server(ThreadingHTTPServer):
    """Serves ``files``; ``break_after`` cuts the next answers, ``ranges`` says whether it can resume."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.pages, self.seen = {}, {}, []
        self.break_after, self.ranges, self.etag = [], True, '"1"'
        self.redirects = {}

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        server = self.server
        path = unquote(urlsplit(self.path).path)
        server.seen.append(Seen(self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        if path in server.redirects:
            self.send_response(302)
            self.send_header("Location", server.redirects[path])
            self.end_headers()
            return
        if self.path in server.pages:
            body, link = server.pages[self.path]
            self.send_response(200)
            if link:
                self.send_header("Link", f'<{server.url}{link}>; rel="next"')
            self.end_headers()
            self.wfile.write(body)
            return
        if path not in server.files:
            self.send_error(404)
            return
        self.send_body(server.files[path])

    def send_body(self, body):
        server = self.server
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        fits = self.headers.get("If-Range") in {None, server.etag}
        start = int(found[1]) if found and server.ranges and fits else 0
        if start > len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("ETag", server.etag)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        end = start + server.break_after.pop(0) if server.break_after else len(body)
        self.wfile.write(body[start:end])


@pytest.fixture
def server():
    found = Server()
    threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def test_a_break_is_resumed_where_it_stopped(server, tmp_path):
    server.files["/a"] = BODY
    server.break_after = [300_000, 100_000]
    told = []
    remote = Remote(f"{server.url}/a", len(BODY), SUM)
    assert download(remote, tmp_path / "a", tell=lambda *n: told.append(n), pauses_seconds=(0, 0, 0)) == SUM
    assert (tmp_path / "a").read_bytes() == BODY
    assert [seen.range for seen in server.seen] == [None, "bytes=300000-", "bytes=400000-"]
    assert told[-1] == (len(BODY), len(BODY))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert is_there(remote, tmp_path / "a")


def test_a_later_command_goes_on_with_what_an_earlier_one_left(server, tmp_path):
    server.files["/a"] = BODY
    server.break_after = [500_000]
    with pytest.raises(StorageError, match="What there is of it is kept"):
        download(Remote(f"{server.url}/a"), tmp_path / "a", pauses_seconds=())
    assert not (tmp_path / "a").exists()
    download(Remote(f"{server.url}/a"), tmp_path / "a", pauses_seconds=())
    assert server.seen[-1].range == "bytes=500000-"
    assert (tmp_path / "a").read_bytes() == BODY


def test_a_file_that_changed_meanwhile_is_fetched_anew(server, tmp_path):
    server.files["/a"] = BODY
    server.break_after = [500_000]
    with pytest.raises(StorageError):
        download(Remote(f"{server.url}/a"), tmp_path / "a", pauses_seconds=())
    server.files["/a"], server.etag = BODY[::-1], '"2"'
    download(Remote(f"{server.url}/a"), tmp_path / "a", pauses_seconds=())
    assert (tmp_path / "a").read_bytes() == BODY[::-1]


def test_a_server_that_cannot_resume_and_a_file_that_shrank_begin_again(server, tmp_path):
    server.files["/a"] = BODY
    server.ranges = False
    server.break_after = [500_000]
    download(Remote(f"{server.url}/a", len(BODY), SUM), tmp_path / "a", pauses_seconds=(0,))
    assert (tmp_path / "a").read_bytes() == BODY
    server.ranges = True
    (tmp_path / "b.partial").write_bytes(BODY + BODY)
    server.files["/b"] = BODY
    download(Remote(f"{server.url}/b", None, SUM), tmp_path / "b", pauses_seconds=(0,))
    assert (tmp_path / "b").read_bytes() == BODY


@pytest.mark.parametrize(
    ("size", "checksum", "text"), [(len(BODY), "0" * 64, "SHA-256"), (7, None, "7 were announced")]
)
def test_what_is_not_what_was_announced_is_thrown_away(server, tmp_path, size, checksum, text):
    server.files["/a"] = BODY
    with pytest.raises(StorageError, match=text):
        download(Remote(f"{server.url}/a", size, checksum), tmp_path / "a", pauses_seconds=())
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "a.partial").exists()


def test_what_is_gone_or_not_the_web_is_not_tried_again(server, tmp_path):
    with pytest.raises(StorageError, match="404"):
        download(Remote(f"{server.url}/gone"), tmp_path / "a", pauses_seconds=(100,))
    with pytest.raises(StorageError, match="only http and https"):
        download(Remote("file:///etc/passwd"), tmp_path / "a", pauses_seconds=())


def a_repository(server, files, *, owner="o/n", kind="models"):
    """A repository as the hub lists it, in two pages."""
    entries = [{"type": "directory", "path": "sub", "size": 0}]
    for path, body in files.items():
        entry = {"type": "file", "path": path, "size": len(body)}
        if path.endswith((".safetensors", ".parquet")):
            entry["lfs"] = {"oid": hashlib.sha256(body).hexdigest(), "size": len(body)}
        entries.append(entry)
        middle = "" if kind == "models" else f"{kind}/"
        server.files[f"/{middle}{owner}/resolve/main/{path}"] = body
    first = f"/api/{kind}/{owner}/tree/main?recursive=true"
    server.pages[first] = (json.dumps(entries[:2]).encode(), f"{first}&cursor=2")
    server.pages[f"{first}&cursor=2"] = (json.dumps(entries[2:]).encode(), None)


def run(*words, **environment):
    return CliRunner().invoke(command, [str(word) for word in words], env=environment, catch_exceptions=True)


def test_a_model_of_the_hub_comes_with_one_copy_of_its_weights(server, tmp_path):
    a_repository(
        server,
        {
            "config.json": b"{}",
            "model.safetensors": BODY,
            "pytorch_model.bin": BODY,
            "tokenizer.json": b"[]",
            "code.py": b"raise SystemExit",
            "original/consolidated.safetensors": BODY,
        },
    )
    server.redirects["/o/n/resolve/main/model.safetensors"] = f"http://localhost:{server.server_port}/store"
    server.files["/store"] = BODY
    done = run("hf:o/n", "--out", tmp_path / "m", "--endpoint", server.url, HF_TOKEN="secret")
    assert done.exit_code == 0, done.output
    names = sorted(path.name for path in (tmp_path / "m").iterdir())
    assert names == [CHECKSUMS, "config.json", "model.safetensors", "tokenizer.json"]
    assert f"{SUM}  model.safetensors" in (tmp_path / "m" / CHECKSUMS).read_text()
    # The token goes to the hub, and not to the store that it sends us to.
    assert {seen.authorization for seen in server.seen if seen.path != "/store"} == {"Bearer secret"}
    assert [seen.authorization for seen in server.seen if seen.path == "/store"] == [None]
    requests = len(server.seen)
    again = run("hf:o/n", "--out", tmp_path / "m", "--endpoint", server.url)
    assert "0 of 3 files" in again.output
    assert len(server.seen) == requests + 2  # only the list


@pytest.mark.parametrize("path", ["../a.json", "/a.json", "sub/../../a.json", "..\\a.json"])
def test_a_path_that_climbs_is_refused(server, tmp_path, monkeypatch, path):
    monkeypatch.setitem(ITEMS, "all", ITEMS["mmmu"]._replace(repository="o/n", wanted=()))
    a_repository(server, {"a.json": b"{}", path: b"{}"}, kind="datasets")
    done = run("all", "--out", tmp_path / "m", "--endpoint", server.url)
    assert isinstance(done.exception, StorageError)
    assert "outside its folder" in str(done.exception)
    assert not (tmp_path / "m").exists()


def test_the_disk_is_looked_at_first(server, tmp_path, monkeypatch):
    a_repository(server, {"images.zip": BODY, "a.json": b"{}"}, owner="liuhaotian/LLaVA-Pretrain", kind="datasets")
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(fetch_module.shutil, "disk_usage", lambda _path: usage(78_000_000_000))
    done = run("llava-pretrain", "--out", tmp_path / "d", "--endpoint", server.url)
    assert "needs 79.0 GB, and 78.0 GB are free" in str(done.exception)
    monkeypatch.setattr(fetch_module.shutil, "disk_usage", lambda _path: usage(80_000_000_000))
    told = run("llava-pretrain", "--out", tmp_path / "d", "--endpoint", server.url, "--dry-run")
    assert "images.zip" in told.output
    assert not (tmp_path / "d").exists()
    assert run("llava-pretrain", "--out", tmp_path / "d", "--endpoint", server.url).exit_code == 0
    assert (tmp_path / "d/images.zip").read_bytes() == BODY
    shutil.rmtree(tmp_path / "d")


def test_openai_archives_come_by_openais_names(server, tmp_path, monkeypatch):
    item = ITEMS["openai-clip-l14-336"]
    (file,) = item.files
    assert file.sha256 in file.url  # OpenAI's addresses hold the checksum
    server.files["/ViT.pt"] = BODY
    local = item._replace(files=(file._replace(url=f"{server.url}/ViT.pt", sha256=SUM),))
    monkeypatch.setitem(ITEMS, "openai-clip-l14-336", local)
    assert run("ViT-L/14@336px", "--download-root", tmp_path).exit_code == 0
    assert (tmp_path / "ViT-L-14-336px.pt").read_bytes() == BODY


def test_the_table_is_sound():
    for name, item in ITEMS.items():
        assert bool(item.repository) != bool(item.files), name
        assert item.summary, name
    assert set(ALIASES.values()) <= set(ITEMS)
    assert "llava-pretrain" in run("--list").output
    with pytest.raises(ConfigError, match="fetch --list"):
        find_item("no-such-model")
    with pytest.raises(ConfigError, match="OWNER/NAME"):
        find_item("hf:../x")
