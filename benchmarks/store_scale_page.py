"""Renders docs/scale.md from the raw figures: `python benchmarks/store_scale_page.py [--check]`.

What is measured is told as it was measured; what follows for a large job is computed from it here, each line by a
formula that the page names.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "store_scale.json", HERE.parent / "docs" / "scale.md"

# The job of the second half of the page.
RANKS, RANKS_A_NODE, WORKERS = 1_024, 8, 4
SET_BYTES, SHARD_BYTES, SAMPLE_BYTES = 1e15, 10e9, 100e3
SAMPLES_A_SECOND_OF_A_RANK = 50
KEYS_A_PAGE = 1_000
GETS_A_PREFIX = 5_500
CONNECTIONS = 16
RANGE_BYTES = 8 << 20


def render(results: Mapping[str, Any]) -> str:
    """The whole page as Markdown."""
    parts = [
        "# Data in stores at scale",
        _preface(results),
        "## Measured",
        _opening(results),
        _preparing(results),
        _indexes(results),
        _cache(results),
        f"## What it means: {RANKS:,} ranks, 1 PB",
        _meaning(results),
    ]
    return "\n\n".join(parts) + "\n"


def _preface(results: Mapping[str, Any]) -> str:
    found = results["machine"]
    return (
        f"Requests and bytes are counted by a server on loopback that waits {results['latency_seconds'] * 1e3:.0f} ms "
        f"before every answer; sizes are those of files. Measured on {found['date']} on {found['cpu']}, "
        f"{found['cores']} cores. Both halves are written by `python benchmarks/store_scale.py`: no number on this "
        "page is written by hand. Throughput beside a local disk and beside Energon is on [the page of benchmarks]"
        "(benchmarks.md); how stores are read, retried and cached is on [its own](stores.md)."
    )


def _opening(results: Mapping[str, Any]) -> str:
    found = results["opening"]
    rows = []
    for name, told in (("first", "the first process of a machine"), ("again", "another one"), ("epoch", "an epoch")):
        one = found[name]
        rows.append((told, f"{one['requests']:,}", f"{one['bytes']:,}", f"{one['seconds']:.2f}"))
    epoch = found["epoch"]
    payload = epoch["samples"] * found["payload_bytes"]
    return "\n\n".join(
        (
            f"### Opening and reading: {found['shards']} shards, {found['rows']:,} samples of "
            f"{found['payload_bytes'] / 1e3:.0f} kB",
            _table(("who", "requests", "bytes", "seconds"), rows),
            "Opening lists the data set once and fetches the small files of `.nv-meta`; another process asks whether "
            f"they are still the same. An epoch takes {epoch['requests'] / epoch['samples']:.3f} requests a sample and "
            f"{epoch['bytes'] / payload:.2f} bytes for each byte of payload; each shard costs its index on top, "
            "once a machine.",
        )
    )


def _preparing(results: Mapping[str, Any]) -> str:
    rows = [
        (
            one["members"], f"{one['shards']}", f"{one['size_bytes'] / 1e6:,.0f}",
            ", ".join(f"{count} by {way}" for way, count in one["ways"].items()),
            f"{one['requests'] / one['rows']:.3f}", f"{one['read_bytes'] / one['size_bytes']:.2%}",
            f"{one['seconds']:.1f}",
        )
        for one in results["preparing"]
    ]  # fmt: skip
    names = ("members", "shards", "MB", "how", "requests a sample", "share of the bytes", "seconds")
    return "\n\n".join(
        (
            "### Preparing without downloading",
            _table(names, rows),
            "Headers are hopped to where a hop is quicker than streaming over the payload, which is decided by "
            "measured latency and bandwidth; see [remote-prepare.md](remote-prepare.md).",
        )
    )


def _indexes(results: Mapping[str, Any]) -> str:
    rows = []
    for one in results["indexes"]:
        small = sum(one["sizes"].values())
        rows.append(
            (
                f"{one['shards']:,}", f"{one['rows']:,}", f"{small / 1e6:.1f}", f"{one['open_seconds']:.2f}",
                f"{one['memory_bytes'] / 1e6:.0f}", f"{one['plan_seconds'] * 1e3:.1f}",
                f"{one['draw_seconds'] * 1e6:.2f}",
                f"{one['pickled_bytes']:,}",
            )
        )  # fmt: skip
    a_sample = ", ".join(f"{name} {size:.1f}" for name, size in results["bytes_a_sample"].items())
    names = (
        "shards", "samples", "sidecar, MB", "opened in s", "memory, MB", "first draw, ms", "a draw, us",
        "sent to a worker, bytes",
    )  # fmt: skip
    return "\n\n".join(
        (
            "### Indexes of very many shards",
            _table(names, rows),
            "The sidecar counts `.info.json`, `split.yaml` and `omniloom.json`, which every machine reads. The order "
            "of the samples is computed, not kept: memory grows with shards, not with samples. Bytes a sample of what "
            f"is read when it is needed, for samples of two parts: {a_sample}. Training reads `.tar.idx` alone, of the "
            "shards that it comes to; `index.sqlite` serves look-ups by key, and `--no-sqlite` leaves it out.",
        )
    )


def _cache(results: Mapping[str, Any]) -> str:
    rows = [(f"{one['share']:.0%}", *(f"{one[count]:.1%}" for count in ("1", "4", "16"))) for one in results["cache"]]
    return "\n\n".join(
        (
            "### Cache of a machine: a model",
            _table(("the cache holds of the data", "hits of 1 machine", "of 4", "of 16"), rows),
            "Simulated: each epoch deals all blocks anew, least recently used blocks go first, the first epoch is not "
            "counted. A machine comes to a block again with a chance of one in the number of machines, so a cache of a "
            "machine pays for small sets that are gone through often, and hardly for a large one dealt to many.",
        )
    )


def _meaning(results: Mapping[str, Any]) -> str:
    nodes = RANKS // RANKS_A_NODE
    shards, samples = SET_BYTES / SHARD_BYTES, SET_BYTES / SAMPLE_BYTES
    a_second = RANKS * SAMPLES_A_SECOND_OF_A_RANK
    bytes_a_second = a_second * SAMPLE_BYTES
    pages = 2 * shards / KEYS_A_PAGE
    latency = results["latency_seconds"]
    largest = results["indexes"][-1]
    sidecar = sum(largest["sizes"].values()) * shards / largest["shards"]
    idx = results["bytes_a_sample"][".tar.idx"]
    gets = bytes_a_second / RANGE_BYTES
    single = float(a_second)
    streamed, *_, hopped = [one["read_bytes"] / one["size_bytes"] for one in results["preparing"]]
    rows = [
        ("samples a second of the job", f"{a_second:,.0f}", "ranks x samples a second of one"),
        ("bytes a second of the job", f"{bytes_a_second / 1e9:,.1f} GB", "x bytes of a sample"),
        ("bytes a second of a machine", f"{bytes_a_second / nodes / 1e6:,.0f} MB", "/ machines"),
        ("GETs a second, long ranges", f"{gets:,.0f}", f"bytes a second / {RANGE_BYTES >> 20} MiB"),
        ("GETs a second, row by row", f"{single:,.0f}", "where nothing is read ahead"),
        ("prefixes that row by row needs", f"{-(-single // GETS_A_PREFIX):,.0f}",
         f"S3: {GETS_A_PREFIX:,} GETs a second each"),
        ("connections of the job, at most", f"{RANKS * WORKERS * CONNECTIONS:,}",
         f"ranks x {WORKERS} workers x {CONNECTIONS}"),
        ("open files of a worker", f"{CONNECTIONS} sockets", "a remote shard is no open file"),
        ("pages of a listing, once a machine", f"{pages:,.0f}",
         f"2 x shards / {KEYS_A_PAGE:,}; {pages * latency:,.0f} s at {latency * 1e3:.0f} ms"),
        ("LISTs of all machines at the start", f"{pages * nodes:,.0f}", "x machines"),
        ("sidecar that each machine fetches", f"{sidecar / 1e6:,.1f} MB", "as measured, by shards"),
        ("all `.tar.idx`", f"{idx * samples / 1e9:,.1f} GB", "8 bytes a sample; a machine fetches those it comes to"),
        ("opening the index, each process", f"{largest['open_seconds']:.1f} s, {largest['memory_bytes'] / 1e6:,.0f} MB",
         f"measured with {largest['shards']:,} shards"),
        ("preparing by hops, 12 MB members", f"{SET_BYTES * hopped / 1e12:,.1f} TB",
         "share of the bytes as measured"),
        ("preparing by streams, 20 kB members", f"{SET_BYTES * streamed / 1e12:,.0f} TB",
         "all of it: deal it to machines by `--shard-range`"),
    ]  # fmt: skip
    return "\n\n".join(
        (
            f"{nodes} machines of {RANKS_A_NODE} ranks with {WORKERS} workers each; {shards:,.0f} shards of "
            f"{SHARD_BYTES / 1e9:.0f} GB with {samples / 1e9:,.0f} billion samples of {SAMPLE_BYTES / 1e3:.0f} kB; a "
            f"rank takes {SAMPLES_A_SECOND_OF_A_RANK} samples a second.",
            _table(("what", "how much", "how it follows"), rows),
        )
    )


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def main() -> int:
    """Write the page, or compare it."""
    text = render(json.loads(RESULTS.read_text()))
    if "--check" not in sys.argv:
        PAGE.write_text(text)
        return 0
    if PAGE.read_text() == text:
        return 0
    print(f"{PAGE} is not what {RESULTS} says: run python benchmarks/store_scale_page.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
