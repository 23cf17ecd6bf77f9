"""Sample and batch types that stand in the main script itself come back from workers."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import omniloom as ol

ROOT = Path(__file__).resolve().parents[2]

ALONE = ["Alone 3", "Alone 12", "Slotted 3", "Slotted 12"]

SCRIPT = """
import json, sys
from dataclasses import dataclass
from pathlib import Path
import omniloom as ol
import torch

@ol.edataclass
class Encoded(ol.Sample):
    number: torch.Tensor

@ol.edataclass
class Numbers(ol.Batch):
    number: torch.Tensor

@ol.edataclass
class Alone:
    number: int

@dataclass(slots=True)
class Slotted:
    number: int

@dataclass
class Loose(ol.Batch):
    number: torch.Tensor = None

class Encoder(ol.TaskEncoder):
    def __init__(self, kind):
        self.kind = kind

    def encode_sample(self, sample):
        return Encoded.derive_from(sample, number=torch.tensor(int(sample.text)))

    def batch(self, samples):
        if self.kind == "list":
            return samples
        if self.kind in ("Alone", "Slotted"):
            return (Alone if self.kind == "Alone" else Slotted)(number=sum(int(one.number) for one in samples))
        return (Numbers if self.kind == "Numbers" else Loose).from_samples(samples)

config = ol.WorkerConfig(rank=0, world_size=1, num_workers=1)
for kind in ("Numbers", "Loose", "Alone", "Slotted", "list"):
    with ol.get_loader(ol.get_val_dataset(
        sys.argv[1], split_part="train", batch_size=3, worker_config=config, task_encoder=Encoder(kind)
    )) as loader:
        for batch in loader:
            numbers = [int(one.number) for one in batch if type(one) is Encoded] if kind == "list" else batch.number
            print(type(batch).__name__, numbers if kind in ("list", "Alone", "Slotted") else numbers.tolist())
"""


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    with ol.TarWriter(folder / "a.tar") as writer:
        for row in range(6):
            writer.add(f"{row}.txt", str(row).encode())
    ol.prepare_dataset(folder, num_workers=1)
    text = "sample_type: {__module__: omniloom, __class__: TextSample}\nfield_map: {text: txt}\n"
    (folder / ".nv-meta" / "dataset.yaml").write_text(text)
    return folder


def test_they_come_back_as_what_they_are(numbers: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, str(script), str(numbers)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    each = [[0, 1, 2], [3, 4, 5]]
    expected = [f"{kind} {one}" for kind in ("Numbers", "Loose") for one in each]
    assert done.stdout.splitlines() == [*expected, *ALONE, *(f"list {one}" for one in each)]


def test_a_sample_is_pickled_as_its_fields() -> None:
    sample = ol.TextSample(__key__="a", __restore_key__=(0, 1, 2), text="x")
    again = pickle.loads(pickle.dumps(sample))
    assert again == sample
    assert not hasattr(again, "__dict__")
