"""A run whose recipe, data, model's description, checkpoints and start lie in a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from omniloom.data.convert.llava import convert_llava
from omniloom.errors import StorageError
from omniloom.storage.kept_room import make_room
from omniloom.storage.node_copy import kept_folder
from omniloom.storage.open import open_store
from omniloom.tools.main import run as omniloom
from tests.contract.remote_sets import upload, use_server
from tests.contract.s3_server import s3_server

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
BUCKET = "s3://runs"


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with s3_server("runs") as (host, port):
        use_server(monkeypatch, f"http://{host}:{port}")
        monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
        yield


def test_both_stages_from_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    talks = tmp_path / "talks"
    talks.mkdir()
    entries = []
    for number in range(12):
        Image.new("RGB", (40 + number, 48), ("red", "blue")[number % 2]).save(talks / f"{number}.png")
        turns = [{"from": "human", "value": "<image>\nWhich colour?"}, {"from": "gpt", "value": "One."}]
        entries.append({"id": str(number), "image": f"{number}.png", "conversations": turns})
    (talks / "talks.json").write_text(json.dumps(entries))
    convert_llava(talks / "talks.json", images=talks, out=tmp_path / "shards")
    upload(tmp_path / "shards", f"{BUCKET}/shards")
    upload(ROOT / "recipes", f"{BUCKET}/recipes")

    def train(recipe: str, *settings: str) -> int:
        told = (
            f"data.train={BUCKET}/shards",
            "data.validation=null",
            "evaluation={}",
            f"model.config={BUCKET}/recipes/models/tiny.json",
            *settings,
        )
        words = ["train", f"{BUCKET}/recipes/tiny/{recipe}.yaml"]
        return omniloom([*words, *(word for one in told for word in ("--set", one))])

    often = ("loop.steps=2", "checkpoint.every_steps=1", f"checkpoint.place={BUCKET}/first")
    assert train("pretrain", *often) == 0
    assert train("sft", "loop.steps=1", f"model.start={BUCKET}/first", "model.start_step=1", "folder=second") == 0
    assert train("sft", "loop.steps=1", f"model.start={BUCKET}/first/step-00000002", "folder=third") == 0
    assert train("sft", "loop.steps=1", f"model.start={BUCKET}/nothing", "folder=fourth") != 0
    lines = (tmp_path / "second" / "steps.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["step"] == 1


def test_a_folder_is_copied_once_for_each_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(BUCKET)
    store.write(f"{BUCKET}/model/config.json", b"{}")
    store.write(f"{BUCKET}/model/deep/weights.bin", b"w" * 1000)
    first = kept_folder(f"{BUCKET}/model")
    assert first.name == "model"
    assert (first / "deep" / "weights.bin").read_bytes() == b"w" * 1000
    (first / "deep" / "weights.bin").write_bytes(b"-")  # nobody looks again at what is whole
    assert kept_folder(f"{BUCKET}/model") == first
    store.write(f"{BUCKET}/model/config.json", b"{ }")
    second = kept_folder(f"{BUCKET}/model")
    assert second != first
    assert (second / "deep" / "weights.bin").read_bytes() == b"w" * 1000
    with pytest.raises(StorageError, match="nothing"):
        kept_folder(f"{BUCKET}/nothing")
    monkeypatch.setenv("OMNILOOM_COPIES_BYTES", "1003")
    assert make_room(tmp_path / "cache" / "folders") == 0  # both are in use
    monkeypatch.setattr("omniloom.storage.kept_room.IN_USE_SECONDS", -1.0)
    assert make_room(tmp_path / "cache" / "folders") > 0
    assert not first.exists()
    assert second.exists()
