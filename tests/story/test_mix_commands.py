"""`omniloom prepare` and `omniloom info` on a metadataset, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omniloom as ol
from omniloom.tools.main import run

MIX = """
__module__: megatron.energon
__class__: MetadatasetV2
splits:
  train:
    blend:
      - {path: texts, weight: 1, subset: {range: [25%, 75%]}, subflavors: {kind: plain}}
      - join:
          - {path: texts}
          - {path: labels, nonmatch: skip}
        joiner: {__module__: their.package, __function__: combine}
        weight: 3
  val:
    blend_epochized:
      - {path: labels, split_part: train, repetitions: 2.5}
"""


@pytest.fixture
def mix(tmp_path: Path) -> Path:
    described = {
        "sample_type": {"__module__": "megatron.energon", "__class__": "TextSample"},
        "field_map": {"text": "txt"},
    }
    for name, keys in (("texts", range(20)), ("labels", range(0, 20, 4))):
        (tmp_path / name).mkdir()
        with ol.TarWriter(tmp_path / name / "s0.tar") as tar:
            for key in keys:
                tar.add(f"{key:03d}.txt", b"text")
        ol.prepare_dataset(tmp_path / name, split_ratio={"train": 1.0}, num_workers=1)
        (tmp_path / name / ".nv-meta" / "dataset.yaml").write_text(json.dumps(described))
    path = tmp_path / "mix.yaml"
    path.write_text(MIX)
    return path


def test_prepare_joins_without_the_joiner(mix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prepare", str(mix), "--json"]) == 0
    (join,) = json.loads(capsys.readouterr().out)["joins"]
    assert (join["split_part"], join["rows"]) == ("train", 5)
    cache = mix.with_name("mix.yaml.cache")
    # Ours lies one folder down: Energon removes files that it does not know.
    assert (Path(join["path"]).parent, Path(join["energon_path"]).parent) == (cache / "omniloom", cache)
    assert Path(join["energon_path"]).read_bytes()[:16] == b"JIDX0001" + (2).to_bytes(8, "little")
    assert run(["prepare", str(mix)]) == 0
    assert "train: joined 5 rows" in capsys.readouterr().out


def test_info_shows_what_a_mix_comes_to(mix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", str(mix), "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["split_parts"]
    assert [(leaf["name"], leaf["rows"], leaf["share"]) for leaf in parts["train"]["leaves"]] == [
        ("texts", 10, 0.25), ("texts+labels", 5, 0.75),
    ]  # fmt: skip
    assert parts["train"]["leaves"][0]["places"] == [f"{mix}:7 (splits > train > blend > 0)"]
    (leaf,) = parts["val"]["leaves"]
    assert (parts["val"]["mode"], leaf["repetitions"], leaf["split_part"]) == ("repetitions", 2.5, "train")
    assert run(["info", str(mix)]) == 0
    shown = capsys.readouterr().out
    assert "| 10 | 25.00% |  | train [25%:75%] |  | kind: plain |" in shown
