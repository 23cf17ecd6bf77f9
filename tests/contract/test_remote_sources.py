"""JSONL, Parquet, Arrow, LLaVA JSON and folders of files in a store, beside the same on a disk."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import omniloom as ol
from omniloom.data.convert.images import open_images
from omniloom.data.index.source_kind import find_source
from omniloom.data.side import open_side_store
from omniloom.errors import DatasetError, SampleError
from omniloom.storage.inside_store import InsideStore
from omniloom.storage.node_copy import kept_copy
from omniloom.storage.object_file import LONG_BYTES, ObjectFile
from omniloom.storage.open import open_store
from omniloom.storage.spool import GAP_BYTES, GAP_SHARE
from omniloom.tools.main import run
from tests.contract.remote_sets import BUCKET, remote_files, upload, use_server
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


def _read(path: str) -> list[Any]:
    """Raw parts of all samples in training order, twice through."""
    config = ol.WorkerConfig(rank=0, world_size=1, num_workers=0)
    encoder = ol.DefaultTaskEncoder()
    encoder.decoder = None
    dataset = ol.get_train_dataset(path, worker_config=config, batch_size=None, task_encoder=encoder)
    plain = []
    for sample in islice(ol.get_loader(dataset), 24):
        fields = sample if isinstance(sample, dict) else vars(sample)
        plain.append({name: value for name, value in fields.items() if name not in ("__sources__", "__subflavors__")})
    return plain


def _jsonl(root: Path) -> Path:
    root.mkdir(parents=True)
    for name, rows in (("train-0.jsonl", 7), ("train-1.jsonl", 5), ("val-0.jsonl", 3)):
        (root / name).write_text("".join(json.dumps({"n": n, "file": name}) + "\n" for n in range(rows)))
    return root


def _same(name: str, root: Path) -> None:
    upload(root, f"{BUCKET}/{root.name}")
    there, here = (f"{BUCKET}/{root.name}{name}", f"{root}{name}")
    assert find_source(there).kind == find_source(here).kind
    assert _read(there) == _read(here)


@pytest.mark.parametrize("name", ["", "/train-1.jsonl"])
@pytest.mark.parametrize("prepared", [False, True])
def test_jsonl(name: str, prepared: bool, tmp_path: Path) -> None:
    root = _jsonl(tmp_path / f"jsonl{prepared}{len(name)}")
    _same(name, root)
    if prepared:
        assert run(["prepare", f"{BUCKET}/{root.name}{name}", "--non-interactive"]) == 0
        assert run(["prepare", f"{root}{name}", "--non-interactive"]) == 0
        assert _read(f"{BUCKET}/{root.name}{name}") == _read(f"{root}{name}")
        indexes = {path.name: path.read_bytes() for path in root.glob("*.idx")}
        assert indexes
        assert {key: data for key, data in remote_files(f"{BUCKET}/{root.name}").items() if key in indexes} == indexes


def test_records_are_fetched_ahead_in_long_ranges(tmp_path: Path) -> None:
    root = tmp_path / "long"
    root.mkdir()
    (root / "a.jsonl").write_text("".join(json.dumps({"n": n, "text": "x" * 500}) + "\n" for n in range(600)))
    assert run(["prepare", str(root), "--non-interactive"]) == 0
    upload(root, f"{BUCKET}/long")
    config = ol.WorkerConfig(rank=0, world_size=1, num_workers=0)
    here, there = (
        ol.get_loader(ol.get_train_dataset(path, worker_config=config, batch_size=None))
        for path in (str(root), f"{BUCKET}/long")
    )
    assert [one["json"] for one in islice(there, 900)] == [one["json"] for one in islice(here, 900)]
    (leaf,) = there.stats()["datasets"].values()
    assert leaf["store"]["rows_ahead"] == 900
    assert leaf["store"]["long_ranges"] < 200
    bound = leaf["store"]["wanted_bytes"] * (1 + GAP_SHARE) + leaf["store"]["long_ranges"] * GAP_BYTES
    assert leaf["store"]["long_range_bytes"] <= bound


def test_row_groups_are_brought_before_they_are_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    from omniloom.data.tables import spool  # noqa: PLC0415 - not without that library

    root = tmp_path / "groups"
    root.mkdir()
    table = pa.table({"text": [f"{n} " * 900 for n in range(240)]})
    parquet.write_table(table, root / "a.parquet", row_group_size=20)
    upload(root, f"{BUCKET}/groups")
    made_by: list[str] = []
    make = spool.Spool._made

    def watched(self: Any, *arguments: Any) -> Any:
        made_by.append(threading.current_thread().name)
        return make(self, *arguments)

    monkeypatch.setattr(spool.Spool, "_made", watched)
    monkeypatch.setattr(spool, "_SPOOLS", {})
    read = _read(f"{BUCKET}/groups")
    monkeypatch.setattr(spool, "_SPOOLS", {})
    made = list(made_by)
    assert read == _read(str(root))
    ahead = [name for name in made if name.startswith("omniloom-bring")]
    assert len(made) <= 12  # each group once
    assert len(ahead) >= len(made) - 2  # the first may be made by who waits for it


def test_records_by_number_from_a_store(tmp_path: Path) -> None:
    upload(_jsonl(tmp_path / "numbers"), f"{BUCKET}/numbers")
    store = open_side_store(f"{BUCKET}/numbers/train-0.jsonl")
    assert json.loads(store["3.json"][0]) == {"n": 3, "file": "train-0.jsonl"}
    with pytest.raises(SampleError):
        store["99"]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_tables(form: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    root = tmp_path / f"table-{form}"
    root.mkdir()
    for number in range(2):
        table = pa.table({"text": [f"t{number}-{n}" * 3_000 for n in range(9)], "n": list(range(9))})
        if form == "parquet":
            pa.parquet.write_table(table, root / f"part-{number}.parquet", row_group_size=4)
        else:
            with (
                pa.OSFile(str(root / f"part-{number}.arrow"), "wb") as file,
                pa.ipc.new_file(file, table.schema) as out,
            ):
                out.write_table(table, max_chunksize=4)
    if form == "arrow":
        names = [{"filename": f"part-{number}.arrow"} for number in range(2)]
        (root / "state.json").write_text(json.dumps({"_data_files": names}))
    _same("", root)


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads that read whole objects by their names in a folder."""
    names: list[str] = []
    read = InsideStore.read

    def watched(self: InsideStore, name: str) -> bytes:
        names.append(threading.current_thread().name)
        return read(self, name)

    monkeypatch.setattr(InsideStore, "read", watched)
    return names


