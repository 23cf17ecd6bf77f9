"""Tells the batches of many task encoders and decoders: `python record.py FOLDER`, where `megatron.energon` is.

FOLDER holds the data sets of `energon_sources`. Run by a Python that has megatron-energon, it tells what that gives;
with `compat/` on the path, what omniloom does.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "energon_sources"))

import megatron.energon as energon
import numpy as np
import torch
from data_sets import CONFIGS

warnings.simplefilter("ignore")
logging.disable()
stdout, sys.stdout = sys.stdout, sys.stderr  # Energon prints
ROOT = Path(sys.argv[1])
CONFIG = energon.WorkerConfig(rank=0, world_size=1, num_workers=0)
SPECS = (
    *("l8", "rgb8", "rgba8", "l", "rgb", "rgba", "torchl8", "torchrgb8", "torchrgba8", "torchl", "torchrgb", "torch"),
    *("torchrgba", "pill", "pil", "pilrgb", "pilrgba"),
)
LEFT_OUT = ("__restore_key__", "__sources__", "__pad__")
found: dict[str, Any] = {}


def told(value: Any) -> Any:
    """A value as its type, its extent and what it holds."""
    if isinstance(value, torch.Tensor):
        return ["tensor", str(value.dtype), list(value.shape), round(float(value.double().sum()), 3)]
    if isinstance(value, np.ndarray):
        return ["ndarray", str(value.dtype), list(value.shape), round(float(value.astype(float).sum()), 3)]
    if isinstance(value, dict):
        return {str(name): told(one) for name, one in value.items() if name not in LEFT_OUT}
    if hasattr(value, "_fields"):
        return [type(value).__name__, {name: told(getattr(value, name)) for name in value._fields}]
    if dataclasses.is_dataclass(value):
        names = [one.name for one in dataclasses.fields(value) if one.name not in LEFT_OUT]
        return [type(value).__name__, {name: told(getattr(value, name)) for name in names}]
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(told, value)]
    if isinstance(value, str | int | float | None):
        return str(value) if isinstance(value, str) else value
    return ["bytes", len(value)] if isinstance(value, bytes) else type(value).__name__


def tell(name: str, encoder: Any, *, path: str = "shards", **settings: Any) -> None:
    """Tell what an evaluation gives."""
    asked = {"split_part": "train", "batch_size": 2, **settings}
    dataset = energon.get_val_dataset(ROOT / path, worker_config=CONFIG, task_encoder=encoder, **asked)
    found[name] = [told(batch) for batch in energon.get_loader(dataset)]


def encoding(function: Any, **steps: Any) -> Any:
    """A task encoder with this ``encode_sample``, and other steps."""
    function.__name__ = "encode_sample"  # by which Energon knows what is overridden
    kind = type("Encoder", (energon.DefaultTaskEncoder,), {"encode_sample": energon.stateless(function), **steps})
    return kind()


@dataclasses.dataclass
class Encoded:
    __key__: str
    __restore_key__: tuple
    tokens: torch.Tensor
    numbers: np.ndarray
    more: dict


class Pair(NamedTuple):
    tokens: torch.Tensor
    numbers: np.ndarray


@energon.edataclass
class Captions(energon.Batch):
    caption: list


def tokens(sample: Any) -> torch.Tensor:
    return torch.arange(len(sample.caption) + int(sample.caption[-1]))


def several(self, sample):
    for part in range(3):
        if part < int(sample.caption[-1]):
            yield {"key": f"{sample.__key__}/{part}"}


class Crude(energon.DefaultTaskEncoder):
    cookers = (energon.Cooker(energon.stateless(lambda sample: sample)),)


class Packs(energon.DefaultTaskEncoder):
    def select_samples_to_pack(self, samples):
        return [samples[start : start + 2] for start in range(0, len(samples), 2)]

    @energon.stateless
    def pack_selected_samples(self, samples):
        return {"keys": [sample.__key__ for sample in samples]}

    @energon.stateless
    def batch(self, samples):
        return [sample["keys"] for sample in samples]


class Groups(energon.DefaultTaskEncoder):
    def batch_group_criterion(self, sample):
        return int(sample.caption[-1]) % 2, 2

    def batch(self, samples):
        return [sample.__key__ for sample in samples]


for name in CONFIGS:
    for size in (2, None):
        encoder = Crude() if "crude" in name else energon.DefaultTaskEncoder()
        tell(f"{name}, batch size {size}", encoder, dataset_config=f"{name}.yaml", batch_size=size)
captions = {"dataset_config": "captioning.yaml"}
for spec in SPECS:
    decoded = type("Decoded", (energon.DefaultTaskEncoder,), {"decoder": energon.SampleDecoder(image_decode=spec)})
    for size in (2, None):
        tell(f"{spec}, batch size {size}", decoded(), batch_size=size, **captions)
tell("no decoder", type("Undecoded", (energon.DefaultTaskEncoder,), {"decoder": None})(), dataset_config="text.yaml")
for name, function in {
    "dataclass": lambda self, one: Encoded(
        one.__key__, one.__restore_key__, tokens(one), np.arange(3), {"a": torch.ones(2), "b": np.zeros(2), "c": "x"}
    ),
    "namedtuple": lambda self, one: Pair(tokens(one), np.arange(2)),
    "dict": lambda self, one: {"a": tokens(one), "b": np.float32(3), "c": [1, 2], "d": None, "e": one.caption},
}.items():
    tell(name, encoding(function), **captions)
tell("several of one", encoding(several), **{**captions, "batch_size": 4})
tell("the last one dropped", energon.DefaultTaskEncoder(), batch_drop_last=True, **captions)
tell("a limit", energon.DefaultTaskEncoder(), limit=2, **{**captions, "batch_size": 1})
tell("packs", Packs(), packing_buffer_size=4, **{**captions, "batch_size": 1})
tell("groups", Groups(), **{**captions, "batch_size": None})
tell("a batch type", energon.DefaultTaskEncoder(raw_batch_type=Captions), **captions)
tell("a dict of the batch", energon.DefaultTaskEncoder(batch_type=dict), **captions)
for name, values in {
    "tensors": [torch.ones(2), torch.ones(3)],
    "dicts": [{"a": torch.ones(1)}, {"a": torch.zeros(2)}],
    "numbers": [1, 2],
    "pairs": [Pair(torch.ones(1), np.ones(1))],
    "tuples": [(1, 2), (3, 4)],
    "arrays": [np.ones(1), np.ones(2)],
}.items():
    found[f"generic_batch of {name}"] = told(energon.generic_batch(values))
json.dump(found, stdout, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
