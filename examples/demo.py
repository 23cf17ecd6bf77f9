"""From a folder of pictures and a JSON to training batches that stop and go on exactly: run by ``make demo``.

Everything is left in ``demo-run/`` to look at; open ``demo-run/index.html``. ``DEMO_SMALL=1`` takes a twentieth.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from demo_data import PHOTOGRAPHS, QUESTIONS, MissingPackageError, make_data
from torch.nn import functional

from omniloom import DefaultTaskEncoder, VQASample, WorkerConfig, get_savable_loader, get_train_dataset
from omniloom.data.index.dataset import open_dataset
from omniloom.tools.preview_page import page
from omniloom.tools.preview_samples import chosen_rows, read_samples

SMALL = os.environ.get("DEMO_SMALL", "0") not in ("", "0")
FOLDER = Path(os.environ.get("DEMO_RUN", "demo-run"))
PICTURES = 250 if SMALL else 5_000
SHARD_SAMPLES = 250 if SMALL else 4_000
STEPS = 40 if SMALL else 400
BATCH_SIZE = 32
SIDE_PIXELS = 64
CARDS = 30 if SMALL else 60


class Encoder(DefaultTaskEncoder):
    """Brings every picture to one size and mirrors half of them: chance that has to be the same after a restart."""

    def encode_sample(self, sample: VQASample) -> VQASample:
        image = sample.image[None]
        image = functional.interpolate(image, (SIDE_PIXELS, SIDE_PIXELS), mode="bilinear", antialias=True)[0]
        sample.image = image.flip(-1) if torch.rand(()) < 0.5 else image
        return sample


class Step(NamedTuple):
    """What is remembered of one batch: the keys of its samples and a digest of its pixels."""

    keys: tuple[str, ...]
    pixels: str


def command(*words: str) -> None:
    """Run an ``omniloom`` command as a person would, and show it."""
    print(f"\n$ omniloom {' '.join(words)}", flush=True)
    subprocess.run([sys.executable, "-m", "omniloom", *words], check=True)


def loader_of(dataset: Path, *, workers: int) -> Any:
    """A loader of shuffled, augmented batches on some number of workers."""
    config = WorkerConfig(rank=0, world_size=1, num_workers=workers, lanes=12)
    training = get_train_dataset(
        dataset,
        worker_config=config,
        batch_size=BATCH_SIZE,
        shuffle_buffer_size=1_000,
        max_samples_per_sequence=100,
        task_encoder=Encoder(),
    )
    return get_savable_loader(training)


def take(batches: Any, steps: int) -> list[Step]:
    """Pull batches and remember what was in them."""
    taken = []
    for _ in range(steps):
        batch = next(batches)
        digest = hashlib.blake2b(batch.image.numpy().tobytes(), digest_size=8).hexdigest()
        taken.append(Step(tuple(batch.__key__), digest))
    return taken


def timed(batches: Any, steps: int) -> tuple[list[Step], float, float]:
    """The batches, the seconds until the first one, and samples per second after it."""
    begin = time.perf_counter()
    first = take(batches, 1)
    started = time.perf_counter()
    rest = take(batches, steps - 1)
    return first + rest, started - begin, len(rest) * BATCH_SIZE / (time.perf_counter() - started)


def stop_and_go_on(dataset: Path) -> list[tuple[str, str]]:
    """Load without a stop, then with one in the middle and other numbers of workers, and compare."""
    half = STEPS // 2
    print(f"\nLoading {STEPS} batches of {BATCH_SIZE} with 2 workers, without a stop.")
    with loader_of(dataset, workers=2) as loader:
        whole, waited, rate = timed(iter(loader), STEPS)
    print(
        f"  first batch after {waited:.2f} s (workers start), then {rate:,.0f} samples/s, decoded, resized and mirrored"
    )

    print(f"The same again, but stopped after {half} batches; the state is saved to a file.")
    state_path = FOLDER / "state.pt"
    with loader_of(dataset, workers=2) as loader:
        first = take(iter(loader), half)
        torch.save(loader.save_state_rank(), state_path)
    print(f"  {state_path}: {state_path.stat().st_size:,} bytes")

    for workers in (3, 0):
        print(f"Going on from the file with {workers} workers.")
        with loader_of(dataset, workers=workers) as loader:
            loader.restore_state_rank(torch.load(state_path, weights_only=True))
            second, waited, _ = timed(iter(loader), STEPS - half)
        if first + second != whole:
            at = next(n for n, (a, b) in enumerate(zip(first + second, whole, strict=True)) if a != b)
            raise SystemExit(f"batch {at} differs: {(first + second)[at]} instead of {whole[at]}")
        print(f"  the same {STEPS} batches, sample for sample and pixel for pixel; first batch after {waited:.2f} s")
    return [
        ("throughput, 2 workers", f"{rate:,.0f} samples/s"),
        ("stopped and gone on", f"after batch {half} of {STEPS}, with 2, then 3 and 0 workers: the same batches"),
        ("saved state", f"{state_path.stat().st_size:,} bytes"),
    ]


def write_page(dataset: Path, facts: list[tuple[str, str]]) -> Path:
    """A page with a grid of samples and what was measured."""
    index = open_dataset(dataset, split_part="train")
    photographs = range(0, len(PHOTOGRAPHS) * len(QUESTIONS), len(QUESTIONS))  # they come first, each several times
    start = len(PHOTOGRAPHS) * len(QUESTIONS)
    rows = [*photographs, *chosen_rows(index.samples, count=CARDS - len(photographs), start=start, spread=True)]
    samples = read_samples(index, rows, thumbnail_pixels=256)
    path = FOLDER / "index.html"
    numbers = [("samples", f"{index.samples:,} in {len(index.shards)} shards (train)"), *facts]
    path.write_text(page(samples, title="Omniloom demo", facts=numbers), encoding="utf-8")
    return path


def main() -> None:
    """The whole way, from pictures to resumed batches."""
    begin = time.perf_counter()
    shutil.rmtree(FOLDER, ignore_errors=True)
    try:
        json_path, images = make_data(FOLDER / "llava", pictures=PICTURES)
    except MissingPackageError as error:
        raise SystemExit(str(error)) from error
    print(f"{json_path} and {images}: a LLaVA-style data set out of easy-VQA and scikit-image")
    dataset = FOLDER / "shards"
    sizes = ("--max-count", str(SHARD_SAMPLES), "--split-ratio", "9,1,0")
    command("convert", "llava", str(json_path), "--images", str(images), "--out", str(dataset), *sizes)
    command("info", str(dataset))
    command("lint", str(dataset))
    facts = stop_and_go_on(dataset)
    path = write_page(dataset, facts)
    print(f"\nDone in {time.perf_counter() - begin:.0f} s. Open {path}")


if __name__ == "__main__":
    main()