def _were_ahead(readers: list[str]) -> bool:
    """Whether all were read before they were due, but for those that somebody waited for already."""
    ahead = [name.startswith("omniloom-bring") for name in readers]
    return len(ahead) >= 6 and sum(ahead) > len(ahead) // 2


def test_a_folder_of_files(tmp_path: Path, readers: list[str]) -> None:
    root = tmp_path / "files"
    for part, count in (("train", 6), ("val", 2)):
        (root / part).mkdir(parents=True)
        for number in range(count):
            (root / part / f"{number}.txt").write_text(f"{part} {number}")
            (root / part / f"{number}.cls").write_text(str(number))
    _same("", root)
    assert _were_ahead(readers)
    assert run(["prepare", f"{BUCKET}/files", "--non-interactive"]) == 0
    assert run(["prepare", str(root), "--non-interactive"]) == 0
    assert remote_files(f"{BUCKET}/files")[".nv-meta/files.jsonl"] == (root / ".nv-meta/files.jsonl").read_bytes()
    assert _read(f"{BUCKET}/files") == _read(str(root))


def test_llava_json_with_its_images(tmp_path: Path, readers: list[str]) -> None:
    root = tmp_path / "llava"
    (root / "images").mkdir(parents=True)
    entries = []
    for number in range(8):
        (root / "images" / f"{number}.jpg").write_bytes(b"\xff\xd8\xff\xe0 image %d" % number)
        talk = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": f"The {number}."}]
        entries.append({"id": f"e{number}", "image": f"images/{number}.jpg", "conversations": talk})
    (root / "train.json").write_text(json.dumps(entries))
    _same("/train.json", root)
    assert _were_ahead(readers)


def test_an_image_that_is_not_there_is_the_same_fault(tmp_path: Path) -> None:
    upload(_jsonl(tmp_path / "lost"), f"{BUCKET}/lost")
    images = open_images(f"{BUCKET}/lost")
    for name, reason in (("nothing.jpg", "missing-image"), ("../jsonl/train-0.jsonl", "outside-images")):
        with pytest.raises(SampleError) as caught:
            images.read(name)
        assert caught.value.reason == reason
        assert not images.has(name)
    assert images.has("train-0.jsonl")


def test_packed_records_are_refused(tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "a.jsonl.gz").write_bytes(b"x")
    upload(tmp_path / "packed", f"{BUCKET}/packed")
    with pytest.raises(DatasetError, match=r"holds a\.jsonl\.gz; records are read in any order"):
        find_source(f"{BUCKET}/packed")


def test_a_copy_is_kept_for_each_state_of_a_file() -> None:
    store = open_store(BUCKET)
    store.write(f"{BUCKET}/states/x.json", b"[1]")
    first = kept_copy(f"{BUCKET}/states/x.json")
    assert kept_copy(f"{BUCKET}/states/x.json") == first
    store.write(f"{BUCKET}/states/x.json", b"[2]")
    second = kept_copy(f"{BUCKET}/states/x.json")
    assert (first.read_bytes(), second.read_bytes()) == (b"[1]", b"[2]")


def test_long_reads_of_an_object_are_one_range() -> None:
    data = bytes(range(256)) * 4_096
    open_store(BUCKET).write(f"{BUCKET}/object", data)
    file = ObjectFile(f"{BUCKET}/object")
    assert file.read(10) == data[:10]
    assert file.seek(-20, 2) == len(data) - 20
    assert (file.read(), file.read()) == (data[-20:], b"")
    file.seek(1_000)
    assert file.read(LONG_BYTES) == data[1_000 : 1_000 + LONG_BYTES]
    assert file.tell() == 1_000 + LONG_BYTES
    buffer = bytearray(300)
    assert file.readinto(buffer) == 300
    assert bytes(buffer) == data[1_000 + LONG_BYTES : 1_300 + LONG_BYTES]
