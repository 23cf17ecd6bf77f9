"""What befalls a loader from outside and from user code: nothing leaks, nothing is lost, and errors say what to do."""

from __future__ import annotations

import copy
import functools
import json
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omniloom.data.loader.config import WorkerConfig
from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.finish import finisher
from omniloom.data.loader.loader import Loader
from omniloom.data.loader.state import LaneState
from omniloom.data.pipeline.batch import Batch
from omniloom.data.pipeline.desk import Desk
from omniloom.data.pipeline.faults import FaultPolicy, Origin
from omniloom.data.pipeline.group import Group
from omniloom.data.pipeline.iter_map import IterMap
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.pack import Pack
from omniloom.data.plan.lane import Lane
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.data.sample import RawSample, SampleKey, first_sample
from omniloom.errors import ConfigError, FatalSampleError, SkipSample, StateError
from tests.contract.numbers_leaf import Deadly, numbers, take

ONCE = Plan((Leaf("a", 30, passes=1),))


def changed(state: dict[str, Any], change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(state))
    change(plain)
    return plain


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: s.pop("lanes"), "damaged: 'lanes' is missing"),
        (lambda s: s.update(steps="5"), "'steps' is '5', a whole number from 0 on expected"),
        (lambda s: s.update(world_size=0), "'world_size' is 0, a whole number from 1 on expected"),
        (lambda s: s.update(steps=float("nan")), "'steps' is nan"),
        (lambda s: s["lane_states"].update({"99": s["lane_states"]["0"]}), "it has a lane 99 of 12"),
        (lambda s: s["lane_states"]["0"].pop("stream"), "'stream' is missing"),
        (lambda s: s["lane_states"]["0"]["stream"].update(cursors=[1]), "damaged"),
        (lambda s: s["lane_states"]["0"]["stream"].update(cursors=[1.5, 2]), r"\[1.5, 2\]\}, whole numbers expected"),
        (lambda s: s["lane_states"]["0"].update(batches=-1), "'batches' is -1"),
        (lambda s: s["lane_states"].pop("3"), "1 of its 12 lanes are not in this state"),
        (lambda s: s.update(settings=None), "damaged"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(change: Callable[[Any], Any], told: str) -> None:
    loader = Loader(numbers())
    expected = take(loader, 8)
    loader.rewind()
    assert take(loader, 5) == expected[:5]
    with pytest.raises(StateError, match=told):
        loader.restore_state_rank(changed(loader.save_state_rank(), change))
    assert take(loader, 3) == expected[5:]


def test_files_that_are_no_states_are_named(tmp_path: Path) -> None:
    for name, content in {"deep.json": "[" * 100_000, "cut.json": '{"lanes": 1', "latin.json": '{"a": "\xe9"}'}.items():
        (tmp_path / name).write_bytes(content.encode("latin-1"))
        with pytest.raises(StateError, match=f"{name}: not a complete JSON file"):
            Loader(numbers()).restore_state_rank(tmp_path / name)


@pytest.mark.parametrize(
    "settings",
    [{"lanes": 0}, {"lanes": -12}, {"lanes": 1.5}, {"num_workers": -1}, {"prefetch_factor": 0}, {"decode_threads": -1},
     {"read_ahead_bytes": -1}],
)  # fmt: skip
def test_counts_that_cannot_be_are_refused_by_name(settings: dict[str, Any]) -> None:
    ((name, value),) = settings.items()
    with pytest.raises(ConfigError, match=f"WorkerConfig: {name}={value} found; a whole number of at least [01]"):
        WorkerConfig(**settings)


def test_fault_policies_and_loaders_refuse_what_cannot_be() -> None:
    for settings in ({"share": -0.5}, {"share": 2.0}, {"in_a_row": -1}):
        with pytest.raises(ConfigError, match="at least 0, and a share from 0 to 1"):
            FaultPolicy(**settings)
    with pytest.raises(ConfigError, match="num_workers=-1 found"):
        Loader(numbers(), num_workers=-1)
    with pytest.raises(ConfigError, match="prefetch_factor=0 found"):
        Loader(numbers(), prefetch_factor=0)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_that_come_and_go_leave_no_descriptor(method: str) -> None:
    before = descriptors()
    with Loader(numbers(num_workers=1, start_method=method)) as loader:
        take(loader, 3)
    assert descriptors() == before


def test_deaths_are_told_of_after_the_workers_have_gone(tmp_path: Path) -> None:
    deadly = Deadly("a3", "kill", once=str(tmp_path / "mark"))
    loader = Loader(numbers(plan=ONCE, encode=deadly, num_workers=1, start_method="fork"))
    for _ in loader:
        pass
    loader.close()
    assert [text for text in loader.stats()["worker_deaths"] if "SIGKILL with data set 0, row 3" in text]


def test_an_interrupt_before_a_batch_is_noted_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = take(Loader(numbers()), 6)
    loader = Loader(numbers())
    assert take(loader, 2) == expected[:2]
    real, calls = LaneState, Counter[str]()

    def interrupted(*values: Any) -> Any:
        calls["made"] += 1
        if calls["made"] == 1:
            raise KeyboardInterrupt
        return real(*values)

    monkeypatch.setattr("omniloom.data.loader.loader.LaneState", interrupted)
    with pytest.raises(KeyboardInterrupt):
        take(loader, 1)
    assert take(loader, 4) == expected[2:]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_in_a_forked_process_goes_on_with_workers_of_its_own(workers: int, tmp_path: Path) -> None:
    expected = take(Loader(numbers()), 6)
    loader = Loader(numbers(num_workers=workers, decode_threads=2))
    assert take(loader, 2) == expected[:2]
    if (child := os.fork()) == 0:
        try:
            signal.alarm(60)  # what goes wrong here would wait for ever
            (tmp_path / "child").write_text(str(take(loader, 4) == expected[2:]))
            loader.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "child").read_text() == "True"
    assert take(loader, 4) == expected[2:]
    loader.close()


