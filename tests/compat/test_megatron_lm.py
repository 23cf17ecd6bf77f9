"""Megatron-LM's `examples/multimodal` provider, unmodified, on omniloom. `MEGATRON_LM=CHECKOUT` says where it is.

What it takes from megatron.core, megatron.training, torchvision and its own image_processing is stood in for by a few
lines. It runs in a process of its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = Path(os.environ.get("MEGATRON_LM", "/absent"), "examples", "multimodal")

pytestmark = pytest.mark.skipif(
    not (EXAMPLES / "dataloader_provider.py").is_file(), reason="MEGATRON_LM names no checkout of Megatron-LM"
)

STAND_INS = """
import json, os, sys, types
from types import SimpleNamespace
import numpy as np, torch

def module(name, **values):
    made = sys.modules[name] = types.ModuleType(name)
    made.__dict__.update(values)
    made.__path__ = []

ARGS = SimpleNamespace(**json.loads(sys.argv[1]))

class Tokenizer:
    pad = 0
    def convert_tokens_to_ids(self, text):
        return 7
    def tokenize_conversation(self, conversation, *_):
        ids = np.array([7] + [len(word) + 10 for turn in conversation for word in turn["content"].split()])
        return ids, ids.copy()

def transform(image, height, width, *_, **__):
    return [torch.tensor(np.array(image.resize((width, height)))).permute(2, 0, 1)]

import omniloom.energon
omniloom.energon.install()
module("megatron.core", parallel_state=SimpleNamespace(
    get_data_parallel_rank=lambda: 0, get_data_parallel_world_size=lambda: 1, get_data_parallel_group=lambda: None))
module("megatron.core.num_microbatches_calculator", get_num_microbatches=lambda: 2)
module("megatron.core.parallel_state", get_pipeline_model_parallel_rank=lambda: 0,
       get_pipeline_model_parallel_world_size=lambda: 1, get_tensor_model_parallel_rank=lambda: 0)
module("megatron.core.models"); module("megatron.core.models.multimodal"); module("megatron.core.models.vision")
module("megatron.core.models.multimodal.context_parallel", get_padding=lambda *_: 0)
module("megatron.core.models.multimodal.llava_model", IGNORE_INDEX=-100, IMAGE_TOKEN="<image>", VIDEO_TOKEN="<video>")
module("megatron.core.models.vision.clip_vit_model", get_num_image_embeddings=lambda *_: 4)
module("megatron.training", get_args=lambda: ARGS, get_tokenizer=Tokenizer)
module("megatron.training.checkpointing",
       get_checkpoint_name=lambda folder, *_, basename, **__: f"{folder}/{basename}")
module("torchvision"); module("torchvision.transforms", ToPILImage=object)
module("image_processing", ImageTransform=lambda *_: transform, find_closest_aspect_ratio=None,
       find_closest_area_weighted_aspect_ratio=None)
"""

PROGRAM = (
    STAND_INS
    + """
from dataloader_provider import train_valid_test_dataloaders_provider as provider

def seen(batch):
    return batch["tokens"].tolist(), batch["labels"].shape, batch["imgs"].sum().item(), batch["__key__"]

ARGS.load = None
train, (valid,), _ = provider(None)
for _ in range(3):
    batch = next(train)
rows, packed = ARGS.micro_batch_size, ARGS.packing_buffer_size is not None
assert batch["tokens"].shape == (rows, 64) and batch["labels"].shape == (rows, 65)
assert batch["imgs"].shape[1:] == (3, 8, 8)
assert len(batch["imgs"]) == int(batch["num_tiles"].sum())
if packed:  # a pack of several samples, filled up to the length that is asked for
    lengths = batch["cu_lengths"][0].diff()
    assert len(lengths) == len(batch["imgs"]) > 1
    assert 32 < batch["cu_lengths"][0, -1] <= 64
    assert batch["max_lengths"].tolist() == [lengths.max().item()]
os.makedirs(ARGS.dataloader_save, exist_ok=True)
torch.save({"dataloader_state_dict": train.save_state()}, f"{ARGS.dataloader_save}/train_dataloader_dprank000.pt")
expected = [seen(next(train)) for _ in range(4)]
passes = [[next(valid)["__key__"] for _ in range(6)] for _ in range(2)]
if not packed:  # eval_iters x microbatches of each pass, the same in each
    assert passes[0] == passes[1]
    assert all(key.startswith("1-") for keys in passes[0] for key in keys)
ARGS.load = "here"
again, _, _ = provider(None)
assert [seen(next(again)) for _ in range(4)] == expected
print("sound", packed)
"""
)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Forty images with captions, prepared for train and val, and the file of prompts."""
    from PIL import Image  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("llava")
    (folder / "shards").mkdir()
    import omniloom  # noqa: PLC0415
    from omniloom.energon import BaseWebdatasetFactory  # noqa: PLC0415

    for shard in range(2):
        with omniloom.TarWriter(folder / "shards" / f"{shard}.tar") as writer:
            for row in range(20):
                Image.new("RGB", (8, 8), (row, shard, 9)).save(folder / "one.png")
                writer.add(f"{shard}-{row:02d}.png", (folder / "one.png").read_bytes())
                writer.add(f"{shard}-{row:02d}.txt", ("word " * (1 + row % 5)).encode())
    BaseWebdatasetFactory.prepare_dataset(
        folder / "shards", ["{0..1}.tar"], split_parts_patterns=[("train", "0"), ("val", "1")], workers=1
    )
    content = {
        "sample_type": {"__module__": "megatron.energon", "__class__": "CaptioningSample"},
        "field_map": {"image": "png", "caption": "txt"},
    }
    (folder / "shards" / ".nv-meta" / "dataset.yaml").write_text(json.dumps(content))
    (folder / "prompts.json").write_text(json.dumps({"CaptioningPretraining": {"raw": ["Say what it is", "Say"]}}))
    return folder


@pytest.mark.parametrize("packing", [None, 10])
def test_provider_gives_batches_and_goes_on_from_its_own_file(packing, shards, tmp_path):
    arguments = {
        "data_path": [str(shards / "shards")],
        "prompt_path": str(shards / "prompts.json"),
        "micro_batch_size": 2 if packing is None else 1,  # its batch stacks cu_lengths, of packs of one size only
        "packing_buffer_size": packing,
        "packing_seq_length": 64,
        "dataloader_seq_length": 64,
        "decoder_seq_length": 64,
        "num_workers": 0,
        "eval_iters": 3,
        "dataloader_save": str(tmp_path / "saved"),
        "iteration": 3,
        "fp8": False,
        "img_h": 8,
        "img_w": 8,
        "patch_dim": 4,
        "vision_model_type": "clip",
        "disable_vision_class_token": True,
        "pixel_shuffle": False,
        "use_tile_tags": False,
        "max_num_tiles": 1,
        "tokenizer_prompt_format": "plain",
        "use_area_weighted_aspect_ratio": False,
        "use_tiling": False,
        "use_thumbnail": False,
        "freeze_LM": False,
        "context_parallel_size": 1,
        "tensor_model_parallel_size": 1,
        "sequence_parallel": False,
        "tp_comm_overlap": False,
    }
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    path = os.pathsep.join([str(EXAMPLES), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith(f"sound {packing is not None}\n"), done.stdout + done.stderr
