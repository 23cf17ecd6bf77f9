"""What a data set in a store costs: requests, bytes, indexes, start-up; measured small, and what it means when large.

`python benchmarks/store_scale.py [--quick]` measures, writes store_scale.json and renders docs/scale.md from it.
Requests and bytes are counted by the server; it stands on loopback and waits before every answer.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import machine
import store_scale_page
from range_store import LATENCY_SECONDS, RangeStore, range_store

import omniloom as ol
from omniloom.data.index.info import encode_info
from omniloom.data.index.omniloom_json import OmniloomInfo, ShardMark, encode_omniloom_info, read_omniloom_info
from omniloom.data.index.prepare import prepare_dataset
from omniloom.data.index.splits import encode_splits
from omniloom.data.shards.remote_archive import RemoteArchive

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "store_scale.json"
HEADER_BYTES = 512


@contextmanager
def serving(folder: Path) -> Iterator[RangeStore]:
    """A store over a folder; this process finds it at ``s3://bucket``."""
    with range_store(folder) as store:
        os.environ.update(store.environment, OMNILOOM_CACHE=str(folder / ".cache"), OMNILOOM_SIDECAR_SECONDS="0")
        yield store


def make_shard(path: Path, rows: int, payload_bytes: int) -> None:
    """An archive of rows with a medium and its text; long payloads are holes, which take no disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for row in range(rows):
            for part, size in (("bin", payload_bytes), ("txt", 200)):
                info = tarfile.TarInfo(f"{row:06d}.{part}")
                info.size = size
                file.write(info.tobuf(tarfile.USTAR_FORMAT))
                file.seek(size, io.SEEK_CUR)
                file.seek(-size % HEADER_BYTES, io.SEEK_CUR)
        end = file.tell() + 20 * HEADER_BYTES
        file.truncate(end)


def preparing(folder: Path, server: RangeStore, *, quick: bool) -> list[dict[str, Any]]:
    """Requests, bytes and seconds of preparing shards whose members are short or long."""
    found = []
    cases = [("20 kB", 20_000, 400), ("1 MB", 1_000_000, 60), ("12 MB", 12_000_000, 40)]
    for name, payload_bytes, rows in cases:
        root = folder / f"prepare-{payload_bytes}"
        shards = 2 if quick else 8
        for shard in range(shards):
            make_shard(root / f"s{shard}.tar", rows, payload_bytes)
        size_bytes = sum(path.stat().st_size for path in root.glob("*.tar"))
        server.counts()
        begin = time.perf_counter()
        prepared = prepare_dataset(f"s3://bucket/{root.name}", meta_path=str(folder / f"meta-{payload_bytes}"))
        seconds = time.perf_counter() - begin
        counts = server.counts()
        found.append(
            {
                "members": name, "shards": shards, "rows": prepared.samples, "size_bytes": size_bytes,
                "requests": counts["requests"], "read_bytes": counts["bytes"], "seconds": seconds,
                "ways": dict(prepared.ways),
            }
        )  # fmt: skip
    return found


def opening(folder: Path, server: RangeStore, *, quick: bool) -> dict[str, Any]:
    """Requests and bytes of opening a prepared set on a machine, of a second process, and of an epoch."""
    root = folder / "open"
    shards, rows, payload_bytes = 8, 40 if quick else 250, 20_000
    for shard in range(shards):
        make_shard(root / f"s{shard}.tar", rows, payload_bytes)
    ol.prepare_dataset(root, num_workers=1)
    known = read_omniloom_info(root)
    if known is None:
        raise RuntimeError("the set was just prepared")
    # As if it had been prepared in the store, which this server lets nobody write to.
    marks = {
        name: mark._replace(etag=RemoteArchive(f"s3://bucket/open/{name}").mark().state)
        for name, mark in known.shards.items()
    }
    (root / ".nv-meta" / "omniloom.json").write_text(encode_omniloom_info(replace(known, shards=marks)))
    (root / ".nv-meta" / "dataset.yaml").write_text(
        '{"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}'
    )
    url = "s3://bucket/open"
    found: dict[str, Any] = {"shards": shards, "rows": shards * rows, "payload_bytes": payload_bytes}
    config = ol.WorkerConfig(rank=0, world_size=1, num_workers=0)
    for name in ("first", "again"):
        server.counts()
        begin = time.perf_counter()
        dataset = ol.get_train_dataset(url, worker_config=config, batch_size=None, repeat=False)
        found[name] = {"seconds": time.perf_counter() - begin, **server.counts()}
    begin = time.perf_counter()
    taken = sum(1 for _ in ol.get_loader(dataset))
    found["epoch"] = {"seconds": time.perf_counter() - begin, "samples": taken, **server.counts()}
    return found


def indexes(folder: Path, *, quick: bool) -> list[dict[str, Any]]:
    """Sizes of the index of very many shards, and what opening it takes."""
    found = []
    for shards in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
        root = folder / f"index-{shards}"
        meta = root / ".nv-meta"
        meta.mkdir(parents=True)
        names = [f"part-{number // 1000:03d}/shard-{number:06d}.tar" for number in range(shards)]
        marks = {name: ShardMark(10_000_000_000, f"{number:032x}", False) for number, name in enumerate(names)}
        known = OmniloomInfo(index_uuid="u", omniloom_version="0", samples=shards * 100_000, shards=marks)
        (meta / ".info.json").write_text(encode_info(dict.fromkeys(names, 100_000)))
        (meta / "split.yaml").write_text(encode_splits({"train": names}, name="split.yaml"))
        (meta / "omniloom.json").write_text(encode_omniloom_info(known))
        (meta / "index.uuid").write_text("u")
        program = [sys.executable, str(HERE / "programs" / "store_scale_open.py"), str(root)]
        opened = json.loads(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
        sizes = {path.name: path.stat().st_size for path in meta.iterdir()}
        found.append({**opened, "sizes": sizes})
    return found


def database(folder: Path, *, quick: bool) -> dict[str, float]:
    """Bytes of ``index.sqlite``, ``.tar.idx`` and the parts table for a sample of two parts."""
    root = folder / "database"
    rows = 2_000 if quick else 20_000
    for shard in range(5):
        make_shard(root / f"s{shard}.tar", rows, 0)
    prepare_dataset(root, num_workers=1)
    samples = 5 * rows
    kinds = {
        "index.sqlite": [root / ".nv-meta" / "index.sqlite"],
        ".tar.idx": list(root.glob("*.idx")),
        "parts table": list((root / ".nv-meta" / "parts").iterdir()),
    }
    return {name: sum(path.stat().st_size for path in paths) / samples for name, paths in kinds.items()}


def cache_model(*, quick: bool) -> list[dict[str, float]]:
    """Share of reads that a cache of a machine answers, by the share of the data that it holds; simulated."""
    blocks, epochs, machines = 2_000 if quick else 20_000, 4, (1, 4, 16)
    found = []
    for share in (0.05, 0.25, 0.5, 0.9, 1.0):
        entry: dict[str, float] = {"share": share}
        for count in machines:
            entry[f"{count}"] = _hits(blocks, epochs, int(share * blocks), count)
        found.append(entry)
    return found


def _hits(blocks: int, epochs: int, capacity: int, machines: int) -> float:
    """Hits of the first machine after the first epoch: each epoch deals all blocks to the machines anew."""
    generator = random.Random(blocks * 31 + capacity * 7 + machines)
    held: OrderedDict[int, None] = OrderedDict()
    hits = asked = 0
    for epoch in range(epochs):
        order = list(range(blocks))
        generator.shuffle(order)
        for block in order[: blocks // machines]:
            if block in held:
                held.move_to_end(block)
                hits += epoch > 0
            else:
                held[block] = None
                if len(held) > capacity:
                    held.popitem(last=False)
            asked += epoch > 0
    return hits / asked


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes; the page is not written")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="store-scale-", dir=HERE / "data") as scratch:
        folder = Path(scratch)
        with serving(folder) as server:
            results: dict[str, Any] = {
                "machine": machine.describe(),
                "latency_seconds": LATENCY_SECONDS,
                "preparing": preparing(folder, server, quick=options.quick),
                "opening": opening(folder, server, quick=options.quick),
            }
        results["indexes"] = indexes(folder, quick=options.quick)
        results["bytes_a_sample"] = database(folder, quick=options.quick)
        results["cache"] = cache_model(quick=options.quick)
    print(store_scale_page.render(results))
    if not options.quick:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        store_scale_page.PAGE.write_text(store_scale_page.render(results))


if __name__ == "__main__":
    main()
