"""JPEG photographs through omniloom, from a disk or a store, by a paced consumer. Default settings."""

import os
import tempfile
import time
from pathlib import Path

from meter import arguments, check_image_batch, report
from paced import paced

from omniloom import DefaultTaskEncoder, SampleDecoder, WorkerConfig, get_loader, get_train_dataset

options = arguments("data", "workers", "batch_size", "step_seconds", "warm_up_batches", "window_seconds")
if "OMNILOOM_CACHE" in os.environ:  # nothing is kept from run to run
    kept = Path(os.environ["OMNILOOM_CACHE"])
    kept.mkdir(parents=True, exist_ok=True)
    os.environ["OMNILOOM_CACHE"] = tempfile.mkdtemp(dir=kept)
started = time.perf_counter()


class Decoded(DefaultTaskEncoder):
    decoder = SampleDecoder(image_decode="torchrgb8")


loader = get_loader(
    get_train_dataset(
        options.data,
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=options.workers),
        batch_size=options.batch_size,
        task_encoder=Decoded(),
    )
)
figures = paced(
    iter(loader),
    size=lambda batch: check_image_batch(batch.image, batch_size=options.batch_size, height=480, width=640),
    started=started,
    step_seconds=options.step_seconds,
    warm_up_batches=options.warm_up_batches,
    window_seconds=options.window_seconds,
)
store: dict[str, int] = {}
for leaf in loader.stats()["datasets"].values():
    for name, count in leaf.get("store", {}).items():
        store[name] = max(store.get(name, 0), count) if name.endswith("peak_bytes") else store.get(name, 0) + count
report(**figures, store=store)
