"""A person packs a data set once, or fixes its grids of tiles, and trains on the result."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import omniloom
from omniloom.data.convert.llava import convert_llava
from omniloom.tools.encoder_options import encoder_of
from omniloom.tools.main import run

SETTINGS: dict[str, Any] = {
    "tokenizer": None,
    "template": "chatml",
    "image_token": None,
    "processor": None,
    "system": None,
    "prompts": None,
    "layout": "tiles",
    "max_tiles": 4,
    "area_weighted": False,
    "tower": "clip",
    "tile_pixels": 28,
    "patch_pixels": 14,
    "pixel_shuffle": False,
    "image_tags": "none",
    "tile_tags": False,
    "video_frames": 4,
    "max_tokens": 600,
    "megatron_rules": False,
}
WORDS = ["--layout", "tiles", "--max-tiles", "4", "--tile-pixels", "28", "--max-tokens", "600", "--no-progress"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("offline")
    (root / "images").mkdir()
    draw = random.Random(1)
    entries = []
    for number in range(20):
        names = [f"{number}-{k}.png" for k in range(draw.choice([0, 1, 2]))]
        for name in names:
            stream = io.BytesIO()
            Image.new("RGB", (draw.randint(9, 90), draw.randint(9, 90)), (number * 9, 1, 2)).save(stream, "PNG")
            (root / "images" / name).write_bytes(stream.getvalue())
        asked = "".join(f"<image-{k + 1}>" for k in reversed(range(len(names)))) + " what?"
        said = "long " * 300 if number == 3 else "text " * draw.randint(1, 40)
        turns = [{"from": "human", "value": asked}, {"from": "gpt", "value": said}]
        if number == 5:
            turns[0]["value"] += "<image-9>"
        entries.append({"id": f"s{number}", "image": names, "conversations": turns})
    (root / "d.json").write_text(json.dumps(entries))
    convert_llava(root / "d.json", images=root / "images", out=root / "out")
    return root / "out"


def _batches(path: Path, encoder: Any, **settings: Any) -> list[Any]:
    config = omniloom.WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = omniloom.get_val_dataset(
        path, split_part="train", task_encoder=encoder, worker_config=config, batch_size=1, **settings
    )
    return list(omniloom.get_savable_loader(dataset))


def _documents(batches: list[Any]) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    found = {}
    for batch in batches:
        lengths = batch.document_lengths.tolist()
        parts = zip(batch.document_keys, batch.input_ids.split(lengths), batch.labels.split(lengths), strict=True)
        found |= {key: (ids, labels) for key, ids, labels in parts}
    return found


def test_packs_give_the_tokens_that_the_samples_give(prepared: Path, tmp_path: Path) -> None:
    out = tmp_path / "packed"
    assert run(["convert", "packs", str(prepared), "--pack-tokens", "1000", "--out", str(out), *WORDS]) == 1
    report = [json.loads(line) for line in (out / "convert_report.jsonl").read_text().splitlines()]
    assert [line["reason"] for line in report if line["outcome"] == "left-out"] == ["placeholder-count"]
    direct = _documents(_batches(prepared, encoder_of(**SETTINGS)))
    packed = _batches(out, encoder_of(**SETTINGS, pack_tokens=1000))
    assert 1 < len(packed) < 12
    assert all(len(batch.input_ids) <= 1000 for batch in packed)
    again = _documents(packed)
    assert again.keys() == direct.keys()
    for key, (ids, labels) in direct.items():
        assert torch.equal(again[key][0], ids), key
        assert torch.equal(again[key][1], labels), key
    tiles = sum(int(batch.num_tiles.sum()) for batch in packed)
    assert tiles == sum(int(batch.num_tiles.sum()) for batch in _batches(prepared, encoder_of(**SETTINGS)))


def test_a_pack_that_no_longer_fits_is_told(prepared: Path, tmp_path: Path) -> None:
    out = tmp_path / "packed"
    run(["convert", "packs", str(prepared), "--pack-tokens", "1000", "--out", str(out), *WORDS])
    loose = encoder_of(**{**SETTINGS, "max_tokens": 600}, pack_tokens=600)
    config = omniloom.WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = omniloom.get_val_dataset(out, split_part="train", task_encoder=loose, worker_config=config, batch_size=1)
    loader = omniloom.get_savable_loader(dataset)
    list(loader)
    assert "oversize" in str(loader.stats())


def test_grids_are_kept_whatever_the_layout_would_choose(prepared: Path, tmp_path: Path) -> None:
    out = tmp_path / "grids"
    assert run(["convert", "grids", str(prepared), "--out", str(out), *WORDS]) == 1
    other = encoder_of(**{**SETTINGS, "max_tiles": 12, "area_weighted": True})
    again, direct = _documents(_batches(out, other)), _documents(_batches(prepared, encoder_of(**SETTINGS)))
    assert again.keys() == direct.keys()
    assert all(torch.equal(again[key][0], direct[key][0]) for key in direct)


def test_packing_goes_on_after_a_stop(prepared: Path, tmp_path: Path) -> None:
    words = ["convert", "packs", str(prepared), "--pack-tokens", "1000", "--max-count", "2", "--allow-missing", *WORDS]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert run([*words, "--out", str(whole)]) == 0
    assert run([*words, "--out", str(cut)]) == 0
    shards = sorted(path.name for path in whole.glob("*.tar"))
    (cut / shards[-1]).unlink()
    assert run([*words, "--out", str(cut)]) == 0
    assert [(whole / n).read_bytes() for n in shards] == [(cut / n).read_bytes() for n in shards]


def test_one_process_makes_packs(prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["convert", "packs", str(prepared), "--pack-tokens", "600", "--out", str(tmp_path / "packs"), *WORDS]
    assert run([*words, "--executor", "threads://2"]) == 1
    assert "by one process" in capsys.readouterr().err
