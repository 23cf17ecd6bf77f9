"""The cache on a machine's disk: each block once for all its processes, whatever dies in the midst of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omniloom.storage.block_cache import BLOCK_BYTES, BlockCache
from omniloom.storage.open import open_store
from omniloom.storage.store import Stat
from omniloom.storage.tickets import Tickets, is_alive, mark_of_process
from tests.contract.fault_proxy import FaultProxy
from tests.contract.s3_server import environment, s3_server

SIZE = 5 * BLOCK_BYTES + 1234
DATA = random.Random(3).randbytes(SIZE)


class Source:
    def __init__(self, delay_seconds: float = 0.0) -> None:
        self.asked: list[tuple[int, int]] = []
        self.delay_seconds = delay_seconds

    def __call__(self, start: int, stop: int) -> bytes:
        self.asked.append((start, stop))
        time.sleep(self.delay_seconds)
        return DATA[start:stop]


def cache_at(folder: Path, limit_bytes: int = 1 << 30) -> BlockCache:
    return BlockCache(folder, limit_bytes).prepare()


def read(cache: BlockCache, ranges: list[tuple[int, int]], source: Source, etag: str = "one") -> list[bytes]:
    return cache.read_ranges("s3://b/x", ranges, Stat(SIZE, etag), source, longest_bytes=4 * BLOCK_BYTES)


def test_blocks_are_fetched_once_and_neighbours_together(tmp_path: Path) -> None:
    source = Source()
    wanted = [(SIZE - 10, SIZE), (0, 5), (BLOCK_BYTES - 2, BLOCK_BYTES + 2), (7, 7)]
    assert read(cache_at(tmp_path), wanted, source) == [DATA[start:stop] for start, stop in wanted]
    assert source.asked == [(0, 2 * BLOCK_BYTES), (5 * BLOCK_BYTES, SIZE)]
    assert read(cache_at(tmp_path), wanted, source) == [DATA[start:stop] for start, stop in wanted]
    assert len(source.asked) == 2
    read(cache_at(tmp_path), wanted[:1], source, etag="two")  # another state of the object has other blocks
    assert len(source.asked) == 3
    assert cache_at(tmp_path).contents().blocks == 4


def test_of_many_at_once_one_fetches(tmp_path: Path) -> None:
    source = Source(delay_seconds=0.2)
    caches = [cache_at(tmp_path) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda cache: read(cache, [(0, SIZE)], source), caches))
    assert all(one == [DATA] for one in found)
    assert sorted(source.asked) == [(0, 4 * BLOCK_BYTES), (4 * BLOCK_BYTES, SIZE)]


def test_what_is_damaged_is_fetched_again(tmp_path: Path) -> None:
    source = Source()
    read(cache_at(tmp_path), [(0, SIZE)], source)
    blocks = sorted(tmp_path.rglob("*.block"))
    blocks[0].write_bytes(blocks[0].read_bytes()[:1000])  # cut
    blocks[1].write_bytes(bytes(len(blocks[1].read_bytes())))  # zeros, as after a loss of power
    blocks[2].write_bytes(blocks[2].read_bytes()[:-20] + b"x" * 20)
    damaged = bytearray(blocks[3].read_bytes())
    damaged[77] ^= 1
    blocks[3].write_bytes(damaged)
    assert read(cache_at(tmp_path), [(0, SIZE)], source) == [DATA]
    assert read(cache_at(tmp_path), [(0, SIZE)], Source()) == [DATA]


def test_it_stays_within_its_limit_and_the_oldest_go_first(tmp_path: Path) -> None:
    cache, source = cache_at(tmp_path, 8 * BLOCK_BYTES), Source()
    for number in range(6):
        cache.read_ranges(f"s3://b/{number}", [(0, SIZE)], Stat(SIZE, "e"), source, longest_bytes=BLOCK_BYTES)
        assert cache.contents().size_bytes <= 8 * BLOCK_BYTES
    asked = len(source.asked)
    cache_at(tmp_path).read_ranges("s3://b/5", [(0, SIZE)], Stat(SIZE, "e"), source, longest_bytes=BLOCK_BYTES)
    assert len(source.asked) == asked


def test_a_full_disk_stops_keeping_not_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    source, cache = Source(), cache_at(tmp_path)
    monkeypatch.setattr(os, "replace", full)
    assert read(cache, [(0, SIZE)], source) == [DATA]
    monkeypatch.undo()
    assert not list(tmp_path.rglob("*.partial"))
    assert not list(tmp_path.rglob("*.ticket"))


def test_tickets_of_the_dead_are_drawn_anew(tmp_path: Path) -> None:
    path = str(tmp_path / "x.ticket")
    child = subprocess.Popen(
        [sys.executable, "-c", f"from omniloom.storage.tickets import Tickets; import time\n"
         f"assert Tickets().draw({path!r}); print(1, flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    child.stdout.readline()
    assert not Tickets().draw(path)
    child.kill()
    child.wait()
    assert Tickets().draw(path)
    assert is_alive(mark_of_process(), age_seconds=1e9)
    pid, started, namespace = mark_of_process().split()
    assert not is_alive(f"{pid} {int(started) - 1} {namespace}", age_seconds=0.0)  # the number was given out again
    assert is_alive(f"{pid} {started} elsewhere", age_seconds=5.0)  # of another container: judged by its age
    assert not is_alive(f"{pid} {started} elsewhere", age_seconds=500.0)


READER = """
import os, sys, hashlib
from omniloom.storage.open import open_store
store = open_store("s3://cached")
for name in sys.argv[2:]:
    url = f"s3://cached/{name}"
    if sys.argv[1] == "list":
        assert len(list(store.list("s3://cached"))) == len(sys.argv) - 2
    print(hashlib.sha256(store.read(url, 0, store.size(url))).hexdigest(), flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with s3_server("cached") as place:
        yield place


@pytest.fixture
def proxy(server: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    proxy = FaultProxy(server)
    for name, value in environment(proxy.url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("omniloom.storage.open._OPENED", {})
    for number in range(4):
        open_store("s3://cached").write(f"s3://cached/{number}.bin", DATA[number:])
    monkeypatch.setenv("OMNILOOM_STORAGE_CACHE_BYTES", str(1 << 30))
    monkeypatch.setenv("OMNILOOM_STORAGE_CACHE_FOLDER", str(tmp_path / "cache"))
    proxy.seen.clear()
    proxy.delay_seconds = 0.05
    yield proxy
    proxy.stop()


def readers(count: int, *arguments: str) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen([sys.executable, "-c", READER, *arguments], stdout=subprocess.PIPE) for _ in range(count)]


def test_two_ranks_of_four_workers_fetch_each_block_once_and_list_once(proxy: FaultProxy) -> None:
    names = [f"{number}.bin" for number in range(4)]
    found = [one.communicate()[0].split() for one in readers(8, "list", *names)]
    assert all(one == found[0] and len(one) == 4 for one in found)
    assert proxy.count("list-type") == 1
    ranges = sorted((one.path, one.range) for one in proxy.seen if one.method == "GET" and "list-type" not in one.path)
    assert len(ranges) == len(set(ranges)) == 4  # of 6 blocks each, in one long range


def test_a_worker_killed_while_it_fills_the_cache_leaves_nothing_torn(proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.delay_seconds = 0.0
    whole = next(one.communicate()[0] for one in readers(1, "read", "0.bin"))
    for block in (tmp_path / "cache").rglob("*.block"):
        block.unlink()
    rng = random.Random(5)
    for _ in range(4):
        worker = readers(1, "read", "0.bin", "1.bin", "2.bin", "3.bin")[0]
        killer = threading.Timer(0.35 + 0.4 * rng.random(), lambda one=worker: one.send_signal(signal.SIGKILL))
        killer.start()
        worker.communicate()
        killer.cancel()
    started = time.monotonic()
    assert readers(1, "read", "0.bin")[0].communicate()[0] == whole
    assert time.monotonic() - started < 15
