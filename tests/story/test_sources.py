"""Every kind of source goes through the loader alike: in evaluation and training, in a mix, with stores beside it."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omniloom.data.cook import Cooker, basic_sample_keys, cooker
from omniloom.data.kinds import CaptioningSample
from omniloom.data.loader.config import WorkerConfig
from omniloom.data.loader.loader import Loader
from omniloom.data.mix.values import join
from omniloom.data.mix.values import source as source_of_mix
from omniloom.data.open import get_savable_loader, get_train_dataset, get_val_dataset
from omniloom.data.shards.write import TarWriter
from omniloom.data.side import FileStoreCachePool
from omniloom.data.stateless import stateless
from omniloom.data.task import DefaultTaskEncoder
from omniloom.tools.main import run

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 24


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((2, 3, 3), number, np.uint8)).save(file, "PNG")
    return file.getvalue()


def make_jsonl(root: Path) -> Path:
    for part in range(2):
        lines = [json.dumps({"image": f"{n}.png", "caption": f"c{n}"}) for n in range(part * 12, part * 12 + 12)]
        (root / f"part-{part}.jsonl").write_text("\n".join(lines))
    return root


def make_parquet(root: Path) -> Path:
    rows = [{"image": {"bytes": png(n), "path": None}, "caption": f"c{n}"} for n in range(ROWS)]
    for part in range(2):
        pq.write_table(
            pa.Table.from_pylist(rows[part * 12 : part * 12 + 12]), root / f"{part}.parquet", row_group_size=5
        )
    return root


def make_arrow(root: Path) -> Path:
    datasets = pytest.importorskip("datasets")
    rows = [{"image": {"bytes": png(n), "path": None}, "caption": f"c{n}"} for n in range(ROWS)]
    datasets.Dataset.from_list(rows).save_to_disk(root / "saved")
    return root / "saved"


def make_folder(root: Path) -> Path:
    for number in range(ROWS):
        (root / f"{number:02d}.png").write_bytes(png(number))
        (root / f"{number:02d}.txt").write_text(f"c{number}")
    return root


def make_llava(root: Path) -> Path:
    make_folder(root)
    turns = [[{"from": "human", "value": "<image>"}, {"from": "gpt", "value": f"c{n}"}] for n in range(ROWS)]
    entries = [{"id": f"id{n}", "image": f"{n:02d}.png", "conversations": turns[n]} for n in range(ROWS)]
    (root / "x.json").write_text(json.dumps(entries))
    return root / "x.json"


def make_shards(root: Path) -> Path:
    with TarWriter(root / "shard-0.tar") as writer:
        for number in range(ROWS):
            writer.add(f"{number}.png", png(number))
            writer.add(f"{number}.txt", f"c{number}".encode())
    words = ["--non-interactive", "--split-ratio=1,0,0", "--sample-type=CrudeWebdataset"]
    assert run(["prepare", str(root), *words]) == 0
    return root


MAKERS = {
    "jsonl": make_jsonl,
    "parquet": make_parquet,
    "arrow": make_arrow,
    "folder": make_folder,
    "llava": make_llava,
    "shards": make_shards,
}


@pytest.fixture(scope="module", params=MAKERS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MAKERS[request.param](tmp_path_factory.mktemp(request.param))


@stateless
def cook(sample: Any) -> Any:
    """One function for every kind: the caption is where the kind has it."""
    caption = sample.get("txt", sample.get("caption"))
    if "json" in sample:
        value = sample["json"]
        caption = value["caption"] if isinstance(value, dict) else value[1]["value"]
    image = sample.get("image", sample.get("png"))
    return CaptioningSample(**basic_sample_keys(sample), image=image, caption=caption)


class Captions(DefaultTaskEncoder):
    cookers = (Cooker(cook),)


def loader(path: Any, *, train: bool, workers: int, encoder: Any = None, **settings: Any) -> Loader:
    config = WorkerConfig(rank=0, world_size=1, num_workers=workers, lanes=settings.pop("lanes", None))
    how: dict[str, Any] = {"worker_config": config, "batch_size": None, "task_encoder": encoder or Captions()}
    if train:
        return get_savable_loader(get_train_dataset(path, shuffle_buffer_size=8, **how), **settings)
    return get_savable_loader(get_val_dataset(path, split_part="train", **how), **settings)


def test_evaluation_goes_through_the_rows_in_their_order(source: Path) -> None:
    with loader(source, train=False, workers=0) as samples:
        found = list(samples)
    assert [sample.caption for sample in found] == [f"c{number}" for number in range(ROWS)]
    images = [sample.image for sample in found if sample.image is not None]
    assert [int(image[0, 0, 0]) for image in images] == (list(range(ROWS)) if images else [])


def test_training_deals_each_epoch_whole_and_resumes_exactly(source: Path) -> None:
    with loader(source, train=True, workers=0) as samples:
        stream = iter(samples)
        first = [next(stream).caption for _ in range(2 * ROWS)]
        state = samples.save_state_rank()
        expected = [next(stream).caption for _ in range(10)]
    assert set(Counter(first).values()) == {2}
    with loader(source, train=True, workers=0) as again:
        again.restore_state_rank(state)
        stream = iter(again)
        assert [next(stream).caption for _ in range(10)] == expected


def test_a_prepared_source_is_the_same(source: Path) -> None:
    with loader(source, train=True, workers=0) as samples:
        stream = iter(samples)
        before = [next(stream).__key__ for _ in range(30)]
    if not (source / ".nv-meta/.info.json").exists():
        assert run(["prepare", str(source)]) == 0
    with loader(source, train=True, workers=0) as samples:
        stream = iter(samples)
        assert [next(stream).__key__ for _ in range(30)] == before


def test_commands_know_every_kind(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", str(source), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["samples"] == ROWS
    assert run(["lint", str(source), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["samples"], report["bad_samples"]) == (ROWS, 0)
    assert run(["preview", str(source), "--count", "2", "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [sample["row"] for sample in shown] == [0, 1]


def test_lint_finds_what_a_run_would_leave_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"image": {"bytes": png(1) if n else png(1)[:30], "path": "x.png"}} for n in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    with pytest.raises(SystemExit, match="1"):
        run(["lint", str(tmp_path / "x.parquet"), "--json"])
    report = json.loads(capsys.readouterr().out)
    (finding,) = report["findings"]
    assert (finding["level"], finding["shard"], finding["key"]) == ("error", "x.parquet", "0")


def test_a_folder_of_tables_is_split_and_described_by_prepare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"image": {"bytes": png(n), "path": None}, "caption": f"c{n}"} for n in range(ROWS)]
    rows[7]["image"] = {"bytes": png(7)[:30], "path": "broken.png"}
    for part in range(4):
        pq.write_table(pa.Table.from_pylist(rows[part * 6 : part * 6 + 6]), tmp_path / f"{part}.parquet")
    words = [
        "--split-ratio=3,1,0",
        "--sample-type=CaptioningSample",
        "--field-map",
        '{"image": "image", "caption": "caption"}',
    ]
    assert run(["prepare", str(tmp_path), "--non-interactive", *words]) == 0
    assert "Found 24 samples" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="1"):
        run(["lint", str(tmp_path), "--json", "--exclude-bad"])
    report = json.loads(capsys.readouterr().out)
    assert report["quarantine"] == ["1.parquet/1"]
    encoder = DefaultTaskEncoder()
    with loader(tmp_path, train=False, workers=0, encoder=encoder) as samples:
        found = list(samples)
    assert {type(sample) for sample in found} == {CaptioningSample}
    assert [sample.caption for sample in found] == [f"c{n}" for n in range(18) if n != 7]
    assert run(["info", str(tmp_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["sample_type"], facts["split_parts"]["val"]) == ("CaptioningSample", {"samples": 6, "files": 1})


def test_a_description_that_does_not_fit_is_refused_and_not_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_parquet(tmp_path)
    words = ["--sample-type=TextSample", "--field-map", '{"text": "words"}']
    assert run(["prepare", str(tmp_path), "--non-interactive", *words]) == 2
    assert "mapped to words, but there is no such column; there are image, caption" in capsys.readouterr().err
    assert not (tmp_path / ".nv-meta/dataset.yaml").exists()


# Mixes of kinds, with stores


class WithStores(DefaultTaskEncoder):
    """Images come from the store that the mix names, captions of the sample itself by its own key."""

    @staticmethod
    @stateless
    @cooker(need_cache=True, need_primary=True)
    def cook_it(sample: Any, images: Any, primary: Any, cache: Any) -> Any:
        name = sample["json"]["image"]
        lazy = cache.get_lazy(images, name)
        again = primary[".json"][0]
        image = lazy.get(sample)
        return CaptioningSample(**basic_sample_keys(sample), image=image, caption=again["caption"])

    cookers = (Cooker(cook_it.__func__),)  # type: ignore[attr-defined]


@pytest.mark.parametrize("workers", [0, 2])
def test_cookers_are_handed_stores_and_the_cache(workers: int, tmp_path: Path) -> None:
    make_folder(tmp_path)
    lines = [json.dumps({"image": f"{n:02d}.png", "caption": f"c{n}"}) for n in range(ROWS)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    assert run(["prepare", str(tmp_path / "x.jsonl")]) == 0
    (tmp_path / "mix.yaml").write_text(
        "__module__: megatron.energon\n__class__: MetadatasetV2\nsplits:\n  train:\n    path: x.jsonl\n"
        "    aux: {images: 'filesystem://.'}\n"
    )
    pool = FileStoreCachePool(parent_cache_dir=tmp_path / "cache", num_workers=2)
    with loader(tmp_path / "mix.yaml", train=False, workers=workers, encoder=WithStores(), cache_pool=pool) as samples:
        found = list(samples)
    assert [(sample.caption, int(sample.image[0, 0, 0])) for sample in found] == [(f"c{n}", n) for n in range(ROWS)]
    files = [source.file_names for source in found[3].__sources__]
    assert files == [("3.json",), ("03.png",)]
    pool.close()
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_blend_of_all_kinds_is_the_same_by_workers(tmp_path: Path) -> None:
    refs = []
    for kind, make in MAKERS.items():
        (tmp_path / kind).mkdir()
        refs.append(f"        - {{path: {make(tmp_path / kind)}, weight: 1, subset: {{range: [0%, 50%]}}}}\n")
    (tmp_path / "mix.yaml").write_text(
        "__module__: megatron.energon\n__class__: MetadatasetV2\nsplits:\n  train:\n    blend:\n" + "".join(refs)
    )
    found = []
    for workers in (0, 2):
        with loader(tmp_path / "mix.yaml", train=True, workers=workers, lanes=4) as samples:
            stream = iter(samples)
            found.append([(sample.__key__, sample.caption) for sample in (next(stream) for _ in range(96))])
    assert found[0] == found[1]
    assert {caption for _, caption in found[0]} == {f"c{number}" for number in range(12)}


def test_joins_and_old_mixes_take_any_kind(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    make_shards(tmp_path / "shards")
    (tmp_path / "x.jsonl").write_text("".join(json.dumps({"square": n * n}) + "\n" for n in range(ROWS)))
    pq.write_table(pa.table({"cube": [n**3 for n in range(ROWS)]}), tmp_path / "x.parquet")

    def joiner(first: Any, second: Any, third: Any) -> Any:
        return {**first, "square": second["json"]["square"], "cube": third["cube"]}

    parts = [source_of_mix(tmp_path / name) for name in ("shards", "x.jsonl", "x.parquet")]
    with loader(join(parts, joiner=joiner), train=False, workers=0, encoder=DefaultTaskEncoder()) as samples:
        found = [(sample["__key__"], sample["txt"], sample["square"], sample["cube"]) for sample in samples]
    assert found == [(str(n), f"c{n}", n * n, n**3) for n in range(ROWS)]
    old = "splits:\n  train:\n    datasets:\n      - path: x.jsonl\n      - path: x.parquet\n"
    (tmp_path / "old.yaml").write_text(old)
    with loader(tmp_path / "old.yaml", train=True, workers=0, encoder=DefaultTaskEncoder()) as samples:
        stream = iter(samples)
        drawn = [next(stream) for _ in range(20)]
    assert {"json" in sample for sample in drawn} == {True, False}
