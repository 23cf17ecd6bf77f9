"""`omniloom prepare` writes what `energon prepare` wrote: index bytes, JSON, YAML, rows and schema."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "energon_sidecar"))

from archives import CASES
from sidecar_content import sidecar_content

from omniloom.data.index.dataset import dataset_config, open_dataset
from omniloom.tools.main import run

EXPECTED = Path(__file__).parent / "energon_sidecar"


@pytest.mark.parametrize("name", CASES)
def test_same_sidecar_as_energon(name: str, tmp_path: Path) -> None:
    CASES[name].make(tmp_path / "set")
    assert run(["prepare", str(tmp_path / "set"), "--non-interactive", "--num-workers=1", *CASES[name].words]) == 0
    expected = json.loads((EXPECTED / f"{name}.json").read_text(encoding="utf-8"))
    assert sidecar_content(tmp_path / "set") == expected


def test_processes_make_no_difference(tmp_path: Path) -> None:
    case = CASES["many_shards"]
    for workers in (1, 2):
        case.make(tmp_path / f"{workers}")
        words = ["prepare", str(tmp_path / f"{workers}"), "--non-interactive", f"--num-workers={workers}", *case.words]
        assert run(words) == 0
    assert sidecar_content(tmp_path / "1") == sidecar_content(tmp_path / "2")


@pytest.mark.parametrize("name", CASES)
def test_same_sidecar_as_the_installed_energon(name: str, tmp_path: Path) -> None:
    energon = Path(os.environ.get("ENERGON", Path(sys.executable).with_name("energon")))
    if not energon.exists():
        pytest.skip("megatron-energon is not installed here; ENERGON can name its program")
    for folder in ("ours", "theirs"):
        CASES[name].make(tmp_path / folder)
    words = ["--non-interactive", "--no-progress", "--num-workers=1", *CASES[name].words]
    subprocess.run([energon, "prepare", str(tmp_path / "theirs"), *words], check=True, capture_output=True)
    assert run(["prepare", str(tmp_path / "ours"), *words]) == 0
    assert sidecar_content(tmp_path / "ours") == sidecar_content(tmp_path / "theirs")


@pytest.mark.parametrize("name", ["captions", "odd_names"])
def test_a_set_that_energon_prepared_opens(name: str, tmp_path: Path) -> None:
    """Energon's files alone, put together from the recorded content."""
    CASES[name].make(tmp_path)
    expected = json.loads((EXPECTED / f"{name}.json").read_text(encoding="utf-8"))
    meta = tmp_path / ".nv-meta"
    meta.mkdir()
    for path, content in expected["index"].items():
        (tmp_path / path).write_bytes(bytes.fromhex(content))
    for file in (".info.json", "split.yaml", "dataset.yaml"):
        if file in expected:
            (meta / file).write_text(json.dumps(expected[file]), encoding="utf-8")  # JSON is YAML too
    index = open_dataset(tmp_path)
    assert index.rule == "first-dot"
    assert {shard.name: shard.samples for shard in index.shards}.items() <= expected[".info.json"][
        "shard_counts"
    ].items()
    assert all(shard.size_bytes is None and shard.parts_path is None for shard in index.shards)
    if name == "captions":
        assert [shard.name for shard in index.shards] == ["more/x.tar", "parts/data-0.tar"]
        assert dataset_config(tmp_path) == expected["dataset.yaml"]
    shutil.rmtree(meta)
