"""What a machine knows of shards in a store: by a listing, by a check that is done once, and by nothing else."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from omniloom.data.index.omniloom_json import ShardMark
from omniloom.data.index.shard_states import ShardStates
from omniloom.data.shards.remote_archive import mark_of
from omniloom.errors import ShardError
from omniloom.storage.store import Stat


def state_of(etag: str) -> str:
    return mark_of(Stat(10, etag)).state


def test_a_listing_tells_which_shards_are_as_they_were(tmp_path: Path) -> None:
    marks = {
        "same": ShardMark(10, "f", False, state_of('"a"')),
        "unquoted": ShardMark(10, "f", False, state_of('"b"')),
        "other": ShardMark(10, "f", False, state_of('"c"')),
        "longer": ShardMark(11, "f", False, state_of('"a"')),
        "uploaded": ShardMark(10, "f", False),
    }
    tags = {"same": '"a"', "unquoted": "b", "other": '"d"', "longer": '"a"', "uploaded": '"e"'}
    states = ShardStates(tmp_path / "states")
    assert not states.is_fresh()
    states.note_listing(marks, {name: Stat(10, tag) for name, tag in tags.items()})
    assert states.is_fresh()
    assert ShardStates(tmp_path / "states").good_states(marks).keys() == {"same", "unquoted"}
    states.check_once("uploaded", state_of('"e"'), lambda: None)
    states.note_listing(marks, {name: Stat(10, tag) for name, tag in tags.items()})
    assert states.good_states(marks).keys() == {"same", "unquoted", "uploaded"}
    states.note_listing(marks, {name: Stat(10, '"new"') for name in tags})
    assert states.good_states(marks).keys() == set()


def test_processes_check_a_shard_once(tmp_path: Path) -> None:
    checked: list[int] = []
    slow = threading.Event()

    def check(number: int) -> None:
        checked.append(number)
        slow.wait(0.3)

    states = [ShardStates(tmp_path) for _ in range(4)]  # as of four processes, but that the tickets tell one
    threads = [
        threading.Thread(target=one.check_once, args=("s0", "ab", lambda number=number: check(number)))
        for number, one in enumerate(states)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(checked) == 1
    assert all(one.was_checked("s0", "ab") for one in states)
    assert not states[0].was_checked("s0", "cd")


def test_what_was_found_bad_is_checked_by_the_next(tmp_path: Path) -> None:
    def bad() -> None:
        raise ShardError("stale", shard="s0", reason="index-stale")

    states = ShardStates(tmp_path)
    for _ in range(2):
        with pytest.raises(ShardError, match="stale"):
            states.check_once("s0", "ab", bad)
    assert not states.was_checked("s0", "ab")
    assert not list(tmp_path.glob("checking-*"))


def test_a_line_that_was_cut_counts_nothing(tmp_path: Path) -> None:
    states = ShardStates(tmp_path)
    states.check_once("s0", "ab", lambda: None)
    with (tmp_path / "checked-shards.jsonl").open("ab") as file:
        file.write(b'["s1", "c')
    again = ShardStates(tmp_path)
    assert again.was_checked("s0", "ab")
    assert not again.was_checked("s1", "c")
