"""A proxy between a client and a real server that spoils answers as a test says."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import socketserver
import struct
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fault:
    """What becomes of one answer: one of the fields is set.

    Attributes:
        status: this status and body instead.
        body: of it.
        reset_at: the connection is reset after this share of the body.
        short: the body is a 206 of this share of the range asked for, and says so in its headers.
        whole: the range is forgotten and all of the object comes with 200.
        etag: another ETag.
        stall_seconds: nothing comes for so long after half of the body.
        header: replaces or adds a header of the answer.
    """

    status: int = 0
    body: bytes = b""
    reset_at: float | None = None
    short: float | None = None
    whole: bool = False
    etag: str | None = None
    stall_seconds: float = 0.0
    header: tuple[str, str] | None = None


@dataclass
class Seen:
    """One request that came."""

    method: str
    path: str
    range: str | None
    at_seconds: float
    authorization: str | None = None


@dataclass
class FaultProxy:
    """Forwards to ``upstream`` (host, port). ``faults[part of a path]`` are used up, one an answer.

    `stop` closes the listening socket and all connections; `start` opens the same port again.
    """

    upstream: tuple[str, int]
    delay_seconds: float = 0.0
    faults: dict[str, deque[Fault | None]] = field(default_factory=lambda: defaultdict(deque))
    seen: list[Seen] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._server: socketserver.BaseServer | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def plan(self, path: str, *faults: Fault | None) -> None:
        """Spoil the next answers whose path holds ``path``; ``None`` lets one through."""
        self.faults[path].extend(faults)

    def count(self, path: str, method: str = "GET") -> int:
        """Requests that came so far."""
        return sum(path in one.path and one.method == method for one in self.seen)

    def next_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for part, waiting in self.faults.items():
                if part in path and waiting and method in ("GET", "PUT", "POST"):
                    return waiting.popleft()
        return None

    def start(self) -> None:
        """Listen, on the port of before if there was one."""
        proxy = self

        class Handler(_Handler):
            owner = proxy

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 128

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        """Be away: connections are refused, those that are open are reset."""
        if self._server is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        for connection in list(self._connections):
            reset(connection)


def reset(connection: socket.socket) -> None:
    """Close with RST, as a dying server or a firewall does."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


class _Handler(http.server.BaseHTTPRequestHandler):
    owner: FaultProxy
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.owner._connections.add(self.connection)

    def finish(self) -> None:
        self.owner._connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        owner = self.owner
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        owner.seen.append(
            Seen(
                self.command, self.path, self.headers.get("Range"), time.monotonic(), self.headers.get("Authorization")
            )
        )
        fault = owner.next_fault(self.command, self.path) or Fault()
        if owner.delay_seconds:
            time.sleep(owner.delay_seconds)
        if fault.status:
            self._send(fault.status, {"Content-Type": "application/xml"}, fault.body)
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("connection",)}
        if fault.whole:
            headers = {name: value for name, value in headers.items() if name.lower() != "range"}
        status, answer, data = self._forward(headers, body)
        if fault.etag is not None:
            answer["ETag"] = fault.etag
        if fault.header is not None:
            answer[fault.header[0]] = fault.header[1]
        if fault.short is not None:
            data = data[: int(len(data) * fault.short)]
            start = int(answer["Content-Range"].split()[1].split("-")[0])
            total = answer["Content-Range"].split("/")[1]
            answer["Content-Range"] = f"bytes {start}-{start + len(data) - 1}/{total}"
        self._send(status, answer, data, fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PROPFIND = _answer  # noqa: N815 - names that http.server looks for

    def _forward(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        upstream = http.client.HTTPConnection(*self.owner.upstream, timeout=30)
        try:
            upstream.request(self.command, self.path, body=body or None, headers=headers)
            answer = upstream.getresponse()
            data = answer.read()
            return answer.status, dict(answer.getheaders()), data
        finally:
            upstream.close()

    def _send(self, status: int, headers: dict[str, str], data: bytes, fault: Fault | None = None) -> None:
        skipped = ("connection", "transfer-encoding", "content-length", "server", "date")
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in skipped:
                self.send_header(name, value)
        length = headers.get("Content-Length", len(data)) if self.command == "HEAD" else len(data)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault is not None and fault.reset_at is not None:
            self.wfile.write(data[: int(len(data) * fault.reset_at)])
            self.wfile.flush()
            time.sleep(0.02)
            reset(self.connection)
            self.close_connection = True
            return
        if fault is not None and fault.stall_seconds:
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            time.sleep(fault.stall_seconds)
            data = data[len(data) // 2 :]
        with contextlib.suppress(OSError):  # the client has given up
            self.wfile.write(data)
            self.wfile.flush()
