"""Two hundred shards and room for sixty-four descriptors (C45): nothing runs out, with and without workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import json, pathlib, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from itertools import islice
import omniloom as ol
folder = pathlib.Path(sys.argv[1])
for shard in range(200):
    with ol.TarWriter(folder / f"s{shard:03d}.tar") as tar:
        for number in range(5):
            tar.add(f"{shard:03d}-{number}.txt", b"x")
ol.prepare_dataset(folder, num_workers=1)
described = {"sample_type": {"__module__": "megatron.energon", "__class__": "TextSample"}, "field_map": {"text": "txt"}}
(folder / ".nv-meta" / "dataset.yaml").write_text(json.dumps(described))
for workers in (0, 2):
    config = ol.WorkerConfig(rank=0, world_size=1, num_workers=workers)
    dataset = ol.get_train_dataset(folder, worker_config=config, batch_size=8, shuffle_buffer_size=1_000)
    with ol.get_loader(dataset) as loader:
        for batch in islice(loader, 200):
            pass
        print(json.dumps(loader.stats()["datasets"][folder.name]))
"""


def test_few_descriptors_are_enough(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all('"yielded": 1600, "skipped": {}' in line for line in lines)
