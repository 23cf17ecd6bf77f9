"""JSONL through Energon, the one of these sources that it reads."""

from megatron.energon import (
    Cooker,
    DefaultTaskEncoder,
    TextSample,
    WorkerConfig,
    basic_sample_keys,
    get_loader,
    get_train_dataset,
    stateless,
)
from meter import arguments, report, throughput

options = arguments("data", "mode", "workers", "batch_size", "shuffle", "window_seconds")


@stateless
def cook(sample: dict) -> TextSample:
    return TextSample(**basic_sample_keys(sample), text=sample["json"]["text"])


class Encoder(DefaultTaskEncoder):
    cookers = (Cooker(cook),)


dataset = get_train_dataset(
    options.data,
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=options.workers),
    batch_size=options.batch_size,
    shuffle_buffer_size=options.shuffle,
    max_samples_per_sequence=100,
    task_encoder=Encoder(),
)
batches = iter(get_loader(dataset))
report(
    **throughput(batches, size=lambda batch: len(batch.text), warm_up_batches=50, window_seconds=options.window_seconds)
)
