"""The main commands on a web server, with ranges and without, and in Azure's emulator."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from tests.contract.azure_server import ACCOUNT, AZURE_KEY, azure_server
from tests.contract.remote_sets import remote_files, upload

from omniloom.tools.main import run

ROOT = Path(__file__).resolve().parents[2]
CRUDE = ("--non-interactive", "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset", "--no-progress")


class _NoRanges(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass


class _Ranges(_NoRanges):
    def do_GET(self) -> None:
        wanted, path = self.headers.get("Range"), Path(self.translate_path(self.path))
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


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMNILOOM_STORAGE_ALLOW_HTTP", "1")
    monkeypatch.setenv("OMNILOOM_STORAGE_RETRY_SECONDS", "5")
    monkeypatch.setattr("omniloom.storage.open._OPENED", {})
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(Path().glob("*:*"))  # no folder of this machine is called after a scheme


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Images and conversations, a prepared set, and its shards alone."""
    talks = tmp_path / "files" / "talks"
    talks.mkdir(parents=True)
    entries = []
    for number in range(8):
        Image.new("RGB", (40 + number, 48)).save(talks / f"{number}.png")
        turns = [{"from": "human", "value": "<image>\nWhich?"}, {"from": "gpt", "value": "One."}]
        entries.append({"id": str(number), "image": f"{number}.png", "conversations": turns})
    (talks / "talks.json").write_text(json.dumps(entries))
    _convert(capsys, str(talks), str(tmp_path / "files" / "set"))
    for shard in (tmp_path / "files" / "set").glob("*.tar"):
        (tmp_path / "files" / "raw").mkdir(exist_ok=True)
        (tmp_path / "files" / "raw" / shard.name).write_bytes(shard.read_bytes())
    return tmp_path / "files"


def _told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert run(list(words)) == code, capsys.readouterr()
    told = capsys.readouterr()
    return told.out + told.err


def _convert(capsys: pytest.CaptureFixture[str], talks: str, out: str) -> None:
    words = ("convert", "llava", f"{talks}/talks.json", "--images", talks, "--out", out)
    _told(capsys, *words, "--max-count", "4", "--no-progress")


@pytest.mark.parametrize("handler", [_Ranges, _NoRanges])
def test_a_web_server(handler: type[_NoRanges], files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    serve = functools.partial(handler, directory=str(files))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        web = f"http://127.0.0.1:{server.server_port}"
        try:
            here, there = (json.loads(_told(capsys, "info", f"{at}/set", "--json")) for at in (str(files), web))
            assert {**here, "path": ""} == {**there, "path": ""}
            for place in (f"{web}/set", f"{web}/talks/talks.json"):
                assert "no faults found" in _told(capsys, "lint", place, "--parallel", "1")
                _told(capsys, "preview", place, "--count", "1")
            _told(capsys, "inspect", f"{web}/set", "--count", "1")
            named = ("--shards", "shard-{000000..000001}.tar", "--meta-dir", "meta")
            _told(capsys, "prepare", f"{web}/raw", *CRUDE, *named)
            assert "no faults found" in _told(capsys, "lint", "meta", "--parallel", "1")
            _convert(capsys, f"{web}/talks", "again")
            assert Path("again/shard-000000.tar").read_bytes() == (files / "set/shard-000000.tar").read_bytes()
            for words in (("prepare", f"{web}/raw", *CRUDE), ("info", f"{web}/nothing")):
                told = _told(capsys, *words, code=1)
                assert "cannot be listed" in told
                assert "--shards" in told
                assert "<" not in told  # no page for people
            assert "--shards names all shards" in _told(
                capsys, "prepare", f"{web}/raw", *CRUDE, *named, "--exclude", "1", code=2
            )
        finally:
            server.shutdown()


@pytest.mark.slow
def test_azure(files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with azure_server("walk") as endpoint:
        for name, value in {"ACCOUNT_NAME": ACCOUNT, "ACCOUNT_KEY": AZURE_KEY, "ENDPOINT": endpoint}.items():
            monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
        bucket = "az://walk"
        for name in ("talks", "raw"):
            upload(files / name, f"{bucket}/{name}")
        _convert(capsys, f"{bucket}/talks", f"{bucket}/set")
        assert remote_files(f"{bucket}/set")["shard-000000.tar"] == (files / "set/shard-000000.tar").read_bytes()
        for share in ("0/2", "1/2"):
            _told(capsys, "prepare", f"{bucket}/raw", "--shard-range", share)
        _told(capsys, "merge", f"{bucket}/raw", *CRUDE)
        for place in (f"{bucket}/set", f"{bucket}/raw"):
            _told(capsys, "info", place)
            assert "no faults found" in _told(capsys, "lint", place, "--parallel", "1")
            _told(capsys, "preview", place, "--count", "1", "--html", f"{bucket}/page.html")
            _told(capsys, "prepare-media", place, "--media-metadata-by-extension", "--no-progress")
        assert "there is no such object" in _told(capsys, "info", "az://nowhere/x", code=1)
        upload(ROOT / "recipes", f"{bucket}/recipes")
        told = (f"data.train={bucket}/set", "data.validation=null", "evaluation={}", "folder=run", "loop.steps=2",
                f"checkpoint.place={bucket}/run", "checkpoint.every_steps=2",
                f"model.config={bucket}/recipes/models/tiny.json")  # fmt: skip
        sets = [word for one in told for word in ("--set", one)]
        _told(capsys, "train", f"{bucket}/recipes/tiny/pretrain.yaml", *sets)
        assert "complete.json" in " ".join(remote_files(f"{bucket}/run"))
