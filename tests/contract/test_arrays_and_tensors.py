"""An array is an array and a tensor a tensor, whether a step of the task encoder is overridden or none is."""

from __future__ import annotations

import io
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import omniloom as ol
from omniloom.data.task import DefaultTaskEncoder

energon: Any = import_module("omniloom.energon")
CONFIG = ol.WorkerConfig(rank=0, world_size=1, num_workers=0)
LOADER = """
def sample_loader(raw):
    return {"image": raw["png"].clamp(min=7), "caption": str(type(raw["npy"]).__name__)}

def part_filter(part):
    return True
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four images of 4 x 6 pixels, each with an array of three numbers."""
    folder = tmp_path_factory.mktemp("images")
    with ol.TarWriter(folder / "a.tar") as writer:
        for row in range(4):
            image, numbers = io.BytesIO(), io.BytesIO()
            Image.fromarray(np.full((4, 6, 3), row, np.uint8)).save(image, "PNG")
            np.save(numbers, np.arange(3) + row)
            writer.add(f"{row}.png", image.getvalue())
            writer.add(f"{row}.npy", numbers.getvalue())
    ol.prepare_dataset(folder, num_workers=1)
    (folder / ".nv-meta" / "code.py").write_text(LOADER)
    describe(folder, field_map={"image": "png"})
    return folder


def describe(folder: Path, **content: Any) -> None:
    kind = "CaptioningSample" if "sample_loader" in content else "ImageSample"
    text = {"sample_type": {"__module__": "megatron.energon", "__class__": kind}, **content}
    (folder / ".nv-meta" / "dataset.yaml").write_text(json.dumps(text))


class OwnStep(DefaultTaskEncoder):
    def encode_sample(self, sample: Any) -> Any:
        return sample


def first(namespace: Any, path: Any, **settings: Any) -> Any:
    dataset = namespace.get_val_dataset(
        path, split_part="train", batch_size=None, worker_config=CONFIG, **{"trust": True, **settings}
    )
    return next(iter(dataset))


@pytest.mark.parametrize("encoder", [DefaultTaskEncoder, OwnStep])
@pytest.mark.parametrize(("spec", "kind"), [("rgb8", np.ndarray), ("torchrgb8", torch.Tensor), ("uint8", torch.Tensor)])
def test_images_come_as_the_decoder_says(images: Path, encoder: Any, spec: str, kind: type) -> None:
    describe(images, field_map={"image": "png"})
    own = encoder()
    own.decoder = ol.SampleDecoder(image_decode=spec)
    assert type(first(ol, images, task_encoder=own).image) is kind


@pytest.mark.parametrize("encoder", [DefaultTaskEncoder, OwnStep])
def test_parts_that_are_arrays_stay_arrays(images: Path, encoder: Any) -> None:
    describe(images, field_map={"image": "npy"})
    assert type(first(ol, images, task_encoder=encoder()).image) is np.ndarray


def test_a_sample_loader_and_a_joiner_are_handed_tensors(images: Path) -> None:
    describe(images, sample_loader="code.py:sample_loader", part_filter="code.py:part_filter")
    sample = first(ol, images)
    assert sample.caption == "ndarray"
    assert torch.equal(sample.image, torch.full((3, 4, 6), 7, dtype=torch.uint8))
    describe(images, field_map={"image": "png"})

    def joined(one: Any, other: Any) -> Any:
        return ol.ImageSample.derive_from(one, image=torch.maximum(one.image, other.image))

    assert first(ol, ol.join([images, images], joiner=joined)).image.shape == (3, 4, 6)


def test_energons_default_encoder_lists_arrays_as_energon_does(images: Path) -> None:
    describe(images, field_map={"image": "png"})
    settings = {"split_part": "train", "batch_size": 4, "worker_config": energon.WorkerConfig(num_workers=0)}
    with pytest.warns(FutureWarning, match="image_decode"):
        (batch,) = energon.get_val_dataset(images, image_decode="rgb8", **settings)
    assert [type(image) for image in batch.image] == [np.ndarray] * 4
    (batch,) = energon.get_val_dataset(images, **settings)
    assert batch.image.shape == (4, 3, 4, 6)
    assert energon.generic_batch([{"a": np.arange(2), "b": torch.ones(1)}])["a"][0].tolist() == [0, 1]
    assert energon.generic_concat([np.arange(2)])[0].tolist() == [0, 1]
