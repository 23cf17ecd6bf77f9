"""Records the states of this folder with the real Energon: `python record.py`, where megatron-energon is installed."""

import json
import tempfile
from pathlib import Path

import torch
from megatron.energon import (
    Cooker,
    DefaultTaskEncoder,
    TextSample,
    WorkerConfig,
    basic_sample_keys,
    get_savable_loader,
    get_train_dataset,
    stateless,
)
from megatron.energon.epathlib import EPath
from megatron.energon.flavors import CrudeJsonlDatasetFactory

HERE = Path(__file__).parent


@stateless
def cook(sample):
    return TextSample(**basic_sample_keys(sample), text=sample["json"]["text"])


class Encoder(DefaultTaskEncoder):
    cookers = (Cooker(cook),)


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "a.jsonl")
    path.write_text("".join(json.dumps({"text": str(n)}) + "\n" for n in range(40)))
    CrudeJsonlDatasetFactory.prepare_dataset(EPath(path))
    for name, workers in (("two_workers", 2), ("no_workers", 0)):
        dataset = get_train_dataset(
            path,
            batch_size=2,
            shuffle_buffer_size=4,
            max_samples_per_sequence=None,
            worker_config=WorkerConfig(rank=0, world_size=1, num_workers=workers),
            task_encoder=Encoder(),
        )
        loader = get_savable_loader(dataset, checkpoint_every_sec=0)
        for _ in zip(range(7), loader):  # noqa: B905
            pass
        torch.save(loader.save_state_rank(), HERE / f"{name}.pt")

    # A blend of two data sets, 40 rows with weight 3 and 24 rows with weight 1: 90 batches of 2 samples, two workers.
    other = Path(folder, "b.jsonl")
    other.write_text("".join(json.dumps({"text": f"b{n}"}) + "\n" for n in range(24)))
    CrudeJsonlDatasetFactory.prepare_dataset(EPath(other))
    mix = {"blend": [{"path": "a.jsonl", "weight": 3}, {"path": "b.jsonl", "weight": 1}]}
    content = {"__module__": "megatron.energon", "__class__": "MetadatasetV2", "splits": {"train": mix}}
    Path(folder, "mix.yaml").write_text(json.dumps(content))
    dataset = get_train_dataset(
        Path(folder, "mix.yaml"),
        batch_size=2,
        shuffle_buffer_size=None,
        max_samples_per_sequence=None,
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=2),
        task_encoder=Encoder(),
    )
    loader = get_savable_loader(dataset, checkpoint_every_sec=0)
    for _ in zip(range(90), loader):  # noqa: B905
        pass
    torch.save(loader.save_state_rank(), HERE / "blend.pt")

    # A mix that counts epochs, 2.5 times the 40 rows and once the 24: an epoch of it is 124 rows; 140 batches of 2.
    mix = {"blend_epochized": [{"path": "a.jsonl", "repetitions": 2.5}, {"path": "b.jsonl", "repetitions": 1}]}
    content = {"__module__": "megatron.energon", "__class__": "MetadatasetV2", "splits": {"train": mix}}
    Path(folder, "epochs.yaml").write_text(json.dumps(content))
    dataset = get_train_dataset(
        Path(folder, "epochs.yaml"),
        batch_size=2,
        shuffle_buffer_size=None,
        max_samples_per_sequence=None,
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=2),
        task_encoder=Encoder(),
    )
    loader = get_savable_loader(dataset, checkpoint_every_sec=0)
    for _ in zip(range(140), loader):  # noqa: B905
        pass
    torch.save(loader.save_state_rank(), HERE / "epochs.pt")
