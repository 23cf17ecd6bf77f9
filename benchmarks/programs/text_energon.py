"""Text records through Energon: get_train_dataset and get_loader with the settings of its quickstart."""

from megatron.energon import DefaultTaskEncoder, WorkerConfig, get_loader, get_train_dataset
from meter import arguments, report, throughput

options = arguments("data", "workers", "batch_size", "shuffle", "run_length", "warm_up_batches", "window_seconds")
dataset = get_train_dataset(
    options.data,
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=options.workers),
    batch_size=options.batch_size,
    shuffle_buffer_size=options.shuffle,
    max_samples_per_sequence=options.run_length,
    task_encoder=DefaultTaskEncoder(),
)
batches = iter(get_loader(dataset))
report(
    **throughput(
        batches,
        size=lambda batch: len(batch.text),
        warm_up_batches=options.warm_up_batches,
        window_seconds=options.window_seconds,
    )
)
