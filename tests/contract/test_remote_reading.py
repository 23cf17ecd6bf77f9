"""Data sets in an object store are read exactly as those on a disk: byte for byte, in the same order."""

from __future__ import annotations

import functools
import http.server
import json
import pickle
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import omniloom as ol
from omniloom.data.index.dataset import open_dataset
from omniloom.data.side import open_side_store
from omniloom.errors import ConfigError, DatasetError, ShardError, StorageError
from omniloom.storage.open import open_store
from tests.contract.remote_sets import BUCKET, make_set, samples, upload, use_server, write_tar
from tests.contract.s3_server import s3_server

pytestmark = pytest.mark.usefixtures("_own_cache")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server("sets") as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture
def _own_cache(tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_server(monkeypatch, endpoint)
    monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMNILOOM_SIDECAR_SECONDS", "0")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, endpoint: str) -> Path:
    """Two data sets and a mix on a disk, which the store holds too."""
    root = tmp_path_factory.mktemp("data")
    make_set(root / "a", "a", 100)
    make_set(root / "b", "b", 37)
    mix = {
        "__module__": "megatron.energon",
        "__class__": "MetadatasetV2",
        "splits": {
            "train": {"blend": [{"weight": 3, "path": "../a"}, {"weight": 1, "path": "../b", "subflavors": {"k": 1}}]},
            "val": {"concat": [{"path": "../a"}, {"path": "../b"}]},
        },
    }
    (root / "mixes").mkdir()
    (root / "mixes" / "mix.yaml").write_text(json.dumps(mix))
    with pytest.MonkeyPatch.context() as patch:
        use_server(patch, endpoint)
        upload(root, BUCKET)
    return root


def _train(path: str, *, workers: int = 0) -> ol.Dataset:
    config = ol.WorkerConfig(rank=0, world_size=1, num_workers=workers)
    return ol.get_train_dataset(path, worker_config=config, batch_size=None, shuffle_buffer_size=10)


@pytest.mark.parametrize("name", ["a", "mixes/mix.yaml"])
def test_training_from_a_store_is_that_from_a_disk(name: str, data: Path) -> None:
    assert samples(_train(f"{BUCKET}/{name}"), 250) == samples(_train(str(data / name)), 250)


def test_workers_read_the_store_too(data: Path) -> None:
    here = [(s.__key__, s.text) for s in islice(ol.get_loader(_train(str(data / "a"), workers=2)), 150)]
    there = [(s.__key__, s.text) for s in islice(ol.get_loader(_train(f"{BUCKET}/a", workers=2)), 150)]
    assert there == here


def test_evaluation_goes_through_the_split_of_the_store(data: Path) -> None:
    config = ol.WorkerConfig(rank=0, world_size=1, num_workers=0)

    def read(path: str) -> list[Any]:
        return samples(ol.get_val_dataset(path, worker_config=config, batch_size=None))

    assert read(f"{BUCKET}/mixes/mix.yaml") == read(str(data / "mixes/mix.yaml"))


def test_a_state_of_the_disk_goes_on_in_the_store(data: Path) -> None:
    whole = samples(_train(str(data / "a")), 60)
    loader = ol.get_savable_loader(_train(str(data / "a")))
    for _ in islice(loader, 25):
        pass
    again = ol.get_savable_loader(_train(f"{BUCKET}/a"))
    again.restore_state_rank(loader.save_state_rank())
    assert [(s.__key__, s.__restore_key__, s.text) for s in islice(again, 35)] == whole[25:]


def test_samples_say_where_they_came_from(data: Path) -> None:
    (sample,) = islice(ol.get_loader(_train(f"{BUCKET}/b")), 1)
    (source,) = sample.__sources__
    assert (source.dataset_path, source.shard_name[:1]) == (f"{BUCKET}/b", "s")


def test_a_store_beside_the_data_is_read_by_key(data: Path) -> None:
    here = open_side_store("a", relative_to=data)
    for there in (open_side_store(f"{BUCKET}/a"), open_side_store("../a", relative_to=f"{BUCKET}/mixes")):
        again = pickle.loads(pickle.dumps(there))
        assert [again["a007.txt"][0], again["a099.label.txt"][0]] == [here["a007.txt"][0], here["a099.label.txt"][0]]
        with pytest.raises(KeyError, match="nothing"):
            again["nothing.txt"]
    files = open_side_store(f"filesystem+{BUCKET}/mixes")
    assert files["mix.yaml"][0] == (data / "mixes/mix.yaml").read_bytes()
    with pytest.raises(StorageError, match="leads out"):
        files["../a/s0.tar"]
    with pytest.raises(ConfigError, match="is not prepared"):
        open_side_store(f"{BUCKET}/mixes")


def test_joins_of_the_store_are_those_of_the_disk(tmp_path: Path) -> None:
    make_set(tmp_path / "left", "k", 50)
    labelled = {
        "sample_type": {"__module__": "megatron.energon", "__class__": "ImageClassificationSample"},
        "field_map": {"image": "txt", "label_name": "label.txt"},
    }
    make_set(tmp_path / "right", "k", 50, described=labelled)
    joiner = {"__module__": "tests.contract.test_remote_reading", "__function__": "glue"}
    join = {"join": [{"path": "left"}, {"path": "right"}], "joiner": joiner}
    mix = {"__module__": "megatron.energon", "__class__": "MetadatasetV2", "splits": {"train": join}}
    (tmp_path / "join.yaml").write_text(json.dumps(mix))
    upload(tmp_path, f"{BUCKET}/joined")

    def read(path: str) -> list[Any]:
        config = ol.WorkerConfig(rank=0, world_size=1, num_workers=0)
        dataset = ol.get_train_dataset(path, worker_config=config, batch_size=None, trust=True)
        return [(s.__key__, s.text) for s in islice(ol.get_loader(dataset), 60)]

    assert read(f"{BUCKET}/joined/join.yaml") == read(str(tmp_path / "join.yaml"))


def glue(left: Any, right: Any) -> Any:
    """A text with its label."""
    left.text = f"{left.text}: {right.label_name}"
    return left


def test_no_secret_of_a_url_is_told(data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = "?secret_access_key=planted-in-the-url"
    blend = [
        {"path": f"{BUCKET}/a{secret}"},
        {"path": f"{BUCKET}/a{secret}", "weight": 2},
        {"path": f"{BUCKET}/b{secret}"},
    ]
    mix = {"__module__": "megatron.energon", "__class__": "MetadatasetV2", "splits": {"train": {"blend": blend}}}
    open_store(BUCKET).write(f"{BUCKET}/mixes/secret.yaml", json.dumps(mix).encode())
    loader = ol.get_savable_loader(_train(f"{BUCKET}/mixes/secret.yaml{secret}"))
    told = [str(sample.__sources__) for sample in islice(loader, 20)]
    told += [caplog.text, json.dumps(loader.save_state_rank()), repr(loader), str(loader.stats())]
    assert "comes twice in the mix" in caplog.text
    for path in (f"{BUCKET}/nowhere{secret}", f"{BUCKET}/mixes/none.yaml{secret}"):
        with pytest.raises(DatasetError) as caught:
            _train(path)
        told.append(str(caught.value))
    told += [path.read_text("utf-8", "replace") for path in (tmp_path / "cache").rglob("*.json")]
    assert not [text for text in told if "planted" in text]


def test_what_is_not_there_is_told_by_its_url(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="s3://sets/nowhere: there is no such object or folder"):
        _train(f"{BUCKET}/nowhere")
    write_tar(tmp_path / "x" / "s0.tar", [("1.txt", b"one")])
    upload(tmp_path / "x", f"{BUCKET}/raw")
    with pytest.raises(DatasetError, match=r"not prepared \(holds s0.tar\); run `omniloom prepare s3://sets/raw`"):
        _train(f"{BUCKET}/raw")
    make_set(tmp_path / "y", "y", 60)
    (tmp_path / "y" / "s1.tar").unlink()
    upload(tmp_path / "y", f"{BUCKET}/torn")
    with pytest.raises(DatasetError, match=r"s3://sets/torn: shard 's1.tar' of .info.json missing"):
        open_dataset(f"{BUCKET}/torn")


def test_a_shard_that_changed_in_the_store_is_refused(tmp_path: Path) -> None:  # C18
    make_set(tmp_path, "c", 40)
    upload(tmp_path, f"{BUCKET}/changed")
    open_dataset(f"{BUCKET}/changed")
    # The same size, its samples in another order.
    order = [19, *range(1, 19), 0]
    parts = [(f"c{n:03d}.txt", f"text c{n:03d}".encode()) for n in order]
    labels = [(f"c{n:03d}.label.txt", f"lc{n:03d}".encode()) for n in order]
    write_tar(tmp_path / "s0.tar", [each for pair in zip(parts, labels, strict=True) for each in pair])
    upload(tmp_path, f"{BUCKET}/changed")
    entry = open_dataset(f"{BUCKET}/changed").shards[0]
    with pytest.raises(ShardError, match="headers are not those that were indexed") as caught:
        entry.open("first-dot").read(0)
    assert caught.value.reason == "index-stale"


def test_a_new_indexing_is_seen_at_the_next_opening(tmp_path: Path) -> None:
    make_set(tmp_path, "n", 40)
    upload(tmp_path, f"{BUCKET}/indexed-anew")
    assert open_dataset(f"{BUCKET}/indexed-anew", split_part="train").samples == 20
    make_set(tmp_path, "n", 80)
    upload(tmp_path, f"{BUCKET}/indexed-anew")
    index = open_dataset(f"{BUCKET}/indexed-anew", split_part="train")
    assert index.samples == 60
    assert index.shards[2].open(index.rule).read(19) == ("n059", {"txt": b"text n059", "label.txt": b"ln059"})


def test_a_web_server_that_lists_nothing_will_do(data: Path, tmp_path: Path) -> None:
    handler = functools.partial(_Ranges, directory=str(data))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/a"
        try:
            assert samples(_train(url), 120) == samples(_train(str(data / "a")), 120)
            assert open_side_store(url)["a007.txt"][0] == b"text a007"
            prepared = ol.prepare_dataset(url, shards=["s{0..4}.tar"], meta_path=tmp_path / "meta", progress=_ignore)
            assert prepared.samples == 100
            index = open_dataset(tmp_path / "meta")
            assert index.shards[4].open(index.rule).read(19)[0] == "a099"
        finally:
            server.shutdown()


def _ignore(_: Any) -> None:
    """Somebody looks at the progress."""


class _Ranges(http.server.SimpleHTTPRequestHandler):
    """Python's own server with ranges; folders are pages for people, so nothing is listed."""

    def do_GET(self) -> None:
        """A file, or a range of one."""
        path = Path(self.translate_path(self.path))
        asked = self.headers.get("Range")
        if asked is None or not path.is_file():
            super().do_GET()
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        data = path.read_bytes()
        start, stop = int(first), int(last or len(data) - 1) + 1
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{min(stop, len(data)) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data[start:stop])))
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.end_headers()
        self.wfile.write(data[start:stop])

    def log_message(self, *_: Any) -> None:
        """Nothing is said."""
