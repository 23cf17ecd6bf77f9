"""JPEG photographs out of a store 50 ms away, by a consumer with steps of 20 ms: beside the local disk, and Energon."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_images import image_facts
from harness import HERE, Context, Program, alternate, row, run_once, show_row, values
from images import prepared_images

from omniloom import TarWriter, prepare_dataset

LATENCY_SECONDS = 0.05
STEP_SECONDS = 0.02
BATCH_SIZE = 4
WORKERS = 2
LEAVES, LANES = 100, 12


class Server:
    """The store: a process of its own."""

    def __init__(self, folder: Path, latency_seconds: float) -> None:
        command = [sys.executable, str(HERE / "programs" / "range_server.py"), str(folder), str(latency_seconds)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._line())

    def counts(self) -> dict[str, int]:
        """Requests and bytes since the last call."""
        if self._process.stdin is None:
            raise RuntimeError("the server has no input")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, int] = json.loads(self._line())
        return found

    def _line(self) -> str:
        if self._process.stdout is None:
            raise RuntimeError("the server has no output")
        return self._process.stdout.readline()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@contextmanager
def serving(folder: Path) -> Iterator[tuple[Server, dict[str, str]]]:
    """A store over a folder, and the environment in which both sides find it; nothing is kept between runs."""
    server = Server(folder, LATENCY_SECONDS)
    with tempfile.TemporaryDirectory() as scratch:
        endpoint = f"http://127.0.0.1:{server.port}"
        config = Path(scratch, "msc.yaml")
        provider = {"base_path": "bucket", "endpoint_url": endpoint, "region_name": "us-east-1"}
        keys = {"access_key": "benchmark", "secret_key": "benchmark"}
        profile = {
            "storage_provider": {"type": "s3", "options": provider},
            "credentials_provider": {"type": "S3Credentials", "options": keys},
        }
        config.write_text(json.dumps({"profiles": {"bench": profile}}))
        try:
            yield (
                server,
                {
                    "AWS_ENDPOINT_URL": endpoint,
                    "AWS_ACCESS_KEY_ID": "benchmark",
                    "AWS_SECRET_ACCESS_KEY": "benchmark",
                    "AWS_REGION": "us-east-1",
                    "OMNILOOM_STORAGE_ALLOW_HTTP": "1",
                    "OMNILOOM_CACHE": f"{scratch}/cache",
                    "MSC_CONFIG": str(config),
                },
            )
        finally:
            server.stop()


def run(context: Context) -> dict[str, Any]:
    """Measure throughput, time to the first batch, and what a sample costs in requests."""
    folder = prepared_images(context)
    facts = image_facts(folder)
    with serving(folder.parent) as (server, environment):
        rows = list(_rows(context, folder, environment))
        more = _many_leaves(context, folder, server, environment)
    return {
        "title": "JPEG photographs out of a store",
        "unit": "images/s",
        "better": "higher",
        "settings": f"{facts['samples']:,} JPEG photographs of {facts['mean_jpeg_bytes'] / 1_000:.0f} kB on a server "
        f"on loopback that waits {LATENCY_SECONDS * 1e3:.0f} ms before each answer; batch {BATCH_SIZE}, {WORKERS} "
        f"workers, a consumer that takes {STEP_SECONDS * 1e3:.0f} ms a batch; default settings, no cache on disk; "
        f"window {context.window_seconds:g} s",
        "rows": rows,
        "facts": more,
    }


def _rows(context: Context, folder: Path, environment: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    settings = {
        "workers": WORKERS, "batch_size": BATCH_SIZE, "step_seconds": STEP_SECONDS,
        "warm_up_batches": 10 if context.quick else 50, "window_seconds": context.window_seconds,
    }  # fmt: skip
    local = context.program("omniloom", "stores_omniloom", data=folder, **settings)
    far = context.program("omniloom", "stores_omniloom", data=f"s3://bucket/{folder.name}", **settings)
    energon = context.program("energon", "stores_energon", data=f"msc://bench/{folder.name}", **settings)
    programs = [_placed(local, "floor", environment), _placed(far, "omniloom", environment),
                _placed(energon, "energon", environment)]  # fmt: skip
    readings = alternate(programs, rounds=context.pairs)
    found = row("taken in steps of 20 ms", values(readings, "samples_per_second"), bars={"energon": 5.0, "floor": 0.8})
    show_row(found, "images/s")
    yield found
    first = {side: [1 / one for one in ones] for side, ones in values(readings, "first_batch_seconds").items()}
    found = row("first batches a second (1 / time to the first batch)", first)
    show_row(found, "1/s")
    yield found


def _placed(program: Program | None, side: str, environment: Mapping[str, str]) -> Program | None:
    return None if program is None else replace(program, side=side, environment=environment)


def _many_leaves(context: Context, folder: Path, server: Server, environment: Mapping[str, str]) -> dict[str, Any]:
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
            taken = store.get("rows_ahead", 0) + store.get("rows_singly", 0)
            found[f"requests_a_sample_of_{LEAVES}_leaves_on_{LANES}_lanes_{name}"] = counts["requests"] / taken
            found[f"bytes_a_sample_{name}"] = counts["bytes"] / taken
            found[f"spool_peak_bytes_of_a_worker_{name}"] = store.get("spool_peak_bytes", 0)
    return found


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
