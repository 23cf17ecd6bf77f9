"""JPEG photographs out of a store 50 ms away, by a consumer with steps of 20 ms: beside the local disk, and Energon."""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_images import image_facts
from harness import Context, Program, alternate, row, run_once, show_row, values
from images import prepared_images
from range_store import LATENCY_SECONDS, RangeStore, range_store

from omniloom import TarWriter, prepare_dataset

STEP_SECONDS = 0.02
BATCH_SIZE = 4
WORKERS = 2
LEAVES, LANES = 100, 12
LONG_SHARD_BYTES = 560 << 20


@contextmanager
def serving(folder: Path, *, bytes_per_second: float = 0.0) -> Iterator[tuple[RangeStore, dict[str, str]]]:
    """A store over a folder, and the environment in which both sides find it; nothing is kept between runs."""
    with range_store(folder, bytes_per_second=bytes_per_second) as store, tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch, "msc.yaml")
        provider = {"base_path": "bucket", "endpoint_url": store.endpoint, "region_name": "us-east-1"}
        keys = {"access_key": "benchmark", "secret_key": "benchmark"}
        profile = {
            "storage_provider": {"type": "s3", "options": provider},
            "credentials_provider": {"type": "S3Credentials", "options": keys},
        }
        config.write_text(json.dumps({"profiles": {"bench": profile}}))
        yield store, {**store.environment, "OMNILOOM_CACHE": f"{scratch}/cache", "MSC_CONFIG": str(config)}


def run(context: Context) -> dict[str, Any]:
    """Measure throughput, time to the first batch, and what a sample costs in requests."""
    folder = prepared_images(context)
    facts = image_facts(folder)
    with serving(folder.parent) as (server, environment):
        rows = list(_rows(context, folder, environment, bars={"energon": 5.0, "floor": 0.8}, what="short shards"))
        long_shards = made_long_shards(
            folder, "long-shards", shards=1 if context.quick else 2, shard_bytes=LONG_SHARD_BYTES
        )
        rows += _rows(context, long_shards, environment, bars={"energon": 5.0, "floor": 0.8}, what="long shards")
        more = _many_leaves(context, folder, server, environment)
    return {
        "title": "JPEG photographs out of a store",
        "unit": "images/s",
        "better": "higher",
        "settings": f"{facts['samples']:,} JPEG photographs of {facts['mean_jpeg_bytes'] / 1_000:.0f} kB on a server "
        f"on loopback that waits {LATENCY_SECONDS * 1e3:.0f} ms before each answer; batch {BATCH_SIZE}, {WORKERS} "
        f"workers, a consumer that takes {STEP_SECONDS * 1e3:.0f} ms a batch, so that nobody can take more than "
        f"{BATCH_SIZE / STEP_SECONDS:.0f} images/s; default settings, no "
        f"cache on disk, nothing kept from run to run; "
        f"window {context.window_seconds:g} s; short shards of 14 MB, which Energon's client fetches whole, "
        f"and long ones of {LONG_SHARD_BYTES / 1e6:.0f} MB, of which it reads ranges; connections as quick as loopback "
        "is, which makes whole shards cheap: the next table is of a slower line",
        "rows": rows,
        "facts": more,
    }


def _rows(
    context: Context, folder: Path, environment: Mapping[str, str], *, bars: Mapping[str, float], what: str
) -> Iterator[dict[str, Any]]:
    settings = {
        "workers": WORKERS, "batch_size": BATCH_SIZE, "step_seconds": STEP_SECONDS,
        "warm_up_batches": 10 if context.quick else 50, "window_seconds": context.window_seconds,
    }  # fmt: skip
    local = context.program("omniloom", "stores_omniloom", data=folder, **settings)
    far = context.program("omniloom", "stores_omniloom", data=f"s3://bucket/{folder.name}", **settings)
    energon = context.program("energon", "stores_energon", data=f"msc://bench/{folder.name}", **settings)
    programs = [placed(local, "floor", environment), placed(far, "omniloom", environment),
                placed(energon, "energon", environment)]  # fmt: skip
    readings = alternate(programs, rounds=context.pairs)
    found = row(f"taken in steps of 20 ms, {what}", values(readings, "samples_per_second"), bars=bars)
    show_row(found, "images/s")
    yield found
    first = {side: [1 / one for one in ones] for side, ones in values(readings, "first_batch_seconds").items()}
    found = row(f"first batches a second (1 / time to the first batch), {what}", first)
    show_row(found, "1/s")
    yield found


