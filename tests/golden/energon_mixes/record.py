"""Makes expected.json with Megatron Energon itself: run as ``VENV/bin/python record.py`` where Energon is installed.

``record.py FOLDER`` prints the same of sets and mixes in a folder, which another program has made and prepared.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from megatron.energon import (
    WorkerConfig,
    get_loader,
    get_train_dataset,
    get_val_dataset,
    load_dataset,
    prepare_metadataset,
)
from megatron.energon.epathlib import EPath
from megatron.energon.metadataset.loader_interface import DatasetBlendMode
from mixes import FILES, SETS, describe_sets, make_sets

PARTS = [("v1.yaml", "val"), ("blend.yaml", "val"), *((name, "train") for name in FILES)]


def main() -> None:
    """Prepare, load and write what came."""
    if len(sys.argv) > 1:
        root = Path(sys.argv[1])
        sys.path.insert(0, str(root))
        stdout, sys.stdout = sys.stdout, sys.stderr  # Energon prints
        told = {f"{name} {part}": recorded(root, name, part, prepare=False) for name, part in PARTS}
        json.dump(told, stdout)
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_sets(root)
        sys.path.insert(0, folder)
        energon = Path(sys.executable).with_name("energon")
        for name in SETS:
            command = [energon, "prepare", str(root / name), "--non-interactive", "--no-progress", "--num-workers=1"]
            command += ["--split-ratio=1,0,0", "--sample-type=CrudeWebdataset"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        describe_sets(root)
        told = {f"{name} {part}": recorded(root, name, part) for name, part in PARTS}
    Path(__file__).with_name("expected.json").write_text(json.dumps(told, indent=1) + "\n")


def recorded(root: Path, name: str, part: str, *, prepare: bool = True) -> dict:
    """Leaves with their part in the mix, and all samples in the order of an evaluation."""
    config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    path = EPath(root / name)
    if prepare and "V2" in FILES[name]:
        prepare_metadataset(path)
    loaded = load_dataset(path).get_datasets(
        training=True, split_part=part, worker_config=config, subflavors={"outermost": True},
        shuffle_over_epochs_multiplier=5, subset=None,
    )  # fmt: skip
    leaves = [
        {
            "weight": one.weight,
            "repetitions": one.repetitions,
            "multiplier": one.dataset.shuffle_over_epochs,
            "subflavors": getattr(one.dataset, "subflavors", None),
        }
        for one in loaded.datasets
    ]
    dataset = get_val_dataset(str(path), split_part=part, worker_config=config, batch_size=None)
    samples = [[s.__key__, s.text, s.__subflavors__] for s in get_loader(dataset)]
    epoch: Counter[str] = Counter()
    if loaded.blend_mode is not DatasetBlendMode.DATASET_WEIGHT:
        train = get_train_dataset(
            str(path), split_part=part, worker_config=config, batch_size=None, repeat=False,
            shuffle_buffer_size=None, max_samples_per_sequence=None,
        )  # fmt: skip
        epoch = Counter(s.__key__ for s in get_loader(train))
    indexes = [one.read_bytes().hex() for one in Path(f"{root / name}.cache").glob("join_index_*.bin")]
    return {
        "mode": loaded.blend_mode.value,
        "leaves": leaves,
        "samples": samples,
        "epoch": dict(epoch),
        "join_indexes": indexes,
    }


if __name__ == "__main__":
    main()
