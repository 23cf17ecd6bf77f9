"""The spool of a read-ahead: long ranges of wanted rows, few wasted bytes, each range held once, until all let go."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from omniloom.storage.counts import COUNTS
from omniloom.storage.spool import GAP_BYTES, GAP_SHARE, LONG_RANGE_BYTES, Spool

MB = 1 << 20


@pytest.fixture
def blob(tmp_path: Path) -> str:
    path = tmp_path / "blob"
    path.write_bytes(random.Random(7).randbytes(4 * MB))
    return str(path)


@pytest.fixture
def spool() -> Spool:
    COUNTS.take()
    return Spool()


def taken(spool: Spool, blob: str, ranges: list[tuple[int, int]]) -> None:
    content = Path(blob).read_bytes()
    for start, stop in ranges:
        assert spool.take(blob, start, stop) == content[start:stop]


def test_neighbours_of_all_who_want_them_are_one_request(spool: Spool, blob: str) -> None:
    ranges = [(at, at + 1000) for at in range(0, 100_000, 1000)]
    for lane in range(4):
        spool.want((blob, *one) for one in ranges[lane::4])
    spool.ask_for((blob, *ranges[50]))
    taken(spool, blob, ranges)
    assert COUNTS.take() == {"long_ranges": 1, "long_range_bytes": 100_000, "wanted_bytes": 100_000}
    assert spool.held_bytes == 100_000


@pytest.mark.parametrize("seed", range(5))
def test_what_nobody_wants_is_a_bounded_share(spool: Spool, blob: str, seed: int) -> None:
    made, at, ranges = random.Random(seed), 0, []
    while at < 3 * MB:
        size = made.choice([300, 5_000, 60_000])
        ranges.append((at, at + size))
        at += size + made.choice([0, 0, 200, 9_000, 80_000])
    spool.want((blob, *one) for one in ranges)
    for one in ranges:
        spool.ask_for((blob, *one))
    taken(spool, blob, ranges)
    wanted = sum(stop - start for start, stop in ranges)
    counts = COUNTS.take()
    assert counts["wanted_bytes"] == wanted
    assert wanted <= counts["long_range_bytes"] <= wanted * (1 + GAP_SHARE) + counts["long_ranges"] * GAP_BYTES
    assert counts["long_ranges"] < len(ranges)


def test_a_range_of_two_rows_comes_once_and_stays_until_both_let_go(spool: Spool, blob: str) -> None:
    place = (blob, 0, 5_000)
    spool.want([place])
    spool.want([place])
    spool.ask_for(place)
    taken(spool, blob, [(0, 5_000)])
    spool.let_go([place])
    taken(spool, blob, [(0, 5_000)])
    assert spool.held_bytes == 5_000
    spool.abandon([place])
    assert (spool.take(*place), spool.held_bytes, spool.peak_bytes) == (None, 0, 5_000)
    assert COUNTS.take()["long_ranges"] == 1


def test_what_was_let_go_of_before_its_turn_is_not_fetched_along(spool: Spool, blob: str) -> None:
    places = [(blob, at, at + 1_000) for at in (0, 1_000, 2_000)]
    spool.want(places)
    spool.let_go(places[1:2])
    spool.ask_for(places[0])
    taken(spool, blob, [(0, 1_000), (2_000, 3_000)])
    assert spool.take(*places[1]) is None
    assert COUNTS.take() == {"long_ranges": 1, "long_range_bytes": 3_000, "wanted_bytes": 2_000}
    assert spool.held_bytes == 2_000


def test_no_long_range_grows_beyond_what_is_said(spool: Spool, blob: str) -> None:
    ranges = [(at, at + 10_000) for at in range(0, 400_000, 10_000)]
    spool.want((blob, *one) for one in ranges)
    for one in ranges:
        spool.ask_for((blob, *one), longest_bytes=100_000)
    taken(spool, blob, ranges)
    assert COUNTS.take() == {"long_ranges": 4, "long_range_bytes": 400_000, "wanted_bytes": 400_000}
    assert LONG_RANGE_BYTES == 8 * MB  # as docs/stores.md says


def test_a_fault_is_that_of_all_rows_of_the_range(spool: Spool, tmp_path: Path) -> None:
    place = (str(tmp_path / "missing"), 0, 10)
    spool.want([place])
    for _ in range(2):
        with pytest.raises(OSError, match="missing"):
            spool.take(*place)
