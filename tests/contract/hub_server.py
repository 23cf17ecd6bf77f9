"""A hub of data sets and models on loopback: as much of the Hugging Face hub's interface as its own client asks for."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

COMMIT = "a" * 40


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves a folder as the data set, and as the model, ``owner/name``; ``seen`` keeps what was asked for."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments: Any, root: Path, seen: list[tuple[str, str, str | None]]) -> None:
        self._root, self._seen = root, seen
        super().__init__(*arguments)

    def log_message(self, *_: Any) -> None:
        """Nothing is said."""

    def do_GET(self) -> None:
        """Facts of the data set, a listing, or a file."""
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self._seen.append((self.command, path, self.headers.get("Range")))
        facts, tree, files = "/api/datasets/owner/name", "tree/main", "/datasets/owner/name/resolve/main/"
        if path.startswith(("/api/models/", "/owner/")):
            facts, tree, files = "/api/models/owner/name", f"tree/{COMMIT}", f"/owner/name/resolve/{COMMIT}/"
        if path in (facts, f"{facts}/revision/main"):
            self._say({"id": "owner/name", "sha": COMMIT, "siblings": []})
        elif path.startswith(f"{facts}/{tree}"):
            self._list(self._root / path[len(f"{facts}/{tree}") :].strip("/"))
        elif path.startswith(files):
            self._give(self._root / path[len(files) :])
        else:
            self._missing()

    do_HEAD = do_GET  # noqa: N815 - the standard library's name

    def do_POST(self) -> None:
        """What lies at some paths."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        paths = json.loads(body)["paths"]
        self._say([self._entry(self._root / one) for one in paths if (self._root / one).exists()])

    def _list(self, folder: Path) -> None:
        if not folder.is_dir():
            self._missing()
            return
        deep = "recursive=true" in self.path.lower()
        self._say([self._entry(path) for path in sorted(folder.rglob("*") if deep else folder.iterdir())])

    def _entry(self, path: Path) -> dict[str, Any]:
        name = path.relative_to(self._root).as_posix()
        if path.is_dir():
            return {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}
        digest = hashlib.sha1(path.read_bytes()).hexdigest()
        return {"type": "file", "oid": digest, "size": path.stat().st_size, "path": name}

    def _give(self, path: Path) -> None:
        if not path.is_file():
            self._missing()
            return
        data, asked = path.read_bytes(), self.headers.get("Range")
        first, _, last = (asked or "bytes=0-").removeprefix("bytes=").partition("-")
        start, stop = int(first), min(len(data), int(last) + 1) if last else len(data)
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        digest = hashlib.sha1(data).hexdigest()  # the client keeps files under it
        self._finish(data[start:stop], {"ETag": f'"{digest}"', "X-Repo-Commit": COMMIT})

    def _say(self, answer: Any) -> None:
        self.send_response(200)
        self._finish(json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _missing(self) -> None:
        self.send_response(404)
        self._finish(b"", {"X-Error-Code": "EntryNotFound"})

    def _finish(self, body: bytes, headers: dict[str, str]) -> None:
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def hub_server(root: Path) -> Iterator[tuple[str, list[tuple[str, str, str | None]]]]:
    """Endpoint of a hub over a folder, and what is asked of it."""
    seen: list[tuple[str, str, str | None]] = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, root=root, seen=seen)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", seen
        finally:
            server.shutdown()
