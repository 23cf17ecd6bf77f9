"""LLaVA batches of photographs, first as fast as they come, then by a training that takes a share of that rate.

Batches are made as far ahead as the trainer has them made, and taken as it takes them, by its thread
(`omniloom.train.taken_ahead`); what counts as waiting is what the trainer tells as ``data_wait_seconds``.
"""

import itertools
import time

from meter import arguments, report, throughput
from paced import paced

from omniloom import LlavaSettings, LlavaTaskEncoder, WorkerConfig, get_loader, get_train_dataset
from omniloom.train.data import DataConfig
from omniloom.train.taken_ahead import taken_ahead
from omniloom.vlm.byte_tokenizer import ByteTokenizer
from omniloom.vlm.image_processor import ImageProcessor, tile_tokens
from omniloom.vlm.layouts import PadToSquare

options = arguments("data", "workers", "batch_size", "micro_batches", "percent", "warm_up_batches", "window_seconds")
encoder = LlavaTaskEncoder(
    tokenizer=ByteTokenizer(),
    template="plain",
    images=ImageProcessor(
        tile_pixels=336,
        tile_tokens=tile_tokens(tile_pixels=336, patch_pixels=14),
        tower="clip",
        layout=PadToSquare(),
    ),
    settings=LlavaSettings(max_tokens=1024),
)


def loader():
    dataset = get_train_dataset(
        options.data,
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=options.workers),
        batch_size=options.batch_size,
        shuffle_buffer_size=1_000,
        max_samples_per_sequence=100,
        task_encoder=encoder,
    )
    ahead = DataConfig(train=options.data, num_workers=options.workers).batches_ahead(
        micro_batches=options.micro_batches
    )
    return get_loader(dataset, prefetch_factor=ahead)


def size(batch) -> int:
    return len(batch.images)


def steps(batches):
    """The micro-batches of a step, which a training takes together: it has to know how many tokens they teach."""
    while True:
        yield list(itertools.islice(batches, options.micro_batches))


with loader() as batches:
    alone = throughput(
        iter(batches), size=size, warm_up_batches=options.warm_up_batches, window_seconds=options.window_seconds
    )
step_seconds = options.micro_batches * options.batch_size / alone["samples_per_second"] / (options.percent / 100)
started = time.perf_counter()
batches = taken_ahead(loader(), micro_batches=options.micro_batches)
try:
    figures = paced(
        steps(iter(batches)),
        size=lambda step: sum(map(size, step)),
        started=started,
        step_seconds=step_seconds,
        warm_up_batches=-(-options.warm_up_batches // options.micro_batches),
        window_seconds=2 * options.window_seconds,
    )
finally:
    batches.close()
report(
    alone_per_second=alone["samples_per_second"],
    waited_percent=100 * figures["waited_share"],
    samples_per_second=figures["samples_per_second"],
)