FORKS = """
import os, sys
from tests.contract.numbers_leaf import Loader, numbers, take
loader = Loader(numbers(num_workers=1))
take(loader, 2)
if (child := os.fork()) == 0:
    sys.exit(0)
os.waitpid(child, 0)
print(len(take(loader, 2)), loader.stats()["worker_deaths"])
"""


def test_a_forked_process_that_ends_leaves_the_workers_alone() -> None:
    command, root = [sys.executable, "-c", FORKS], Path(__file__).resolve().parents[2]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.stdout, ran.stderr) == ("2 []\n", "")


def fails_to_start(number: int) -> None:
    raise ValueError(f"no licence for worker {number}")


def test_what_on_worker_start_raises_comes_to_the_caller() -> None:
    with (
        pytest.raises(ValueError, match="no licence for worker 0"),
        Loader(numbers(num_workers=1, on_worker_start=fails_to_start)) as loader,
    ):
        take(loader, 1)


def test_folders_that_are_no_texts_may_be_in_the_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/nowhere")])
    with Loader(numbers(num_workers=1)) as loader:
        assert take(loader, 2) == take(Loader(numbers()), 2)


class Plain:
    """Rows are their own numbers."""

    name = "a"

    def read(self, row: int) -> RawSample:
        return RawSample(str(row), "shard.tar", {"txt": b"x"})

    def cook(self, raw: RawSample, key: SampleKey) -> int:
        return int(raw.name)

    def origin(self, row: int) -> Origin:
        return Origin(self.name)


def three(number: int) -> Iterator[list[int]]:
    for part in range(3):
        yield [10 * number + part]


def sixes(samples: list[int]) -> list[list[int]]:
    return [samples[start : start + 6] for start in range(0, len(samples), 6)]


def in_pairs(samples: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(samples), 2):
        yield samples[start : start + 2]


def one_by_one(samples: list[int]) -> Iterator[list[int]]:
    for sample in samples:
        yield [sample]


