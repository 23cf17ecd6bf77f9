"""The cache pool: what it keeps, within which bounds, and that nothing is left of it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omniloom.data.sample import SourceInfo
from omniloom.data.side import DirectLazy, FileStore, FileStoreCachePool, MockLazy, NoCachePool
from omniloom.errors import ConfigError


class Slow(FileStore[bytes]):
    """A store that waits for permission, and notes what was read."""

    def __init__(self, *, path: str = "slow") -> None:
        self.path = path
        self.reads: list[str] = []
        self.go = threading.Event()
        self.go.set()

    def __getitem__(self, key: str) -> tuple[bytes, SourceInfo]:
        self.go.wait(10)
        self.reads.append(key)
        if key == "bad":
            raise ValueError("cannot be read")
        return key.encode() * 100, SourceInfo(self.path, key, "", (key,))

    def get_path(self) -> str:
        return self.path

    def _decode_raw(self, data: bytes, *, fname: str) -> bytes:
        return data


@pytest.fixture
def pool(tmp_path: Path) -> Any:
    made = FileStoreCachePool(parent_cache_dir=tmp_path / "cache", num_workers=2)
    yield made
    made.close()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end, "it did not come about within ten seconds"
        time.sleep(0.005)


def files(pool: FileStoreCachePool) -> list[Path]:
    return list(pool.cache_dir.iterdir())


def test_a_value_is_fetched_ahead_and_its_file_goes_when_it_was_used(pool: FileStoreCachePool) -> None:
    store = Slow()
    lazy = pool.get_lazy(store, "a")
    until(lambda: pool.current_cache_count == 1 and len(files(pool)) == 1)
    assert pool.current_cache_size == 100
    sample: dict[str, Any] = {"__sources__": ()}
    assert lazy.get(sample) == b"a" * 100
    assert sample["__sources__"] == (SourceInfo("slow", "a", "", ("a",)),)
    assert lazy.get() == b"a" * 100
    assert (store.reads, pool.current_cache_count, pool.current_cache_size, files(pool)) == (["a"], 0, 0, [])


def test_references_to_one_value_share_its_file(pool: FileStoreCachePool) -> None:
    store = Slow()
    first, second = pool.get_lazy(store, "a"), pool.get_lazy(store, "a")
    assert first == second
    assert hash(first) == hash(second)
    assert first.get() == second.get()
    assert store.reads == ["a"]
    assert files(pool) == []


def test_a_reference_that_is_dropped_gives_its_room_back(pool: FileStoreCachePool) -> None:
    lazy = pool.get_lazy(Slow(), "a")
    until(lambda: len(files(pool)) == 1)
    del lazy
    until(lambda: files(pool) == [])
    assert pool.current_cache_size == 0


def test_decoded_values_may_be_kept(tmp_path: Path) -> None:
    pool = FileStoreCachePool(parent_cache_dir=tmp_path, method="pickle")
    lazy = pool.get_lazy(Slow(), "a")
    until(lambda: len(files(pool)) == 1)
    assert pickle.loads(files(pool)[0].read_bytes()) == b"a" * 100
    assert lazy.get() == b"a" * 100
    pool.close()


def test_a_full_cache_is_passed_by(tmp_path: Path) -> None:
    pool = FileStoreCachePool(parent_cache_dir=tmp_path, num_workers=1, max_cache_count=1)
    store = Slow()
    lazies = [pool.get_lazy(store, name) for name in "abc"]
    until(lambda: pool.current_cache_count == 1)
    assert [lazy.get() for lazy in reversed(lazies)] == [name.encode() * 100 for name in "cba"]
    assert pool.current_cache_count == 0
    pool.close()


def test_the_size_is_never_passed(tmp_path: Path) -> None:
    pool = FileStoreCachePool(parent_cache_dir=tmp_path, num_workers=4, max_cache_size_gbytes=250 / (1 << 30))
    store = Slow()
    lazies = [pool.get_lazy(store, str(number % 10)) for number in range(60)]
    for lazy in lazies:
        assert pool.current_cache_size <= 250
        assert lazy.get() == lazy.fname.encode() * 100
    until(lambda: pool.current_cache_size == 0)
    assert files(pool) == []
    pool.close()


def test_a_fault_of_the_store_comes_out_at_every_use(pool: FileStoreCachePool) -> None:
    lazies = [pool.get_lazy(Slow(), "bad") for _ in range(2)]
    for lazy in lazies:
        with pytest.raises(ValueError, match="cannot be read"):
            lazy.get()
    assert pool._pending_tasks == {}


def test_values_are_put_away(pool: FileStoreCachePool) -> None:
    lazy = pool.to_cache({"a": [1, 2]}, "note")
    assert len(files(pool)) == 1
    assert lazy.get() == lazy.get() == {"a": [1, 2]}
    assert files(pool) == []
    dropped = pool.to_cache([1], "other")
    del dropped
    until(lambda: files(pool) == [])


def test_closing_removes_everything_and_ends_threads(tmp_path: Path) -> None:
    pool = FileStoreCachePool(parent_cache_dir=tmp_path)
    store = Slow()
    lazy = pool.get_lazy(store, "a")
    until(lambda: len(files(pool)) == 1)
    pool.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError, match="is closed"):
        pool.get_lazy(store, "b")
    assert lazy.fname == "a"


def _die_with_files(folder: str, ready: Any) -> None:
    pool = FileStoreCachePool(parent_cache_dir=folder)
    pool.to_cache([1], "left")
    ready.set()
    time.sleep(60)


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=_die_with_files, args=(str(tmp_path), ready))
    process.start()
    assert ready.wait(20)
    (left,) = tmp_path.glob("cache_*")
    living = FileStoreCachePool(parent_cache_dir=tmp_path)
    assert left.exists()  # its process lives
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    FileStoreCachePool(parent_cache_dir=tmp_path).close()
    assert not left.exists()
    assert living.cache_dir.exists()
    living.close()
    assert list(tmp_path.iterdir()) == []


def _in_child(pool: FileStoreCachePool, queue: Any) -> None:
    lazy = pool.get_lazy(Slow(), "child")
    queue.put((str(pool.cache_dir), lazy.get()))
    pool.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_each_process_has_a_folder_of_its_own(method: str, tmp_path: Path) -> None:
    pool = FileStoreCachePool(parent_cache_dir=tmp_path)
    kept = pool.to_cache("mine", "x")
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_in_child, args=(pool, queue))
    process.start()
    folder, value = queue.get(timeout=60)
    process.join()
    assert value == b"child" * 100
    assert folder != str(pool.cache_dir)
    assert not Path(folder).exists()
    assert kept.get() == "mine"
    pool.close()


@pytest.mark.parametrize(
    "settings", [{"method": "zip"}, {"num_workers": 0}, {"max_cache_count": 0}, {"max_cache_size_gbytes": 0}]
)
def test_settings_that_hold_nothing_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        FileStoreCachePool(**settings)


def test_lazies_without_a_cache() -> None:
    store, pool = Slow(), NoCachePool()
    lazy = pool.get_lazy(store, "a")
    assert isinstance(lazy, DirectLazy)
    assert store.reads == []
    sample: dict[str, Any] = {"__sources__": ()}
    assert lazy.get(sample) == lazy.get() == pool.get(store, "a") == b"a" * 100
    assert store.reads == ["a", "a"]
    assert len(sample["__sources__"]) == 1
    assert {lazy} == {pool.get_lazy(store, "a")}
    assert lazy != pool.get_lazy(Slow(), "a")
    assert pool.to_cache(7, "x").get() == 7
    mock = MockLazy("name", len)
    assert mock.get() == 4
    assert mock == MockLazy("name", len)
    pool.close()
