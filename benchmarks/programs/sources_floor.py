"""The floor under any loader of a source: its own library, or Python's, and nothing else; one core.

JSONL: every line is parsed, in order. Parquet: row groups are decoded in order, and their rows made Python values.
Arrow: rows by number, shuffled. Plain files: each is opened and read, shuffled.
"""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meter import arguments, report, throughput

options = arguments("data", "mode", "workers", "batch_size", "shuffle", "window_seconds")
size = options.batch_size


def jsonl() -> Iterator[Any]:
    with Path(options.data).open("rb") as file:
        for line in file:
            yield json.loads(line)


def parquet() -> Iterator[Any]:
    import pyarrow.parquet as pq  # noqa: PLC0415

    file = pq.ParquetFile(options.data)
    for group in range(file.num_row_groups):
        yield from file.read_row_group(group).to_pylist()


def arrow() -> Iterator[Any]:
    from datasets import load_from_disk  # noqa: PLC0415

    rows = load_from_disk(options.data)
    order = list(range(len(rows)))
    random.Random(0).shuffle(order)
    for row in order:
        yield rows[row]


def files() -> Iterator[Any]:
    paths = [str(path) for path in Path(options.data).iterdir()]
    random.Random(0).shuffle(paths)
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        yield os.read(descriptor, 1 << 20)
        os.close(descriptor)


def batches() -> Iterator[list[Any]]:
    read = {"JSONL": jsonl, "Parquet": parquet, "Arrow": arrow, "plain files": files}[options.mode]
    batch = []
    while True:
        for sample in read():
            batch.append(sample)
            if len(batch) == size:
                yield batch
                batch = []


report(**throughput(batches(), size=len, warm_up_batches=10, window_seconds=options.window_seconds))