def placed(program: Program | None, side: str, environment: Mapping[str, str]) -> Program | None:
    """A program as one of another side, with more environment."""
    return None if program is None else replace(program, side=side, environment=environment)


def _many_leaves(context: Context, folder: Path, server: RangeStore, environment: Mapping[str, str]) -> dict[str, Any]:
    """What a sample costs where 100 data sets are blended on 12 lanes, with and without a cache on disk."""
    mix = _made_leaves(folder)
    settings = {
        "data": mix, "workers": WORKERS, "batch_size": BATCH_SIZE, "step_seconds": 0.0, "warm_up_batches": 10,
        "window_seconds": context.window_seconds,
    }  # fmt: skip
    program = context.program("omniloom", "stores_omniloom", **settings)
    if program is None:
        return {}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache:
        kept = {"OMNILOOM_STORAGE_CACHE_BYTES": str(8 << 30), "OMNILOOM_STORAGE_CACHE_FOLDER": cache}
        for name, more in (("without_cache", {}), ("with_a_cache_on_disk", kept)):
            server.counts()
            reading = run_once(replace(program, environment={**environment, **more}))
            counts, store = server.counts(), reading["store"]
            rows = store["wanted_bytes"] / row_bytes(folder)  # those that were fetched; some are not drawn yet
            found[f"requests_a_sample_of_{LEAVES}_leaves_on_{LANES}_lanes_{name}"] = store["long_ranges"] / rows
            found[f"bytes_for_each_wanted_byte_{name}"] = store["long_range_bytes"] / store["wanted_bytes"]
            found[f"requests_in_all_{name}"] = counts["requests"]
            found[f"spool_peak_bytes_of_a_worker_{name}"] = store.get("spool_peak_bytes", 0)
    return found


def row_bytes(folder: Path, *, samples: int | None = None) -> float:
    """Mean size of a sample with its headers."""
    count = image_facts(folder)["samples"] if samples is None else samples
    return sum(tar.stat().st_size for tar in folder.glob("*.tar")) / float(count)


def made_long_shards(folder: Path, name: str, *, shards: int, shard_bytes: int) -> Path:
    """The photographs again and again, in longer shards than their own; made at the first call."""
    made = folder.parent / f"{folder.name}-{name}"
    if (made / ".nv-meta" / "dataset.yaml").exists():
        return made
    made.mkdir(exist_ok=True)
    members = [item for tar in sorted(folder.glob("*.tar")) for item in _members(tar)]
    size_bytes = sum(len(data) for _, data in members)
    for shard in range(shards):
        with TarWriter(made / f"shard-{shard:06d}.tar") as tar:
            for lap in range(-(-shard_bytes // size_bytes)):
                for name, data in members:
                    tar.add(f"{shard}-{lap:03d}-{name}", data)
    prepare_dataset(made, split_ratio={"train": 1.0}, num_workers=1)
    (made / ".nv-meta" / "dataset.yaml").write_bytes((folder / ".nv-meta" / "dataset.yaml").read_bytes())
    return made


def _made_leaves(folder: Path) -> Path:
    """A mix of 100 data sets on the server, made of the photographs at the first call."""
    leaves = folder.parent / f"{folder.name}-in-{LEAVES}"
    rows = image_facts(folder)["samples"]
    described = (folder / ".nv-meta" / "dataset.yaml").read_bytes()
    members = [item for tar in sorted(folder.glob("*.tar")) for item in _members(tar)]
    for number in range(LEAVES):
        leaf = leaves / f"part-{number:03d}"
        if (leaf / ".nv-meta" / "dataset.yaml").exists():
            continue
        leaf.mkdir(parents=True, exist_ok=True)
        with TarWriter(leaf / "shard-000000.tar") as tar:
            for name, data in members[2 * (number * rows // LEAVES) : 2 * ((number + 1) * rows // LEAVES)]:
                tar.add(name, data)
        prepare_dataset(leaf, split_ratio={"train": 1.0}, num_workers=1)
        (leaf / ".nv-meta" / "dataset.yaml").write_bytes(described)
    blend = [{"weight": 1, "path": f"s3://bucket/{leaves.name}/part-{number:03d}"} for number in range(LEAVES)]
    mix = folder.parent / f"{leaves.name}.yaml"
    header = {"__module__": "megatron.energon", "__class__": "MetadatasetV2"}
    mix.write_text(json.dumps({**header, "splits": {"train": {"blend": blend}}}))
    return mix


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is not None:
                yield member.name, file.read()
