"""Text records of any kind of source through omniloom, with the same call for all."""

from meter import arguments, report, throughput

from omniloom import WorkerConfig, get_loader, get_train_dataset

options = arguments("data", "mode", "workers", "batch_size", "shuffle", "window_seconds")
dataset = get_train_dataset(
    options.data,
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=options.workers),
    batch_size=options.batch_size,
    shuffle_buffer_size=options.shuffle,
)
with get_loader(dataset) as loader:
    figures = throughput(
        iter(loader),
        size=lambda batch: len(batch["__key__"]),
        warm_up_batches=50,
        window_seconds=options.window_seconds,
    )
report(**figures)
