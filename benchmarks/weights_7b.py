"""Converts weights of Mistral 7B's shapes to Megatron's form, and says how long it took and how much memory.

    python benchmarks/weights_7b.py WORK_FOLDER [--layers 32] [--tensor-parallel-size 4]

The weights are made here; every number tells its tensor and its place, and the converted ones are compared with the
originals, tensor by tensor, to the bit. Beside the conversion stands a plain copy of the same bytes. Needs about 60 GB
of disk for 32 layers; takes away what it made.
"""

import argparse
import json
import os
import shutil
import threading
import time
import zlib
from pathlib import Path

import torch

from omniloom.conversion.compare import differences
from omniloom.conversion.published import Published, open_published
from omniloom.conversion.targets import Wanted, plan_target
from omniloom.model.build import parameter_shapes
from omniloom.model.families import read_config
from omniloom.weights.filling import fill
from omniloom.weights.megatron_write import Parallelism
from omniloom.weights.source import Source, TensorInfo

MISTRAL = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32768,
    "rope_theta": 1e6,
    "sliding_window": None,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}


class Coded(Source):
    """Tensors that are made when they are read: 16 bits that tell the name and the place."""

    def __init__(self, shapes):
        self.where = "coded weights"
        self.tensors = {name: TensorInfo(shape, torch.bfloat16) for name, shape in shapes.items()}

    def read(self, name):
        shape = self.info(name).shape
        ramp = torch.arange(torch.Size(shape).numel(), dtype=torch.int32)
        return (
            ((ramp + zlib.crc32(name.encode()) % 28_643) % 28_657).to(torch.int16).view(torch.bfloat16).reshape(shape)
        )


class AnonymousMemory(threading.Thread):
    """Watches the largest anonymous memory of this process."""

    def __init__(self):
        super().__init__(daemon=True)
        self.largest_bytes = 0
        self._done = threading.Event()

    def run(self):
        while not self._done.wait(0.02):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    self.largest_bytes = max(self.largest_bytes, int(line.split()[1]) * 1024)

    def stop(self):
        self._done.set()
        self.join()
        return self.largest_bytes


def write(published, folder, **wanted):
    target = plan_target(published, Wanted(**wanted))
    start = time.perf_counter()
    fill(target.plan, target.source, folder)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--tensor-parallel-size", type=int, default=4)
    options = parser.parse_args()
    work = options.folder / "weights-7b"
    work.mkdir(parents=True)
    try:
        config = read_config({**MISTRAL, "num_hidden_layers": options.layers})
        coded = Published(work, "omniloom", config, Coded(parameter_shapes(config)))
        told = {"gigabytes": coded.source.size_bytes / 1e9}
        told["make_seconds"] = write(coded, work / "hf", to="hf")
        memory = AnonymousMemory()
        memory.start()
        megatron = {"to": "megatron", "parallelism": Parallelism(options.tensor_parallel_size)}
        told["convert_seconds"] = write(open_published(work / "hf"), work / "megatron", **megatron)
        told["convert_anonymous_gigabytes"] = memory.stop() / 1e9
        start = time.perf_counter()
        different = list(differences(coded.source, open_published(work / "megatron").source))
        told["compare_seconds"] = time.perf_counter() - start
        told["different_tensors"] = len(different)
        shutil.rmtree(work / "megatron")
        start = time.perf_counter()
        for file in (work / "hf").iterdir():
            with file.open("rb") as source, (work / f"copy-{file.name}").open("wb") as copy:
                shutil.copyfileobj(source, copy, 16 << 20)
                copy.flush()
                os.fdatasync(copy.fileno())
        told["plain_copy_seconds"] = time.perf_counter() - start
        print(json.dumps({name: round(value, 2) for name, value in told.items()}, indent=2))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
