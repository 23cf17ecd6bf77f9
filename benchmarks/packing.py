"""Packing and grouping: how full packs are beside an offline bound, and samples a second beside Energon."""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from itertools import islice
from typing import Any

from data_text import text_dataset
from harness import Context, alternate, row, say, show_row, values, warm_page_cache
from length_histograms import MIXES, lengths
from peers import ensure_prepared

NAME = "packing"
SEED = 12
CAPACITIES = (2_048, 4_096, 8_192)
BUFFERS = (100, 500, 2_000)
LANES = 12
BATCH_SIZE = 32


def run(context: Context) -> dict[str, Any]:
    """Fill first (deterministic), then throughput."""
    fill = [
        _fill(mix, capacity, buffer, quick=context.quick)
        for mix in MIXES
        for capacity in CAPACITIES
        for buffer in BUFFERS
    ]
    records = 20_000 if context.quick else 200_000
    folder = text_dataset(context.data_dir, records=records)
    ensure_prepared(context, folder, sample_type="TextSample", field_map={"text": "txt"})
    warm_page_cache(folder)
    speed = [
        _throughput(context, folder, mode, workers)
        for mode in ("packing", "built-in packer", "grouping")
        for workers in (0, 2)
    ]
    say("")
    return {
        "title": "Packing and grouping",
        "settings": f"fill: the built-in packer in a lane of {LANES}; lengths drawn with seed {SEED} from those in "
        "tests/golden/lengths, modelled by benchmarks/length_histograms.py; the floor is best-fit-decreasing "
        f"of all at once. Throughput: {records:,} records of about 400 bytes, packs of 4,096 out of a buffer of 1,000, "
        f"groups of lengths that differ by less than 64 in batches of {BATCH_SIZE}; both sides run the same user code",
        "tables": [
            {
                "title": "Fill of packs; the floor is the offline bound",
                "unit": "used / capacity",
                "better": "higher",
                "rows": fill,
            },
            {"title": "Throughput", "unit": "samples/s", "better": "higher", "rows": speed},
        ],
    }


def _fill(mix: str, capacity: int, buffer: int, *, quick: bool) -> dict[str, Any]:
    samples = [tokens for tokens, _ in lengths(mix, 2_000 if quick else 20_000, seed=SEED)]
    entry = row(
        f"{mix}, {capacity:,} tokens, buffer {buffer:,}",
        {"omniloom": [_packed(samples, capacity, buffer)], "floor": [best_fit_decreasing(samples, capacity)]},
    )
    show_row(entry, "used")
    return entry


def _packed(samples: list[int], capacity: int, buffer: int) -> float:
    """Fill of the packs of an endless, shuffled stream of the samples."""
    from omniloom import BestFitPacker  # noqa: PLC0415 - benchmarks of peers start without omniloom

    packer = BestFitPacker(capacity)
    draw = random.Random(SEED)
    window: list[int] = []
    packs: list[int] = []
    wanted = sum(samples) // capacity
    stream = iter(lambda: draw.choice(samples), None)
    size = buffer // LANES
    while len(packs) < wanted:
        window += islice(stream, max(0, size - len(window)))
        selection = packer.select(window, window)
        if not selection.packs:
            size = 2 * max(size, 1)
            continue
        packs += map(sum, selection.packs)
        window, size = list(selection.again), buffer // LANES
    return sum(packs) / (len(packs) * capacity)


def best_fit_decreasing(samples: list[int], capacity: int) -> float:
    """Fill of the offline packing of all samples: by falling length, each into the fullest pack that takes it."""
    room: list[int] = []
    packs = 0
    for length in sorted(samples, reverse=True):
        place = bisect_left(room, length)
        if place < len(room):
            insort(room, room.pop(place) - length)
        else:
            packs += 1
            insort(room, capacity - length)
    return sum(samples) / (packs * capacity)


def _throughput(context: Context, folder: Any, mode: str, workers: int) -> dict[str, Any]:
    settings = {
        "data": folder,
        "mode": mode,
        "workers": workers,
        "buffer": 1_000,
        "batch_size": BATCH_SIZE,
        "warm_up_batches": 200,
        "window_seconds": context.window_seconds,
    }
    sides = ("omniloom",) if mode == "built-in packer" else ("omniloom", "energon")
    readings = alternate([context.program(side, f"packing_{side}", **settings) for side in sides], rounds=context.pairs)
    entry = row(f"{mode}, {workers} workers", values(readings, "samples_per_second"))
    show_row(entry, "samples/s")
    return entry
