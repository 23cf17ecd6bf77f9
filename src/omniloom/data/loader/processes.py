"""Starting worker processes: a fresh interpreter by default, a fork of the caller on request."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import weakref
from multiprocessing.connection import Connection
from typing import Any, Literal, Protocol

import cloudpickle

from omniloom.data.loader.messages import WorkOrder
from omniloom.data.loader.worker import serve
from omniloom.errors import ConfigError

StartMethod = Literal["spawn", "fork"]

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # as torch's own workers have
    # Images come and go by the megabyte. glibc would take them from the kernel and give them back each time, and
    # every page would be cleared and mapped anew: decoding photographs is half as fast again without that.
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
"""What a fresh worker has in its environment, unless the caller's says otherwise."""

_OPEN_CONNECTIONS: weakref.WeakSet[Connection[Any, Any]] = weakref.WeakSet()
"""The caller's ends of all connections to workers."""


def _close_copies() -> None:
    """In a process that was forked: while it holds a copy of a connection, a worker would not see its caller go."""
    for connection in _OPEN_CONNECTIONS:
        connection.close()
    _OPEN_CONNECTIONS.clear()


os.register_at_fork(after_in_child=_close_copies)

_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
    "from omniloom.data.loader.worker import main; main(int(sys.argv[1]))"
)


class Process(Protocol):
    """A process that was started."""

    pid: int

    def wait(self, timeout_seconds: float | None) -> int | None:
        """Exit code (negative: a signal), or ``None`` while it runs."""

    def kill(self) -> None:
        """End it at once."""


def start_worker(order: WorkOrder, method: StartMethod) -> tuple[Process, Connection[Any, Any]]:
    """Start a worker and hand it its order.

    A fresh interpreter does not run the caller's ``__main__`` again, and classes and functions defined
    there (or in a notebook) are sent by value.
    """
    ours, theirs = socket.socketpair()
    connection: Connection[Any, Any] = Connection(ours.detach())
    _OPEN_CONNECTIONS.add(connection)
    with theirs:
        if method == "fork":
            return _Forked(theirs, order), connection
        try:
            payload = cloudpickle.dumps(order)
        except Exception as error:
            connection.close()
            raise ConfigError(
                f"the data set's pipeline cannot be sent to a worker process: {type(error).__name__}: {error}\n"
                "  Keep open files, locks and generators out of the task encoder, or use start_method='fork'."
            ) from error
        process = _Spawned(theirs.fileno())
    # A worker that dies at once is noticed where all deaths are, by its closed connection.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.send_bytes(payload)
    return process, connection


class _Spawned:
    def __init__(self, descriptor: int) -> None:
        environment = WORKER_ENVIRONMENT | os.environ
        folders = [folder for folder in sys.path if isinstance(folder, str)]  # others are never imported from
        arguments = [sys.executable, "-c", _BOOT, str(descriptor), json.dumps(folders)]
        self._process = subprocess.Popen(
            arguments, pass_fds=[descriptor], env=environment, stdin=subprocess.DEVNULL, close_fds=True
        )
        self.pid = self._process.pid

    def wait(self, timeout_seconds: float | None) -> int | None:
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        self._process.kill()


class _Forked:
    def __init__(self, theirs: socket.socket, order: WorkOrder) -> None:
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_run_forked, args=(theirs, order), daemon=True)
        self._process.start()
        self.pid = self._process.pid or -1

    def wait(self, timeout_seconds: float | None) -> int | None:
        self._process.join(timeout_seconds)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()


def _run_forked(theirs: socket.socket, order: WorkOrder) -> None:
    serve(Connection(theirs.detach()), order)
