"""Small tools of Energon's modules: their values against the real ones, and what each promises."""

import importlib.util
import json
import logging
import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from omniloom.energon.epathlib.rclone_config import read_rclone_config
from omniloom.energon.flavors.webdataset.aggregator_pool import AggregatorPool, BaseAggregator
from omniloom.energon.flavors.webdataset.tar_patcher import TarPatcher
from omniloom.energon.flavors.webdataset.thread_local_sqlite import ThreadLocalSqlite
from omniloom.energon.metadataset.dataset_loader import DatasetLoader
from omniloom.energon.metadataset.join_dataset_loader import JoinDatasetLoader, JoinedDatasetInfo
from omniloom.energon.module_loader import ModuleLoader
from omniloom.energon.retry_stream import RetryReadStream
from omniloom.energon.tools.checkpoint import RankStateIterable, detect_and_replicate_pattern
from omniloom.energon.typed_converter import JsonParser
from omniloom.energon.watchdog import Watchdog

import omniloom
from omniloom import energon

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "energon_tools"


def recorder():
    spec = importlib.util.spec_from_file_location("record_tools", GOLDEN / "record.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    recorder().make_shards(folder)
    recorder().prepare("omniloom.energon", folder)
    return folder


@pytest.mark.parametrize("name", json.loads((GOLDEN / "values.json").read_text()))
def test_values_are_those_of_energon(shards, name):
    expected = json.loads((GOLDEN / "values.json").read_text())[name]
    assert json.loads(json.dumps(recorder().values("omniloom.energon", shards)[name])) == expected


def test_jsonl_stores_are_listed(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a":1}\n{"a":22}\n\n{"a":333}')  # 8, 10 and 9 bytes
    store = energon.JsonlFileStore(tmp_path / "a.jsonl")
    assert [tuple(one) for one in store.list_all_samples()] == [("0", 8, 0), ("1", 10, 0), ("2", 9, 0)]
    assert [one.name for one in store.list_all_sample_parts()] == ["0.json", "1.json", "2.json"]
    assert [tuple(one) for one in store.list_sample_parts("1")] == [("1.json", 10, 0)]
    assert store.get_total_size() == 27
    with pytest.raises(omniloom.MissingKeyError):
        list(store.list_sample_parts("3"))


def test_a_watchdog_barks_once_and_only_when_it_counts(caplog):
    barked = threading.Event()
    with caplog.at_level(logging.WARNING, "omniloom"), Watchdog(0.05, callback=barked.set, enabled=False) as dog:
        dog.disable()
        assert not barked.wait(0.15)
        assert list(dog.watch_iter(range(3))) == [0, 1, 2]
        dog.enable()
        assert barked.wait(2)
    assert "Stacks:" in caplog.text
    calm = Watchdog(0.2, callback=barked.clear)
    for _ in range(4):
        time.sleep(0.02)
        calm.reset()
    calm.finish()
    assert barked.is_set()


def test_python_files_of_data_sets_are_run_once_and_only_when_trusted(tmp_path, monkeypatch):
    (tmp_path / "code.py").write_text("import itertools\nnumbers = itertools.count()\ndef twice(x): return 2 * x\n")
    loader = ModuleLoader()
    assert next(loader[tmp_path / "code.py"]["numbers"]) == 0
    assert next(loader[str(tmp_path / "code.py")]["numbers"]) == 1
    assert loader.get_function("code.py:twice", relative_path=energon.EPath(tmp_path))(4) == 8
    assert loader.get_function(str(tmp_path / "code.py"), "twice")(5) == 10
    with pytest.raises(omniloom.ConfigError, match="a function is missing"):
        loader.get_function("code.py")
    monkeypatch.setenv("OMNILOOM_TRUST", "0")
    with pytest.raises(omniloom.ConfigError, match="OMNILOOM_TRUST=0"):
        loader.get_function("code.py:twice", relative_path=energon.EPath(tmp_path))


def test_files_databases_and_settings(tmp_path, monkeypatch):
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    with RetryReadStream(energon.EPath(tmp_path / "a.bin")) as file:
        file.seek(-3, 2)
        assert (file.read(2), file.tell()) == (b"78", 9)
    database = ThreadLocalSqlite(str(tmp_path / "a.sqlite"))
    with sqlite3.connect(tmp_path / "a.sqlite") as writer:
        writer.execute("CREATE TABLE one (number INTEGER)")
        writer.executemany("INSERT INTO one VALUES (?)", [(1,), (2,)])
    found = []
    thread = threading.Thread(target=lambda: found.append(database.select_all("SELECT * FROM one")))
    thread.start()
    thread.join()
    assert found == [[(1,), (2,)]]
    assert database.select_one("SELECT number FROM one WHERE number > ?", (1,)) == (2,)
    database.thread_close()
    (tmp_path / "rclone").mkdir()
    (tmp_path / "rclone" / "rclone.conf").write_text("[store]\ntype = s3\nendpoint = http://here\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    entry = read_rclone_config()["store"]
    assert (entry.name, entry.type, entry.endpoint, entry.region) == ("store", "s3", "http://here", None)


def squares(task):
    yield from (number * number for number in range(task))


def test_results_of_processes_are_collected_in_batches():
    class Sum(BaseAggregator):
        def __init__(self):
            self.sizes, self.total = [], 0

        def on_item(self, items, aggregator_pool):
            self.sizes.append(len(items))
            self.total += sum(items)

        def get_final_result_data(self):
            return self.sizes, self.total

    pool = AggregatorPool(2, squares, Sum(), batch_size=2)
    for task in (3, 2):
        pool.submit_task(task)
    assert pool.process() == ([2, 1, 2], 0 + 1 + 4 + 0 + 1)


def test_keys_of_shards_are_made_unique(tmp_path):
    for shard in range(2):
        with omniloom.TarWriter(tmp_path / f"s{shard}.tar") as writer:
            writer.add("a.txt", b"1")
    patcher, root, names = TarPatcher(show_progress=False), energon.EPath(tmp_path), ["s0.tar", "s1.tar"]
    found = patcher.dataset_scan(names, root)
    assert found.compatible
    assert found.duplicates == {b"a": [str(tmp_path / name) for name in names]}
    patcher.dataset_apply_prefix(names, root)
    again = patcher.dataset_scan(names, root)
    assert not again.has_duplicates
    assert again.scan_results[str(tmp_path / "s0.tar")].sample_keys == {b"s0.tar/a"}


def test_plain_values_become_typed_ones():
    @dataclass
    class Point:
        x: float
        names: list[str]

    parser = JsonParser()
    assert parser.raw_to_typed({"x": 1, "names": ["a"]}, Point) == Point(1.0, ["a"])
    assert parser.raw_to_typed([1, None], list[int | None]) == [1, None]
    with pytest.raises(omniloom.ConfigError, match="Point has no y"):
        parser.raw_to_typed({"x": 1, "names": [], "y": 2}, Point)
    with pytest.raises(omniloom.ConfigError, match="valid number"):
        parser.raw_to_typed({"x": "one", "names": []}, Point)
    decoder = {"__module__": "megatron.energon", "__class__": "SampleDecoder", "image_decode": "pil"}
    assert parser.raw_to_instance(decoder).image_decode == "pil"
    counted = parser.raw_to_instance({"__module__": "builtins", "__function__": "dict", "a": 1})
    assert counted == {"a": 1}
    assert parser.override(Point(1, []), {"x": 3}) == Point(3, [])


def test_a_join_of_loaders(shards, tmp_path):
    (shards / ".nv-meta" / "dataset.yaml").write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")

    def join(left, right):
        return left["txt"], right["json"]

    loader = JoinDatasetLoader(
        datasets={
            "left": JoinedDatasetInfo(dataset=DatasetLoader(path=str(shards))),
            "right": JoinedDatasetInfo(dataset=DatasetLoader(path=str(shards)), nonmatch="skip"),
        },
        joiner=join,
        cache_path=energon.EPath(tmp_path),
    )
    config = energon.WorkerConfig(num_workers=0)
    (loaded,) = loader.get_datasets(training=False, split_part="train", worker_config=config).datasets
    rows = list(energon.get_loader(loaded.dataset.build()))
    assert [tuple(one) for one in rows[:2]] == [("text 0", {"n": 0}), ("text 1", {"n": 1})]
    assert len(rows) == 6


def test_states_of_ranks_are_gone_through_lane_by_lane(shards, tmp_path):
    (shards / ".nv-meta" / "dataset.yaml").write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")
    for rank in range(2):
        config = energon.WorkerConfig(rank=rank, world_size=2, num_workers=0)
        dataset = energon.get_train_dataset(shards, batch_size=None, worker_config=config)
        loader = energon.get_savable_loader(dataset)
        next(iter(loader))
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(loader.save_state_rank()))
    states = RankStateIterable([tmp_path / "rank0.json", tmp_path / "rank1.json"])
    assert states.get_num_ranks() == 2
    assert [lane.batches for lane in states] == [1, 1]
    assert states.file_pattern_func(11) == "rank11.json"
    with pytest.raises(omniloom.StateError, match="numbers from 0 to 1 expected"):
        detect_and_replicate_pattern(["a1", "a3"])
