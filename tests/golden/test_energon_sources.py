"""Data sets that Energon 7.4.1 made load here with equal keys, fields and bytes, and the other way round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "energon_sources"))

from content import plain, stored
from data_sets import CODE, CONFIGS, JSONL, STORE_KEYS, write_shards

from omniloom.data.index.yaml_dialect import dump_yaml
from omniloom.data.loader.config import WorkerConfig
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.open import get_loader, get_val_dataset
from omniloom.data.side import JsonlFileStore, SystemFileStore, WebdatasetFileStore
from omniloom.data.task import DefaultTaskEncoder
from omniloom.tools.main import run

HERE = Path(__file__).parent / "energon_sources"
EXPECTED: dict[str, Any] = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))


class Plain(DefaultTaskEncoder):
    """Decodes as Energon does by default; the encoder of the user, so that samples come as they are cooked."""

    decoder = SampleDecoder(image_decode="torchrgb")

    def encode_sample(self, sample: Any) -> Any:
        return sample


@pytest.fixture(scope="module")
def made_by_energon(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden folder, as Energon left it."""
    folder = tmp_path_factory.mktemp("golden")
    with zipfile.ZipFile(HERE / "made_by_energon.zip") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def made_here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same shards, prepared by omniloom."""
    folder = tmp_path_factory.mktemp("ours")
    write_shards(folder / "shards")
    words = ["--non-interactive", "--split-ratio=1,0,0", "--skip-dataset-yaml", "--no-progress", "--num-workers=1"]
    assert run(["prepare", str(folder / "shards"), *words]) == 0
    for name, config in CONFIGS.items():
        (folder / "shards/.nv-meta" / f"{name}.yaml").write_text(dump_yaml(config), encoding="utf-8")
    (folder / "shards/.nv-meta/sample_loader.py").write_text(CODE, encoding="utf-8")
    (folder / "lines.jsonl").write_bytes(JSONL)
    assert run(["prepare", str(folder / "lines.jsonl")]) == 0
    return folder


def read(path: Path, **settings: Any) -> list[Any]:
    """What omniloom yields, in val order."""
    config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    dataset = get_val_dataset(
        path, split_part="train", worker_config=config, batch_size=None, task_encoder=Plain(), trust=True, **settings
    )
    return [plain(sample) for sample in get_loader(dataset)]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_data_set_of_energon_yields_what_energon_yields(name: str, made_by_energon: Path) -> None:
    assert read(made_by_energon / "shards", dataset_config=f"{name}.yaml") == EXPECTED[name]


def test_jsonl_of_energon_yields_what_energon_yields(made_by_energon: Path) -> None:
    # Energon leaves the subflavors of JSONL None, where those of shards are {}; then `has_subflavors` fails in it.
    assert read(made_by_energon / "lines.jsonl") == [{**sample, "__subflavors__": {}} for sample in EXPECTED["jsonl"]]


def test_the_index_of_jsonl_has_energons_bytes(made_by_energon: Path, made_here: Path) -> None:
    assert (made_here / "lines.jsonl.idx").read_bytes() == (made_by_energon / "lines.jsonl.idx").read_bytes()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_data_set_made_here_yields_the_same(name: str, made_here: Path) -> None:
    assert read(made_here / "shards", dataset_config=f"{name}.yaml") == EXPECTED[name]


def test_stores_give_what_energons_give(made_by_energon: Path, made_here: Path) -> None:
    expected = EXPECTED["stores"]
    for folder in (made_by_energon, made_here):
        shards = WebdatasetFileStore(folder / "shards")
        assert {key: stored(*shards[key]) for key in STORE_KEYS} == expected["shards"]
        assert [list(entry)[:2] for entry in shards.list_sample_parts("v1.0/0002")] == expected["listed"]
        assert shards.get_total_size() == expected["total"]
        lines = JsonlFileStore(folder / "lines.jsonl")
        assert {key: stored(*lines[key]) for key in expected["lines"]} == expected["lines"]
        assert {key: stored(*SystemFileStore(folder)[key]) for key in expected["files"]} == expected["files"]


def test_energon_yields_of_a_data_set_made_here_what_it_yields_of_its_own(made_here: Path) -> None:
    program = os.environ.get("ENERGON_PYTHON")
    if not program:
        pytest.skip("ENERGON_PYTHON names no Python that has megatron-energon")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    shown = subprocess.run(
        [program, HERE / "record.py", "yield", made_here], check=True, capture_output=True, env=environment
    )
    assert json.loads(shown.stdout) == EXPECTED


def test_the_golden_folder_is_what_the_installed_energon_makes(made_by_energon: Path, tmp_path: Path) -> None:
    program = os.environ.get("ENERGON_PYTHON")
    if not program:
        pytest.skip("ENERGON_PYTHON names no Python that has megatron-energon")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [program, HERE / "record.py", "make", tmp_path / "new"]
    subprocess.run(words, check=True, capture_output=True, env=environment)
    for path in made_by_energon.rglob("*"):
        if path.is_file() and path.name not in ("index.uuid", "index.sqlite"):
            assert (tmp_path / "new" / path.relative_to(made_by_energon)).read_bytes() == path.read_bytes(), path.name
