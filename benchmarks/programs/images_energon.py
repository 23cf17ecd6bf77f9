"""JPEG photographs through Energon: decoded to uint8 tensors, or decoded and resized by Pillow in encode_sample."""

import numpy
import torch
from megatron.energon import (
    CaptioningSample,
    DefaultTaskEncoder,
    SampleDecoder,
    WorkerConfig,
    get_loader,
    get_train_dataset,
    stateless,
)
from meter import arguments, check_image_batch, report, throughput
from PIL import Image

options = arguments(
    "data", "mode", "workers", "batch_size", "shuffle", "run_length", "warm_up_batches", "window_seconds"
)


class Decoded(DefaultTaskEncoder):
    decoder = SampleDecoder(image_decode="torchrgb8")


class Resized(DefaultTaskEncoder):
    decoder = SampleDecoder(image_decode="pilrgb")

    @stateless
    def encode_sample(self, sample: CaptioningSample) -> CaptioningSample:
        small = sample.image.resize((336, 336), Image.Resampling.BICUBIC)
        sample.image = torch.from_numpy(numpy.asarray(small).copy()).permute(2, 0, 1)
        return sample


height, width = (336, 336) if options.mode == "resize" else (480, 640)
dataset = get_train_dataset(
    options.data,
    worker_config=WorkerConfig(rank=0, world_size=1, num_workers=options.workers),
    batch_size=options.batch_size,
    shuffle_buffer_size=options.shuffle,
    max_samples_per_sequence=options.run_length,
    task_encoder=Resized() if options.mode == "resize" else Decoded(),
)
report(
    **throughput(
        iter(get_loader(dataset)),
        size=lambda batch: check_image_batch(batch.image, batch_size=options.batch_size, height=height, width=width),
        warm_up_batches=options.warm_up_batches,
        window_seconds=options.window_seconds,
    )
)
