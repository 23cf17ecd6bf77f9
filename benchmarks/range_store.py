"""The lean range server as a store of the benchmarks: a process of its own that counts what is asked of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
LATENCY_SECONDS = 0.05
"""What the server waits before every answer."""


class RangeStore:
    """A store over a folder: ``s3://bucket`` with the variables of `environment`.

    Args:
        folder: what it holds.
        latency_seconds: what it waits before every answer.
        bytes_per_second: of a connection, at most; 0: as many as there are.
    """

    def __init__(
        self, folder: Path, latency_seconds: float = LATENCY_SECONDS, *, bytes_per_second: float = 0.0
    ) -> None:
        program = str(HERE / "programs" / "range_server.py")
        command = [sys.executable, program, str(folder), str(latency_seconds), str(bytes_per_second)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = f"http://127.0.0.1:{int(self._line())}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which clients find it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "benchmark",
            "AWS_SECRET_ACCESS_KEY": "benchmark",
            "AWS_REGION": "us-east-1",
            "OMNILOOM_STORAGE_ALLOW_HTTP": "1",
        }

    def counts(self) -> dict[str, int]:
        """Requests and bytes since the last call."""
        if self._process.stdin is None:
            raise RuntimeError("the server has no input")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, int] = json.loads(self._line())
        return found

    def _line(self) -> str:
        if self._process.stdout is None:
            raise RuntimeError("the server has no output")
        return self._process.stdout.readline()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@contextmanager
def range_store(folder: Path, *, bytes_per_second: float = 0.0) -> Iterator[RangeStore]:
    """A store that is there for a while."""
    store = RangeStore(folder, bytes_per_second=bytes_per_second)
    try:
        yield store
    finally:
        store.stop()
