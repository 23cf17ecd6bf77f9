"""The order in which Energon delivers one epoch, written as row numbers."""

import zlib

import numpy
from megatron.energon import DefaultTaskEncoder, WorkerConfig, get_loader, get_train_dataset
from meter import arguments, report

options = arguments("data", "workers", "batch_size", "shuffle", "run_length", "out")
dataset = get_train_dataset(
    options.data,
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=options.workers),
    batch_size=options.batch_size,
    shuffle_buffer_size=options.shuffle,
    max_samples_per_sequence=options.run_length,
    repeat=False,
    task_encoder=DefaultTaskEncoder(),
)
rows, content = [], 0
for batch in get_loader(dataset):
    for key, text in zip(batch.__key__, batch.text, strict=True):
        rows.append(int(key))
        content ^= zlib.crc32(f"{key}:{text}".encode())
numpy.save(options.out, numpy.array(rows))
report(rows=len(rows), content=content)
