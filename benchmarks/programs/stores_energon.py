"""JPEG photographs through Energon, from a disk or by ``msc://``, by a paced consumer."""

import time

from meter import arguments, check_image_batch, report
from paced import paced

options = arguments("data", "workers", "batch_size", "step_seconds", "warm_up_batches", "window_seconds")
started = time.perf_counter()

from megatron.energon import (  # noqa: E402 - its imports are a part of the time to the first batch
    DefaultTaskEncoder,
    SampleDecoder,
    WorkerConfig,
    get_loader,
    get_train_dataset,
)


class Decoded(DefaultTaskEncoder):
    decoder = SampleDecoder(image_decode="torchrgb8")


dataset = get_train_dataset(
    options.data,
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=options.workers),
    batch_size=options.batch_size,
    shuffle_buffer_size=None,
    max_samples_per_sequence=100,
    task_encoder=Decoded(),
)
report(
    **paced(
        iter(get_loader(dataset)),
        size=lambda batch: check_image_batch(batch.image, batch_size=options.batch_size, height=480, width=640),
        started=started,
        step_seconds=options.step_seconds,
        warm_up_batches=options.warm_up_batches,
        window_seconds=options.window_seconds,
    )
)
