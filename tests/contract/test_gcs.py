"""Reading from Google Cloud Storage, on fake-gcs-server: objects, ranges, listings, a data set like one on a disk."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import omniloom as ol
from omniloom.data.index.lint import lint_dataset
from omniloom.errors import StorageError
from omniloom.storage.open import open_store
from tests.contract.gcs_server import gcs_server, gcs_upload
from tests.contract.remote_sets import make_set, samples

BUCKET = "sets"
PAYLOAD = bytes(range(256)) * 4_000


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    pytest.importorskip("obstore")
    with gcs_server(BUCKET) as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def _found(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "storage.yaml"
    settings.write_text(json.dumps({"gs://": {"base_url": server, "bearer_token": "planted", "allow_http": True}}))
    monkeypatch.setenv("OMNILOOM_STORAGE", str(settings))
    monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("omniloom.storage.open._OPENED", {})


def test_objects_ranges_and_listings(server: str) -> None:
    for name in ("a.bin", "b/two.bin", "b/with space+.bin"):
        gcs_upload(server, BUCKET, f"objects/{name}", PAYLOAD if name == "a.bin" else name.encode())
    root = f"gs://{BUCKET}/objects"
    store = open_store(root)
    assert store.read(f"{root}/a.bin") == PAYLOAD
    assert store.read(f"{root}/a.bin", 1000, 2000) == PAYLOAD[1000:2000]
    ranges = [(900_000, 900_010), (5, 6), (0, 5)]
    assert store.read_ranges(f"{root}/a.bin", ranges) == [PAYLOAD[start:stop] for start, stop in ranges]
    assert (store.size(f"{root}/a.bin"), store.exists(f"{root}/b")) == (len(PAYLOAD), False)
    assert [url.removeprefix(f"{root}/") for url in store.list(root)] == ["a.bin", "b/two.bin", "b/with space+.bin"]
    assert store.read(f"{root}/b/with space+.bin") == b"b/with space+.bin"
    assert store.children(root) == ("a.bin", "b/")
    assert (store.is_folder(f"{root}/b"), store.is_folder(f"{root}/c")) == (True, False)
    with pytest.raises(StorageError) as caught:
        store.read(f"{root}/none")
    assert caught.value.errno == errno.ENOENT
    store.delete(f"{root}/a.bin")
    store.delete(f"{root}/a.bin")
    assert not store.exists(f"{root}/a.bin")


def test_a_data_set_is_that_of_the_disk(server: str, tmp_path: Path) -> None:
    root = tmp_path / "texts"
    make_set(root, "g", 60)
    for path in sorted(root.rglob("*")):
        if path.is_file():
            gcs_upload(server, BUCKET, f"texts/{path.relative_to(root).as_posix()}", path.read_bytes())
    place = f"gs://{BUCKET}/texts"

    def train(path: str) -> ol.Dataset:
        config = ol.WorkerConfig(rank=0, world_size=1, num_workers=0)
        return ol.get_train_dataset(path, worker_config=config, batch_size=None)

    assert samples(train(place), 100) == samples(train(str(root)), 100)
    report = lint_dataset(place)
    assert (report.samples, report.bad_samples) == (60, 0)
    prepared = ol.prepare_dataset(place, split_ratio={"train": 1.0}, meta_path=tmp_path / "meta")
    assert prepared.samples == 60