ROWS = Make(ONCE, (Plain(),))
PARTS: dict[str, tuple[Any, int | None, int]] = {
    "samples of a row": (Make(ONCE, (Plain(),), encode=three), 0, 3),
    "packs of a group": (Pack(ROWS, 12, sixes, in_pairs), -1, 6),
    "batches of some values": (Batch(ROWS, 6, (("batch", 5, one_by_one),)), None, 6),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_unit_that_cannot_be_made_again_takes_no_others_with_it(name: str) -> None:
    """A state within a row (group, batch), restored where just that fails now: its rest is lost, and nothing else."""
    pipeline, part, of_unit = PARTS[name]
    whole = Counter(n for _, value in pipeline.open(Lane(0, 1), Desk()) for n in value)
    stream = pipeline.open(Lane(0, 1), Desk())
    given: Counter[int] = Counter()
    for _ in range(9):
        key, value = next(stream)
        given.update(value)
        desk = Desk(FaultPolicy(in_a_row=0))
        if part is not None:
            desk.poisoned = frozenset([first_sample(key)._replace(part=part)])
        restored = pipeline.open(Lane(0, 1), desk)
        restored.load_state_dict(json.loads(json.dumps(stream.state_dict())))
        later = Counter(n for _, value in restored for n in value)
        assert not given & later
        lost = sorted((whole - given - later).elements())
        first = lost[0] if lost else 0
        assert len(lost) == (-sum(given.values()) % of_unit if part is not None else 0)
        assert lost == list(range(first, first + len(lost)))


def deadly_packer(samples: list[int]) -> list[int]:
    if 7 in samples:
        os.kill(os.getpid(), signal.SIGKILL)
    return samples


def quads(samples: list[int]) -> list[list[int]]:
    return [samples[start : start + 4] for start in range(0, len(samples), 4)]


def test_a_pack_that_kills_its_worker_twice_is_left_alone_and_counted() -> None:
    pipeline = Pack(ROWS, 8, quads, deadly_packer)
    config = WorkerConfig(rank=0, world_size=1, num_workers=1, lanes=1, start_method="fork")
    with Loader(Dataset(pipeline, ONCE, config, None, user_code=True)) as loader:
        given = sorted(number for pack in loader for number in pack)
        stats = loader.stats()
    assert given == [*range(4), *range(8, 30)]
    assert stats["datasets"]["a"]["skipped"] == {"killed-worker": 4}
    assert len(stats["worker_deaths"]) == 2


def no_seven(number: int) -> int:
    if number == 7:
        raise SkipSample("seven")
    return number


def test_what_is_left_out_on_the_way_back_is_told_of_apart() -> None:
    pipeline = Pack(Make(ONCE, (Plain(),), encode=no_seven), 8, quads, list)
    dataset = Dataset(pipeline, ONCE, WorkerConfig(rank=0, world_size=1, num_workers=0, lanes=1), None, user_code=True)
    first, second = Loader(dataset), Loader(dataset)
    assert next(iter(first)) == [0, 1, 2, 3]
    assert first.stats()["datasets"]["a"]["skipped"] == {"seven": 1}
    second.restore_state_rank(first.save_state_rank())  # the window of rows 0 to 8 is read again
    assert next(iter(second)) == [4, 5, 6, 8]
    assert second.stats()["datasets"]["a"]["skipped"] == {}
    assert second.stats()["datasets"]["a"]["skipped_again"] == {"seven": 1}


def hidden(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(value: Any) -> Any:
        return function(value)

    return wrapper


def test_a_generator_that_a_decorator_hides_ends_the_run_with_its_reason() -> None:
    pipelines: dict[str, Any] = {
        "encode_sample": Make(ONCE, (Plain(),), encode=hidden(three)),
        "pack_selected_samples": Pack(ROWS, 12, sixes, hidden(in_pairs)),
        "batch": Batch(ROWS, 6, (("batch", 5, hidden(one_by_one)),)),
    }
    for call, pipeline in pipelines.items():
        with pytest.raises(FatalSampleError, match=f"{call} gave a generator, and is no generator function"):
            next(pipeline.open(Lane(0, 1), Desk()))


def alike(number: int) -> tuple[int, None]:
    return number % 2, None


def test_values_that_wait_for_larger_batches_come_in_the_size_that_is_asked_for_now() -> None:
    large = Group(ROWS, alike, 9, (("batch", 5, list),)).open(Lane(0, 1), Desk())
    first = next(large)[1]
    small = Group(ROWS, alike, 4, (("batch", 5, list),)).open(Lane(0, 1), Desk())
    small.load_state_dict(json.loads(json.dumps(large.state_dict())))
    batches = [value for _, value in small]
    assert max(map(len, batches)) == 4
    assert sorted([*first, *(number for batch in batches for number in batch)]) == list(range(30))


def test_a_group_that_cannot_be_one_is_told_of() -> None:
    criterion: Any = lambda number: ([number], None)  # noqa: E731
    pipeline = Group(ROWS, criterion, 4, (("batch", 5, list),))
    with pytest.raises(ConfigError, match=r"gave the group \[\d+\]; unhashable type"):
        next(pipeline.open(Lane(0, 1), Desk()))


def ends_badly(samples: Iterator[int]) -> Iterator[int]:
    raise EOFError("the other file is shorter")
    yield from samples


def test_an_error_of_user_code_is_not_taken_for_the_end_of_the_connection() -> None:
    config = WorkerConfig(rank=0, world_size=1, num_workers=1, lanes=1, start_method="fork")
    with (
        Loader(Dataset(IterMap(ROWS, ends_badly), ONCE, config, None, user_code=True)) as loader,
        pytest.raises(EOFError, match="the other file is shorter"),
    ):
        next(iter(loader))


def fails_after_each_fifth(samples: Iterator[int]) -> Iterator[int]:
    for sample in samples:
        if sample % 10 == 3:
            raise ValueError("before its result")
        yield sample
        if sample % 5 == 0:
            raise ValueError("after its result")


def test_a_sample_whose_result_has_gone_on_is_not_counted_as_lost() -> None:
    desk = Desk(FaultPolicy(in_a_row=0))
    given = [value for _, value in IterMap(ROWS, fails_after_each_fifth).open(Lane(0, 1), desk)]
    assert given == [number for number in range(30) if number % 10 != 3]
    tally = desk.tally.take()[0]
    assert (tally.yielded, tally.skipped) == (27, {"ValueError": 3})


def test_names_that_are_no_utf_8_are_put_into_quarantine(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(Plain):
        def origin(self, row: int) -> Origin:
            return Origin("a", f"caf\udce9{row}", "shard.tar", (0, 512))

    def refuses(number: int) -> int:
        raise ValueError(f"caf\udce9 {number} \ud83d")

    policy = FaultPolicy("quarantine", in_a_row=0, quarantine_path=str(tmp_path / "bad.jsonl"))
    assert list(islice(Make(ONCE, (Odd(),), encode=refuses).open(Lane(0, 1), Desk(policy)), 1)) == []
    lines = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text("utf-8").splitlines()]
    assert sorted(line["key"] for line in lines) == sorted(f"caf\udce9{row}" for row in range(30))
    assert {line["error"] for line in lines} == {f"ValueError: caf\udce9 {row} \ud83d" for row in range(30)}
    assert "ValueError: caf\\udce9 0 \\ud83d" in caplog.text
    assert caplog.text.encode("utf-8"), "what is logged can be written to a file"


def test_a_saved_state_is_the_callers_own() -> None:
    loader = Loader(numbers())
    take(loader, 3)
    saved = loader.save_state_rank()
    kept = copy.deepcopy(saved)
    saved["settings"]["passes"]["a"] = "1"
    saved["settings"]["shuffle"].clear()
    assert loader.save_state_rank() == kept


def test_copies_of_a_loader_in_several_workers_of_torchs_say_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = pytest.importorskip("torch.utils.data")
    for workers, told in ((1, False), (2, True)):
        monkeypatch.setattr(data, "get_worker_info", lambda workers=workers: SimpleNamespace(id=0, num_workers=workers))
        caplog.clear()
        take(Loader(numbers()), 2)
        assert ("each of them gives every batch" in caplog.text) == told


def test_data_sets_can_be_pickled_with_what_the_caller_finishes() -> None:
    for late in (True, False):
        for pin in (True, False):
            finish = finisher(late=late, pin=pin)
            assert pickle.loads(pickle.dumps(finish)) is finish
