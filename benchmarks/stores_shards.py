"""The size of shards, over a line as there is one: JPEG photographs out of a store, beside Energon by ``msc://``.

The Multi-Storage Client fetches objects up to 512 MiB whole when they are opened. On loopback that costs next to
nothing; here a connection gets 1 Gbit/s.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from data_images import image_facts
from harness import Context, Program, Reading, row, run_watched, show_row, values
from images import prepared_images
from range_store import LATENCY_SECONDS, RangeStore
from stores import BATCH_SIZE, STEP_SECONDS, WORKERS, made_long_shards, placed, row_bytes, serving

BYTES_PER_SECOND = 125e6
SIZES = {"130 MB": (4, 130_000_000), "450 MB": (2, 450_000_000)}
"""Shards, and bytes of each."""

BARS = {"taken": 5.0, "first": None, "fetched": None, "memory": None}


def run(context: Context) -> dict[str, Any]:
    """Measure what is taken after the first batch, the time to it, what was fetched, and memory."""
    folder = prepared_images(context)
    window_seconds = 4.0 if context.quick else 15.0
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in BARS}
    with serving(folder.parent, bytes_per_second=BYTES_PER_SECOND) as (server, environment):
        for size, (shards, shard_bytes) in SIZES.items():
            data = made_long_shards(
                folder,
                f"shards-of-{size.replace(' ', '-')}",
                shards=1 if context.quick else shards,
                shard_bytes=shard_bytes // 10 if context.quick else shard_bytes,
            )
            readings = _readings(context, data, server, environment, window_seconds)
            for name, found in rows.items():
                found.append(row(f"shards of {size}", values(readings, name), bars={"energon": BARS[name]}))
                show_row(found[-1], name)
    return {
        "title": "The size of shards, over a line of 1 Gbit/s",
        "settings": f"the same photographs in shards of {' and '.join(SIZES)}; the server waits "
        f"{LATENCY_SECONDS * 1e3:.0f} ms before each answer and gives a connection {BYTES_PER_SECOND / 1e6:.0f} MB/s; "
        f"batch {BATCH_SIZE}, {WORKERS} workers, steps of {STEP_SECONDS * 1e3:.0f} ms, so at most "
        f"{BATCH_SIZE / STEP_SECONDS:.0f} images/s; default settings, nothing kept from run to run; "
        f"the {window_seconds:g} s after the first batch are counted, with nothing left out as a warm-up",
        "tables": [
            _table("Taken after the first batch", "images/s", "higher", rows["taken"]),
            _table("Time to the first batch", "s", "lower", rows["first"]),
            _table("Bytes fetched for each byte taken, with what is ahead at the end", "x", "lower", rows["fetched"]),
            _table("Peak memory of all processes", "MB", "lower", rows["memory"]),
        ],
        "facts": {"images_a_second_that_the_steps_allow": BATCH_SIZE / STEP_SECONDS,
                  "mean_jpeg_bytes": image_facts(folder)["mean_jpeg_bytes"]},
    }  # fmt: skip


def _table(title: str, unit: str, better: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"title": title, "unit": unit, "better": better, "rows": rows}


def _readings(
    context: Context, data: Path, server: RangeStore, environment: dict[str, str], window_seconds: float
) -> dict[str, list[Reading]]:
    settings = {
        "workers": WORKERS, "batch_size": BATCH_SIZE, "step_seconds": STEP_SECONDS, "warm_up_batches": 0,
        "window_seconds": window_seconds,
    }  # fmt: skip
    far = context.program("omniloom", "stores_omniloom", data=f"s3://bucket/{data.name}", **settings)
    energon = context.program("energon", "stores_energon", data=f"msc://bench/{data.name}", **settings)
    programs = [placed(far, "omniloom", environment), placed(energon, "energon", environment)]
    chosen = [program for program in programs if program is not None]
    readings: dict[str, list[Reading]] = {program.side: [] for program in chosen}
    taken_bytes = row_bytes(data, samples=_samples(data))
    for _ in range(context.pairs):
        for program in chosen:
            readings[program.side].append(_reading(program, server, taken_bytes))
    return readings


def _reading(program: Program, server: RangeStore, bytes_a_row: float) -> Reading:
    server.counts()
    reading = run_watched(program)
    fetched = server.counts()["bytes"]
    return {
        "taken": reading["samples_per_second"],
        "first": reading["first_batch_seconds"],
        "fetched": fetched / ((reading["samples"] + BATCH_SIZE) * bytes_a_row),
        "memory": reading["peak_pss_bytes"] / 1e6,
    }


def _samples(data: Path) -> int:
    return sum(json.loads((data / ".nv-meta" / ".info.json").read_text())["shard_counts"].values())
