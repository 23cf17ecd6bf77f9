"""Time from get_loader to the first batch of decoded images through Energon, with a large shuffle buffer."""

import time

import torch  # noqa: F401 - the clock starts in a process that has imported it
from megatron.energon import DefaultTaskEncoder, SampleDecoder, WorkerConfig, get_loader, get_train_dataset
from meter import arguments, check_image_batch, report

options = arguments("data", "workers", "batch_size", "shuffle", "run_length", "more_batches")


class Decoded(DefaultTaskEncoder):
    decoder = SampleDecoder(image_decode="torchrgb8")


opened = time.perf_counter()
dataset = get_train_dataset(
    options.data,
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=options.workers),
    batch_size=options.batch_size,
    shuffle_buffer_size=options.shuffle,
    max_samples_per_sequence=options.run_length,
    task_encoder=Decoded(),
)
started = time.perf_counter()
batches = iter(get_loader(dataset))
batch = next(batches)
first_batch_seconds = time.perf_counter() - started
check_image_batch(batch.image, batch_size=options.batch_size, height=480, width=640)
for _ in range(options.more_batches):
    batch = next(batches)
report(open_seconds=started - opened, first_batch_seconds=first_batch_seconds)
