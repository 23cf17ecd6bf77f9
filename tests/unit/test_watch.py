"""What a dead worker's end is called, and what can be seen of a living one."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from omniloom.data.loader import watch
from omniloom.data.loader.watch import Board, StackFile, exit_cause
from omniloom.data.sample import SampleKey


@pytest.mark.parametrize(
    ("code", "for_memory", "words"),
    [
        (3, False, "ended with exit code 3"),
        (-signal.SIGSEGV, False, "was killed by SIGSEGV"),
        (-signal.SIGKILL, False, "was killed by SIGKILL"),
        (-signal.SIGKILL, True, "was killed by SIGKILL (the kernel ran out of memory)"),
        (-signal.SIGTERM, True, "was killed by SIGTERM"),
        (-63, False, "was killed by signal 63"),
    ],
)
def test_ends_in_words(code: int, for_memory: bool, words: str) -> None:
    assert exit_cause(code, killed_for_memory=for_memory) == words


def test_kills_for_memory_are_read_from_the_kernels_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = tmp_path / "counts"
    counts.write_text("pgfault 12\noom_kill 3\noom_kill_disable 9\n")
    monkeypatch.setattr(watch, "Path", lambda _path: counts)
    assert watch.out_of_memory_kills() == 6  # the same file stands for both places
    monkeypatch.setattr(watch, "Path", lambda _path: tmp_path / "absent")
    assert watch.out_of_memory_kills() == 0


def test_a_board_shows_the_key_to_whoever_maps_it() -> None:
    board, descriptor = Board.create()
    other = Board(descriptor)
    os.close(descriptor)
    assert other.read() is None
    board.take_in_hand(*SampleKey(3, 1, 2**40, 5))
    assert other.read() == SampleKey(3, 1, 2**40, 5)
    board.clear()
    assert other.read() is None


def test_stacks_of_all_threads_are_told() -> None:
    stop = threading.Event()

    def wait_for_a_friend() -> None:
        stop.wait()

    thread = threading.Thread(target=wait_for_a_friend)
    thread.start()
    file = StackFile.register()
    try:
        text = file.ask(os.getpid())
    finally:
        stop.set()
        thread.join()
    assert "wait_for_a_friend" in text
    assert "test_stacks_of_all_threads_are_told" in text
