"""Ranks that tell each other through a store whether they have a state; threads stand for ranks."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from omniloom.data.loader.collective import PresenceBoard
from omniloom.errors import StateError


def answers(told: dict[int, bool], ranks: int, timeout_seconds: float) -> dict[int, str]:
    """What each rank that comes is told; an empty text: nothing is wrong."""
    store = dist.HashStore()  # type: ignore[attr-defined]
    store.set_timeout(timedelta(seconds=5))
    found: dict[int, str] = {}

    def run(rank: int, present: bool) -> None:
        time.sleep(0.01 * rank)
        board = PresenceBoard(store, "round", ranks)
        board.tell(rank, present)
        try:
            board.agree(timeout_seconds)
            found[rank] = ""
        except StateError as error:
            found[rank] = str(error)

    threads = [threading.Thread(target=run, args=one) for one in told.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_all_have_one_or_none() -> None:
    assert answers(dict.fromkeys(range(4), True), 4, 5) == dict.fromkeys(range(4), "")
    assert answers(dict.fromkeys(range(3), False), 3, 5) == dict.fromkeys(range(3), "")


def test_some_have_none() -> None:
    found = answers({0: True, 1: False, 2: True, 3: False}, 4, 5)
    assert all(text.startswith("ranks 1, 3 of 4 have no state to restore, the others have") for text in found.values())
    assert len(found) == 4


def test_a_rank_that_never_asks_is_named_in_time() -> None:
    begin = time.monotonic()
    found = answers({0: True, 2: True}, 4, 0.3)
    assert time.monotonic() - begin < 2
    for text in found.values():
        assert text.startswith("ranks 1, 3 of 4 did not ask for a state within 0.3 s; the others did.")
        assert "restore_state_rank(None)" in text


def test_who_is_waited_for_is_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omniloom.data.loader.collective._TOLD_AFTER_SECONDS", 0.05)
    answers({0: True}, 2, 0.2)
    assert "restoring waits for ranks 1 of 2" in caplog.text
