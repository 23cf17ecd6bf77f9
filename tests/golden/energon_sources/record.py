"""Records what Energon's loader yields of the data sets; run by the Python of an environment that has it.

python record.py make FOLDER     makes and prepares the data sets in FOLDER by Energon
python record.py yield FOLDER    prints, as JSON, what Energon's loader yields of the data sets in FOLDER
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from content import plain, stored
from data_sets import CODE, CONFIGS, JSONL, STORE_KEYS, write_shards


def make(folder: Path) -> None:
    """The data sets, prepared by Energon's own program."""
    root = folder / "shards"
    write_shards(root)
    program = Path(sys.executable).with_name("energon")
    words = ["--non-interactive", "--split-ratio=1,0,0", "--skip-dataset-yaml", "--no-progress", "--num-workers=1"]
    subprocess.run([program, "prepare", root, *words], check=True, stdout=sys.stderr)
    describe(root)
    (folder / "lines.jsonl").write_bytes(JSONL)
    subprocess.run([program, "prepare", folder / "lines.jsonl"], check=True, stdout=sys.stderr)


def describe(root: Path) -> None:
    """All descriptions, as files of ``.nv-meta``."""
    import yaml  # noqa: PLC0415 - Energon brings it

    for name, config in CONFIGS.items():
        (root / ".nv-meta" / f"{name}.yaml").write_text(yaml.dump(config, sort_keys=False), encoding="utf-8")
    (root / ".nv-meta" / "sample_loader.py").write_text(CODE, encoding="utf-8")


def yielded(folder: Path) -> dict[str, Any]:
    """What the loader yields, by description."""
    import megatron.energon as energon  # noqa: PLC0415 - only where it is installed

    @energon.stateless
    def cook(sample: Any) -> Any:
        return sample

    class Crude(energon.DefaultTaskEncoder):
        cookers = (energon.Cooker(cook),)

    def read(path: Path, **settings: Any) -> list[Any]:
        config = energon.WorkerConfig(rank=0, world_size=1, num_workers=0)
        encoder = Crude()
        dataset = energon.get_val_dataset(
            path, split_part="train", worker_config=config, batch_size=None, task_encoder=encoder, **settings
        )
        return [plain(sample) for sample in energon.get_loader(dataset)]

    def store(reader: Any, key: str) -> list[Any]:
        data, source = reader[key]
        return stored(data, source)

    from megatron.energon.cache import file_store  # noqa: PLC0415 - only where it is installed
    from megatron.energon.epathlib import EPath  # noqa: PLC0415

    shards = file_store.WebdatasetFileStore(EPath(folder / "shards"))
    lines = file_store.JsonlFileStore(EPath(folder / "lines.jsonl"))
    files = file_store.SystemFileStore(str(folder))
    stores = {
        "shards": {key: store(shards, key) for key in STORE_KEYS},
        "listed": [list(entry)[:2] for entry in shards.list_sample_parts("v1.0/0002")],
        "total": shards.get_total_size(),
        "lines": {key: store(lines, key) for key in ("0.json", "2.json")},
        "files": {"lines.jsonl": store(files, "lines.jsonl")},
    }
    found = {name: read(folder / "shards", dataset_config=f"{name}.yaml") for name in CONFIGS}
    # A leaf without subflavors is cooked only by a cooker that asks for none.
    return {**found, "jsonl": read(folder / "lines.jsonl"), "stores": stores}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    command, target = sys.argv[1], Path(sys.argv[2])
    if command == "make":
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        make(target)
    else:
        stdout, sys.stdout = sys.stdout, sys.stderr
        result = yielded(target)
        json.dump(result, stdout, indent=1, ensure_ascii=False, sort_keys=True)
        stdout.write("\n")
