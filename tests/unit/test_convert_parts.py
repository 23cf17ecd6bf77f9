"""The small parts of a conversion: keys without doubles, reading ahead in order, the journal after a kill."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from omniloom.data.convert.findings import Counts, Findings
from omniloom.data.convert.journal import JOURNAL_NAME, Journal, Mark
from omniloom.data.convert.key_ring import KeyRing
from omniloom.data.convert.read_ahead import ITEMS_A_TASK, map_ahead
from omniloom.data.convert.shard_series import shard_name
from omniloom.errors import ConfigError


def test_keys_never_come_twice_also_after_a_restart() -> None:
    identifiers = ["a", "a", "a~2", "a", "b.c", "b.c", "a~3"]
    ring = KeyRing()
    keys = [ring.give(identifier).key for identifier in identifiers]  # type: ignore[union-attr]
    assert keys == ["a", "a~2", "a~2~2", "a~3", "b%2Ec", "b%2Ec~2", "a~3~2"]
    for done in range(len(keys)):
        again = KeyRing()
        again.take(keys[:done])
        assert [again.give(identifier).key for identifier in identifiers[done:]] == keys[done:]  # type: ignore[union-attr]


def test_skipped_duplicates_get_no_key() -> None:
    ring = KeyRing(on_duplicate="skip")
    assert ring.give("a") == ("a", ())
    assert ring.give("a") is None


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_reading_ahead_keeps_the_order_and_raises_in_turn(threads: int) -> None:
    def slow_square(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        if number == 50:
            raise ValueError("fifty")
        return number * number

    taken: list[int] = []
    with pytest.raises(ValueError, match="fifty"):
        taken.extend(map_ahead(slow_square, range(100), threads=threads))
    assert taken == [n * n for n in range(len(taken))]
    assert len(taken) >= 50 - ITEMS_A_TASK
    assert list(map_ahead(str, range(20), threads=threads)) == [str(n) for n in range(20)]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("read-ahead")]


def test_reading_ahead_is_bounded() -> None:
    pulled = []

    def source() -> object:
        for number in range(10_000):
            pulled.append(number)
            yield number

    results = map_ahead(lambda number: number, source(), threads=2)  # type: ignore[arg-type,var-annotated]
    next(results)
    assert len(pulled) <= 5 * ITEMS_A_TASK
    results.close()  # type: ignore[attr-defined]


def test_a_cut_line_of_the_journal_counts_as_not_written(tmp_path: Path) -> None:
    marks = [Mark(f"s-{n}.tar", 100, 2, 2 * n, 0, {"entries": n}) for n in range(3)]
    with Journal(tmp_path, task={"input": "x"}) as journal:
        for mark in marks:
            journal.append(mark)
    whole = (tmp_path / JOURNAL_NAME).read_bytes()
    for stop in range(len(whole)):
        (tmp_path / JOURNAL_NAME).write_bytes(whole[:stop])
        with Journal(tmp_path, task={"input": "x"}) as journal:
            lines = whole[:stop].count(b"\n")
            assert journal.shards == marks[: max(0, lines - 1)]
            assert journal.end is None
            journal.append(Mark("", 0, 0, 9, 0, {}))
        with Journal(tmp_path, task={"input": "x"}) as journal:
            assert journal.end is not None
            assert len(journal.shards) == max(0, lines - 1)


def test_journal_forgets_and_refuses_other_tasks(tmp_path: Path) -> None:
    with Journal(tmp_path, task={"input": "x", "max_count": 3}) as journal:
        for number in range(3):
            journal.append(Mark(f"s-{number}.tar", 1, 1, number, 0, {}))
        journal.keep_only(1)
    with Journal(tmp_path, task={"input": "x", "max_count": 3}) as journal:
        assert [mark.shard for mark in journal.shards] == ["s-0.tar"]
    with pytest.raises(ConfigError, match="max_count was 3, now 4"):
        Journal(tmp_path, task={"input": "x", "max_count": 4})


def test_findings_go_on_where_they_were(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    with Findings(path, size_bytes=0, counts=Counts()) as findings:
        findings.left_out({"entry": 0}, "missing-image", "x")
        size_bytes = findings.flush()
        saved = json.loads(json.dumps(findings.counts.to_json()))
        findings.kept({"entry": 1}, "escaped-id", "lost with the kill")
    with Findings(path, size_bytes=size_bytes, counts=Counts.from_json(saved)) as findings:
        findings.left_out({"entry": 1}, "missing-image", "y")
        assert findings.counts.left_out == {"missing-image": 2}
        assert findings.flush() == path.stat().st_size
    assert [json.loads(line)["detail"] for line in path.read_text().splitlines()] == ["x", "y"]
    path.unlink()
    with Findings(path, size_bytes=size_bytes, counts=Counts()) as findings:
        findings.kept({"entry": 2}, "escaped-id", "z")
    assert path.read_text().startswith('{"entry": 2')


@pytest.mark.parametrize("pattern", ["x.tar", "x-%d", "x-%s%d.tar", "a/x-%d.tar", ".x-%d.tar", "x-%d.tar.gz", "%", ""])
def test_patterns_that_name_no_shards(pattern: str) -> None:
    with pytest.raises(ConfigError, match="expected a file name such as"):
        shard_name(pattern, 0)


def test_patterns_that_do() -> None:
    assert shard_name("pretrain-%d.tar", 12) == "pretrain-12.tar"
    assert shard_name("shard-%06d.tar", 12) == "shard-000012.tar"
