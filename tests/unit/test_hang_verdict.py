"""What the watch says of ranks that stand still: who stopped, where, and who waits."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from omniloom.errors import ConfigError
from omniloom.train.hang_watch import HangConfig, HangWatch, Stand, read_stands, verdict

FOLDER = Path("runs/a/hang")


def stand(rank: int, *, step: int = 7, collective: bool = True, told_at: float = 1000.0) -> Stand:
    return Stand(
        rank=rank, host=f"node{rank}", pid=100 + rank, step=step, doing="computes", seconds=30.0, told_at=told_at,
        in_collective=collective, stack=f"stack of {rank}",
    )  # fmt: skip


def test_the_one_that_waits_for_nobody_has_stopped() -> None:
    told = verdict([stand(0), stand(1, collective=False), stand(2)], ranks=3, folder=FOLDER)
    assert "Rank 1 of 3 (node1, pid 101) has stopped: at step 7 it computes. Its stack:\nstack of 1" in told
    assert "Ranks 0, 2 wait for it." in told
    assert "stack of 0" not in told


def test_a_rank_that_is_behind_has_stopped_whoever_else_computes() -> None:
    told = verdict([stand(0, step=8, collective=False), stand(1, step=7, collective=False)], ranks=2, folder=FOLDER)
    assert "Rank 1 of 2" in told
    assert "Rank 0 waits for it" in told


def test_a_rank_that_tells_nothing_has_stopped() -> None:
    told = verdict([stand(0), stand(2)], ranks=4, folder=FOLDER)
    assert told.startswith("no progress for 30 s at step 7. Ranks 1, 3 of 4 told nothing")


def test_where_all_wait_it_is_the_network() -> None:
    assert "All ranks wait in collectives" in verdict([stand(0), stand(1)], ranks=2, folder=FOLDER)


def test_records_of_another_time_do_not_count(tmp_path: Path) -> None:
    for rank, told_at in ((0, 1000.0), (1, 400.0)):
        (tmp_path / f"rank-{rank:05d}.json").write_text(json.dumps(asdict(stand(rank, told_at=told_at))))
    (tmp_path / "rank-00002.json").write_text('{"rank": 2')
    assert read_stands(tmp_path, newer_than=900.0) == [stand(0)]


def test_a_rank_that_goes_on_takes_back_what_it_told(tmp_path: Path) -> None:
    """Else a record of a slow step would speak for a rank that stops in the next one."""
    watch, record = (
        HangWatch(HangConfig(after_seconds=0.05), tmp_path, rank=0, ranks=2),
        tmp_path / "hang/rank-00000.json",
    )

    def wait_until(there: bool) -> None:
        deadline = time.monotonic() + 10
        while record.exists() is not there:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    watch.waiting()
    wait_until(True)
    deadline = time.monotonic() + 10
    while record.exists():
        assert time.monotonic() < deadline
        watch.batch(None)
        time.sleep(0.005)
    wait_until(True)  # it has stopped again
    watch.close()


def test_a_limit_below_nothing() -> None:
    with pytest.raises(ConfigError, match="-1 found"):
        HangConfig(after_seconds=-1)
