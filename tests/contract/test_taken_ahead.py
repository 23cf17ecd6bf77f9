"""Batches that the trainer's thread takes: the loader's order, places, ends and errors; and nothing is left running."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omniloom import WorkerConfig, get_savable_loader, get_train_dataset
from omniloom.train import taken_ahead as module
from omniloom.train.taken_ahead import MOST_TAKEN, TakenAhead, taken_ahead


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("".join(json.dumps({"number": number}) + "\n" for number in range(50)))
    return path


def dataset(rows: Path, *, virtual_epoch_length: int = 0) -> Any:
    workers = WorkerConfig(rank=0, world_size=1, num_workers=2, lanes=12)
    return get_train_dataset(
        rows, worker_config=workers, batch_size=3, shuffle_buffer_size=20, virtual_epoch_length=virtual_epoch_length
    )


def numbers(batch: Any) -> str:
    return str(batch["json"])


def test_order_and_places_are_the_loaders(rows: Path) -> None:
    """Against the loader without workers and without a thread; also from a place in the midst, twice."""
    plain = get_savable_loader(dataset(rows), num_workers=0)
    expected, places = [], [plain.save_state_rank()]
    for _, batch in zip(range(40), plain, strict=False):
        expected.append(numbers(batch))
        places.append(plain.save_state_rank())

    ahead = taken_ahead(get_savable_loader(dataset(rows)), micro_batches=4)
    assert isinstance(ahead, TakenAhead)
    assert ahead.save_state_rank() == places[0]
    for number, batch in zip(range(25), ahead, strict=False):
        assert numbers(batch) == expected[number]
        if number % 6 == 0:
            time.sleep(0.05)  # the thread is ahead
        assert ahead.save_state_rank() == places[number + 1]
    for place in (7, 31):
        ahead.restore_state_rank(places[place])
        assert ahead.save_state_rank() == places[place]
        found = [numbers(batch) for _, batch in zip(range(6), ahead, strict=False)]
        assert found == expected[place : place + 6]
    ahead.close()
    assert ahead.save_state_rank() == places[31 + 6]
    assert not [thread for thread in threading.enumerate() if thread.name == "omniloom-batches"]
    assert ahead.stats()["worker_deaths"] == []


def test_passes_end_where_the_loaders_do(rows: Path) -> None:
    plain = get_savable_loader(dataset(rows, virtual_epoch_length=5), num_workers=0)
    ahead = TakenAhead(get_savable_loader(dataset(rows, virtual_epoch_length=5)), batches=8)
    for _ in range(3):
        expected = [(numbers(batch), plain.save_state_rank()) for batch in plain]
        assert len(expected) == 5
        assert [(numbers(batch), ahead.save_state_rank()) for batch in ahead] == expected
    ahead.close()


def test_without_workers_batches_are_made_here(rows: Path) -> None:
    loader = get_savable_loader(dataset(rows), num_workers=0)
    assert taken_ahead(loader, micro_batches=4) is loader


class Counting:
    """A loader of the numbers 0, 1, ... that fails at one of them, or stays there."""

    num_workers = 1

    def __init__(self, *, fails_at: int = -1, stays_at: int = -1) -> None:
        self.taken, self.closed = 0, False
        self._fails_at, self._stays_at = fails_at, stays_at
        self.goes_on = threading.Event()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.taken == self._fails_at:
            raise OSError("the disk is gone")
        if self.taken == self._stays_at:
            self.goes_on.wait()
        self.taken += 1
        return self.taken - 1

    def state(self) -> Any:
        taken = self.taken
        return SimpleNamespace(to_plain=lambda: {"taken": taken})

    def close(self) -> None:
        self.closed = True


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_no_more_than_asked_is_taken() -> None:
    loader: Any = Counting()
    ahead = TakenAhead(loader, batches=3)
    assert ahead.next_batch() == 0
    wait_for(lambda: loader.taken == 4)
    time.sleep(0.02)
    assert loader.taken == 4
    assert ahead.save_state_rank() == {"taken": 1}
    ahead.close()
    assert loader.closed
    many: Any = taken_ahead(Counting(), micro_batches=500)  # type: ignore[arg-type]
    assert many.next_batch() == 0
    wait_for(lambda: many.taken == 1 + MOST_TAKEN)
    many.close()


def test_an_error_comes_after_the_batches_before_it() -> None:
    loader: Any = Counting(fails_at=2)
    ahead = TakenAhead(loader, batches=8)
    assert [ahead.next_batch(), ahead.next_batch()] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone"):
        ahead.next_batch()
    assert ahead.save_state_rank() == {"taken": 2}
    ahead.close()
    assert loader.closed


def test_a_loader_that_hangs_does_not_keep_a_run_from_ending(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.05)
    loader: Any = Counting(stays_at=1)
    ahead = TakenAhead(loader, batches=2)
    assert ahead.next_batch() == 0
    ahead.close()
    assert "a batch has not come for 0.05 seconds" in caplog.text
    assert not loader.closed, "its thread is still in it"
    loader.goes_on.set()
