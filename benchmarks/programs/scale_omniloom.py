"""One process that plays rank 0 of a large job, with made-up payloads; and how evenly workers share sleeping work."""

import json
import time
from dataclasses import dataclass
from itertools import islice
from typing import Any

from meter import arguments, report, throughput

from omniloom import WorkerConfig
from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.loader import Loader
from omniloom.data.pipeline.batch import Batch
from omniloom.data.pipeline.faults import Origin
from omniloom.data.pipeline.make import Make
from omniloom.data.pipeline.pack import Pack
from omniloom.data.plan.order import Shuffle
from omniloom.data.plan.plan import Leaf, Plan
from omniloom.data.sample import RawSample, SampleKey

PACKED_SAMPLES = 8


@dataclass
class MadeUp:
    name: str
    sleep_seconds: float

    def read(self, row: int) -> RawSample:
        time.sleep(self.sleep_seconds)
        return RawSample(f"{row}", "made-up.tar", {"txt": b"x" * 400})

    def cook(self, raw: RawSample, key: SampleKey) -> bytes:
        return raw.parts["txt"]

    def origin(self, row: int) -> Origin:
        return Origin(self.name, str(row), "made-up.tar")


def packs(samples: list[Any]) -> list[list[Any]]:
    return [samples[first : first + PACKED_SAMPLES] for first in range(0, len(samples), PACKED_SAMPLES)]


def made_up_dataset(
    *, leaves: int, window: int, batch_size: int, sleep_seconds: float, config: WorkerConfig, by_tokens: bool
) -> Dataset:
    plan = Plan(
        tuple(Leaf(f"leaf-{number:03d}", 1_000_000, 1.0 + number % 7) for number in range(leaves)),
        shuffle=Shuffle(runs=True, block_rows=1_024),
        weights_in="tokens" if by_tokens else "samples",
    )
    tokens = len if by_tokens else None
    make = Make(plan, tuple(MadeUp(leaf.name, sleep_seconds) for leaf in plan.leaves), tokens=tokens)
    stage = Pack(make, max(1, window * config.ranks // config.run_lanes), packs, b"".join) if window else make
    return Dataset(Batch(stage, batch_size, (("batch", 0, list),)), plan, config, batch_size)


def main() -> None:
    names = ("ranks", "workers", "leaves", "window", "batch_size", "sleep_us", "by_tokens", "window_seconds")
    options = arguments(*names)
    lanes = 12 * options.ranks if options.by_tokens else None
    config = WorkerConfig(rank=0, world_size=options.ranks, num_workers=options.workers, lanes=lanes)
    dataset = made_up_dataset(
        leaves=options.leaves,
        window=options.window,
        batch_size=options.batch_size,
        sleep_seconds=options.sleep_us / 1e6,
        config=config,
        by_tokens=bool(options.by_tokens),
    )
    with Loader(dataset) as loader:
        started = time.perf_counter()
        batches = iter(loader)
        next(batches)
        first_batch_seconds = time.perf_counter() - started
        warm_up = max(20, 4 * options.workers)
        figures = throughput(batches, size=len, warm_up_batches=warm_up, window_seconds=options.window_seconds)
        list(islice(batches, 2 * config.run_lanes // options.ranks))  # every lane has a place of its own
        state_bytes = len(json.dumps(loader.save_state_rank(), separators=(",", ":")))
    samples_a_second = figures["samples_per_second"]
    report(
        first_batch_seconds=first_batch_seconds,
        samples_per_second=samples_a_second,
        lanes=config.run_lanes,
        job_state_mb=state_bytes * options.ranks / 1e6,
        balance=samples_a_second * options.sleep_us / 1e6 / max(1, options.workers),
    )


if __name__ == "__main__":
    main()
