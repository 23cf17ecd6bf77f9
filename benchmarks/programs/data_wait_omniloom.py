"""LLaVA batches of photographs, first as fast as they come, then by a training that takes a share of that rate."""

import itertools
import time

from meter import arguments, report, throughput
from paced import paced

from omniloom import LlavaSettings, LlavaTaskEncoder, WorkerConfig, get_loader, get_train_dataset
from omniloom.vlm.byte_tokenizer import ByteTokenizer
from omniloom.vlm.image_processor import ImageProcessor, tile_tokens
from omniloom.vlm.layouts import PadToSquare

options = arguments("data", "workers", "batch_size", "percent", "warm_up_batches", "window_seconds")
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
    return get_loader(dataset)


def size(batch) -> int:
    return len(batch.images)


with loader() as batches:
    alone = throughput(
        iter(batches), size=size, warm_up_batches=options.warm_up_batches, window_seconds=options.window_seconds
    )
step_seconds = options.batch_size / alone["samples_per_second"] / (options.percent / 100)
started = time.perf_counter()
with loader() as batches:
    figures = paced(
        itertools.chain(iter(batches)),
        size=size,
        started=started,
        step_seconds=step_seconds,
        warm_up_batches=options.warm_up_batches,
        window_seconds=2 * options.window_seconds,
    )
report(
    alone_per_second=alone["samples_per_second"],
    waited_percent=100 * figures["waited_share"],
    samples_per_second=figures["samples_per_second"],
)
