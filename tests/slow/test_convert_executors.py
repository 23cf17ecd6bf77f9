"""Conversions on executors: the same data set whoever makes its shares, and a share whose maker was killed again."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from omniloom.data.convert.entry_source import JsonEntries
from omniloom.data.convert.llava_conversion import LlavaOptions
from omniloom.data.convert.llava_entry import LlavaEntry
from omniloom.data.convert.recipes import RECIPES, RecipeEntries
from omniloom.data.convert.shares import SharedConversion
from omniloom.data.index.executors import open_executor

pytestmark = pytest.mark.slow
SHARES = 4


class DeadlyEntries(JsonEntries):
    """Entries of which one kills its process the first time that it is read."""

    def read(self, value: Any, position: int) -> LlavaEntry:
        mark = self.path.with_name("died")
        if position == 9 and not mark.exists():
            mark.write_text("here")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(value, position)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "llava"
    root.mkdir()
    entries = []
    for number in range(24):
        Image.new("RGB", (8 + number, 8)).save(root / f"{number}.png")
        talk = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": f"{number}."}]
        entries.append({"id": f"e{number}", "image": f"{number}.png", "conversations": talk})
    (root / "train.json").write_text(json.dumps(entries))
    return root


@pytest.fixture
def dask_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    root = str(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([f"{root}/src", root, os.environ.get("PYTHONPATH", "")]))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        yield cluster


def converted(entries: JsonEntries, out: Path, executor: Any, num_workers: int = 1) -> dict[str, bytes]:
    settings = {"options": LlavaOptions(max_count=3), "split_ratio": "1,0,0"}
    summary = SharedConversion(entries, str(out), settings).run(executor, shares=SHARES, num_workers=num_workers)
    assert (summary.counts.samples, summary.shards) == (24, 8)
    kept = [path for path in out.rglob("*") if path.suffix in (".tar", ".idx") or path.name == "dataset.yaml"]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in kept}


@pytest.mark.parametrize("text", ["processes://2", "threads://3", "ray://", "dask://"])
def test_every_executor_makes_the_same_set(text: str, source: Path, tmp_path: Path, request: Any) -> None:
    alone = converted(JsonEntries(source / "train.json"), tmp_path / "alone", None)
    if text == "ray://":
        pytest.importorskip("ray", reason="ray is not installed here")
    if text == "dask://":
        address = request.getfixturevalue("dask_cluster").scheduler_address
        text = f"dask://{address.removeprefix('tcp://')}"
    with open_executor(text) as executor:
        assert converted(JsonEntries(source / "train.json"), tmp_path / "there", executor) == alone


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="with one processor the work is done in this process")
def test_a_share_whose_process_was_killed_is_made_again(source: Path, tmp_path: Path) -> None:
    alone = converted(JsonEntries(source / "train.json"), tmp_path / "alone", None)
    assert converted(DeadlyEntries(source / "train.json"), tmp_path / "there", None, num_workers=2) == alone
    assert (source / "died").exists()


def test_a_dask_worker_that_dies_loses_no_share(source: Path, tmp_path: Path, dask_cluster: Any) -> None:
    alone = converted(JsonEntries(source / "train.json"), tmp_path / "alone", None)
    with open_executor(f"dask://{dask_cluster.scheduler_address.removeprefix('tcp://')}") as executor:
        assert converted(DeadlyEntries(source / "train.json"), tmp_path / "there", executor) == alone
    assert (source / "died").exists()


def test_recipes_and_tables_go_to_processes_too(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    from omniloom.data.convert.parquet_entries import ParquetEntries  # noqa: PLC0415 - not without that library

    pictures = []
    for number in range(24):
        stream = io.BytesIO()
        Image.new("RGB", (8 + number, 8)).save(stream, "PNG")
        pictures.append({"bytes": stream.getvalue(), "path": f"{number}.png"})
    texts = [[{"user": "What?", "assistant": f"{n}."}] for n in range(24)]
    table = pa.table({"images": [[one] for one in pictures], "texts": texts})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    source: Any = ParquetEntries(tmp_path / "a.parquet")
    alone = converted(source, tmp_path / "alone", None)
    with open_executor("processes://2") as executor:
        assert converted(source, tmp_path / "there", executor) == alone

    found: Any = {"annotations": [], "images": []}
    for number in range(24):
        (tmp_path / f"{number}.png").write_bytes(pictures[number]["bytes"])
        found["images"].append({"id": number, "file_name": f"{number}.png"})
        found["annotations"].append({"id": number, "image_id": number, "caption": f"caption {number}"})
    (tmp_path / "captions.json").write_text(json.dumps(found))
    recipe: Any = RecipeEntries(RECIPES["coco-captions"], [tmp_path / "captions.json"])
    alone = converted(recipe, tmp_path / "alone-captions", None)
    with open_executor("processes://2") as executor:
        assert converted(recipe, tmp_path / "there-captions", executor) == alone
