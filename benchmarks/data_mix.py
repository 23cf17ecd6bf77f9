"""Makes a metadataset of many small data sets, and two large ones to join: the same bytes on every machine."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from harness import HERE, Context, say

V2 = {"__module__": "megatron.energon", "__class__": "MetadatasetV2"}
SAMPLES_A_SHARD = 10


def many_sets(context: Context, *, sets: int, shards: int) -> Path:
    """A metadataset that blends ``sets`` prepared data sets of ``shards`` shards each."""
    folder = context.data_dir / f"mix-{sets}x{shards}"
    path = folder / "mix.yaml"
    if path.exists():
        return path
    shutil.rmtree(folder, ignore_errors=True)
    say(f"making {sets} data sets of {shards} shards")
    wanted = [
        {"path": str(folder / f"set{number:03d}"), "keys": [
            [f"{number:03d}-{shard:03d}-{n}" for n in range(SAMPLES_A_SHARD)] for shard in range(shards)
        ]}
        for number in range(sets)
    ]  # fmt: skip
    _make(context, wanted)
    parts = [{"path": f"set{number:03d}", "weight": 1 + number % 5} for number in range(sets)]
    _write(path, {**V2, "splits": {"train": {"blend": parts}}})
    return path


def join_of_two(context: Context, *, rows: int) -> Path:
    """A metadataset that joins two prepared data sets with the same ``rows`` keys, each in an order of its own."""
    folder = context.data_dir / f"join-{rows}"
    path = folder / "join.yaml"
    if path.exists():
        return path
    shutil.rmtree(folder, ignore_errors=True)
    say(f"making two data sets of {rows:,} rows")
    per_shard = max(1, rows // 20)
    wanted = []
    for seed, name in enumerate(("texts", "labels")):
        keys = [f"images/{number:09d}" for number in range(rows)]
        random.Random(seed).shuffle(keys)
        shards = [keys[start : start + per_shard] for start in range(0, rows, per_shard)]
        wanted.append({"path": str(folder / name), "keys": shards})
    _make(context, wanted)
    joiner = {"__module__": "megatron.energon", "__class__": "TextSample"}
    columns = [{"path": "texts"}, {"path": "labels"}]
    _write(path, {**V2, "splits": {"train": {"join": columns, "joiner": joiner}}})
    return path


def _make(context: Context, wanted: Iterable[dict[str, object]]) -> None:
    """Write and prepare data sets in one process that has omniloom."""
    orders = "\n".join(json.dumps(order) for order in wanted)
    command = [str(context.python), str(HERE / "programs" / "make_sets.py")]
    subprocess.run(command, input=orders, text=True, check=True, stdout=subprocess.DEVNULL)


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content))
