"""JPEG photographs through omniloom: decoded to uint8 tensors, or resized by resize_image in encode_sample."""

from meter import arguments, check_image_batch, report, throughput

from omniloom import (
    CaptioningSample,
    DefaultTaskEncoder,
    SampleDecoder,
    WorkerConfig,
    get_loader,
    get_train_dataset,
    resize_image,
)

options = arguments(
    "data", "mode", "workers", "batch_size", "shuffle", "run_length", "warm_up_batches", "window_seconds"
)


class Decoded(DefaultTaskEncoder):
    decoder = SampleDecoder(image_decode="torchrgb8")


class Resized(Decoded):
    def encode_sample(self, sample: CaptioningSample) -> CaptioningSample:
        sample.image = resize_image(sample.image, (336, 336))
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
