"""Rows that are read before they are due: taken once, bounded, with their errors."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omniloom.data.mix.join_rows import JoinRows
from omniloom.data.sample import RawSample
from omniloom.data.shards import brought
from omniloom.data.shards.brought import BroughtRows
from omniloom.errors import SampleError


class Rows(BroughtRows):
    """Rows whose reading is counted; the seventh cannot be read."""

    is_far = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def read_now(self, row: int) -> RawSample:
        self.asked.append(row)
        if row == 7:
            raise SampleError("gone", reason="missing-file")
        return RawSample(f"key{row}", "", {"bin": b"x" * 100})


def test_a_row_is_read_once_for_all_who_asked_for_it() -> None:
    rows = Rows()
    rows.bring(3)
    rows.bring(3)
    assert rows._shelf.held_bytes == 100
    first = rows.read(3)
    first.parts.clear()  # what one does with it is no matter of the others
    assert rows.read(3).parts == {"bin": b"x" * 100}
    assert rows.asked == [3]
    assert rows._shelf.held_bytes == 0
    rows.read(3)
    assert rows.asked == [3, 3]


def test_errors_come_when_the_row_is_read() -> None:
    rows = Rows()
    rows.bring(7)
    with pytest.raises(SampleError, match="gone"):
        rows.read(7)
    assert rows.asked == [7]


def test_no_more_is_held_than_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows()
    monkeypatch.setattr(brought, "MOST_ROWS", 10)
    for row in range(100, 130):
        rows.bring(row)
    assert rows._shelf.held_bytes == 1000
    assert [rows.read(row).name for row in (100, 129)] == ["key100", "key129"]
    monkeypatch.setattr(brought, "MOST_BYTES", 0)
    rows.bring(200)
    assert 200 not in rows.asked


def test_who_comes_while_it_is_read_waits() -> None:
    rows, begun, go_on = Rows(), threading.Event(), threading.Event()
    read_now = rows.read_now

    def slow(row: int) -> RawSample:
        begun.set()
        go_on.wait(5)
        return read_now(row)

    rows.read_now = slow  # type: ignore[method-assign]
    thread = threading.Thread(target=rows.bring, args=(1,))
    thread.start()
    begun.wait(5)
    threading.Timer(0.05, go_on.set).start()
    assert rows.read(1).name == "key1"
    thread.join()
    assert rows.asked == [1]


def test_a_copy_elsewhere_is_empty() -> None:
    rows = Rows()
    rows.bring(1)
    assert pickle.loads(pickle.dumps(rows._shelf)).take(1) is None


def test_a_join_brings_what_its_sources_bring(tmp_path: Path) -> None:
    np.save(tmp_path / "index.npy", np.array([[0, 1], [2, 3], [4, -1]]))
    first, second = Rows(), Rows()
    joined: Any = JoinRows((first, second), str(tmp_path / "index.npy"))  # type: ignore[arg-type]
    assert joined.is_far
    assert joined.brings
    assert joined.brought_at_a_time == 16
    for row in (1, 2):
        joined.bring(row)
    joined.make_ready(0)
    assert (first.asked, second.asked) == ([2, 4], [3])
    assert joined.read(1).name == "key2"
    assert (first.asked, second.asked) == ([2, 4], [3])
