"""Time from opening a metadataset to its first batch through Energon."""

import time

import torch  # noqa: F401 - the clock starts in a process that has imported it
from megatron.energon import WorkerConfig, get_loader, get_train_dataset
from meter import arguments, report

options = arguments("data", "workers", "batches")

started = time.perf_counter()
dataset = get_train_dataset(
    options.data,
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=options.workers),
    batch_size=32,
    shuffle_buffer_size=100,
    max_samples_per_sequence=100,
)
opened = time.perf_counter()
batches = iter(get_loader(dataset))
batch = next(batches)
first = time.perf_counter()
if len(batch.text) != 32:
    raise SystemExit(f"{len(batch.text)} texts in a batch, 32 expected")
for _ in range(options.batches):
    next(batches)
report(open_seconds=opened - started, first_batch_seconds=first - started)
