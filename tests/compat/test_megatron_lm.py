"""Megatron-LM's `examples/multimodal` provider, unmodified, on omniloom. `MEGATRON_LM=CHECKOUT` says where it is.

The data set is made by `omniloom convert llava`. What the provider takes from megatron.core, megatron.training,
torchvision and its own image_processing is stood in for by a few lines, as modules that worker processes find too;
`megatron.energon` is the one of `compat/`. It runs in a process of its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omniloom.tools.main import run

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = Path(os.environ.get("MEGATRON_LM", "/absent"), "examples", "multimodal")

pytestmark = pytest.mark.skipif(
    not (EXAMPLES / "dataloader_provider.py").is_file(), reason="MEGATRON_LM names no checkout of Megatron-LM"
)

STAND_INS = {
    "megatron/core/__init__.py": "from megatron.core import parallel_state\n",
    "megatron/core/parallel_state.py": """
def get_data_parallel_rank(): return 0
def get_data_parallel_world_size(): return 1
def get_data_parallel_group(): return None
def get_pipeline_model_parallel_rank(): return 0
def get_pipeline_model_parallel_world_size(): return 1
def get_tensor_model_parallel_rank(): return 0
""",
    "megatron/core/num_microbatches_calculator.py": "def get_num_microbatches(): return 2\n",
    "megatron/core/models/multimodal/context_parallel.py": "def get_padding(*_): return 0\n",
    "megatron/core/models/multimodal/llava_model.py": """
IGNORE_INDEX, IMAGE_TOKEN, VIDEO_TOKEN = -100, "<image>", "<video>"
""",
    "megatron/core/models/vision/clip_vit_model.py": "def get_num_image_embeddings(*_): return 4\n",
    "megatron/training/__init__.py": """
import json, os
from types import SimpleNamespace
import numpy as np
ARGS = SimpleNamespace(**json.loads(os.environ["MEGATRON_ARGS"]))
def get_args(): return ARGS
class Tokenizer:
    pad = 0
    def convert_tokens_to_ids(self, text): return 7
    def tokenize_conversation(self, conversation, *_):
        words = [word for turn in conversation for word in turn["content"].replace("<image>", "").split()]
        ids = np.array([7] + [len(word) + 10 for word in words])
        return ids, ids.copy()
def get_tokenizer(): return Tokenizer()
""",
    "megatron/training/checkpointing.py": """
def get_checkpoint_name(folder, *_, basename, **__): return f"{folder}/{basename}"
""",
    "torchvision/__init__.py": "",
    "torchvision/transforms.py": "ToPILImage = object\n",
    "image_processing.py": """
import numpy as np, torch
find_closest_aspect_ratio = find_closest_area_weighted_aspect_ratio = None
class ImageTransform:
    def __init__(self, *_): pass
    def __call__(self, image, height, width, *_, **__):
        return [torch.tensor(np.array(image.resize((width, height)))).permute(2, 0, 1)]
""",
}

PROGRAM = """
import os, torch
from megatron.training import ARGS
from dataloader_provider import train_valid_test_dataloaders_provider as provider

def seen(batch):
    return batch["tokens"].tolist(), batch["labels"].shape, batch["imgs"].sum().item(), batch["__key__"]

def keys_of(batch):  # a pack's key is those of its samples
    return [key for keys in batch["__key__"] for key in keys.split(",")]

train, (valid,), _ = provider(None)
rows, packed = ARGS.micro_batch_size, ARGS.packing_buffer_size is not None
drawn, fills = [], []
for _ in range(3):
    batch = next(train)
    drawn += keys_of(batch)
    assert batch["tokens"].shape == (rows, 64) and batch["labels"].shape == (rows, 65)
    assert batch["imgs"].shape[1:] == (3, 8, 8)
    assert len(batch["imgs"]) == int(batch["num_tiles"].sum()) == len(keys_of(batch))
    if packed:
        lengths = batch["cu_lengths"][0].diff()
        fills.append((batch["cu_lengths"][0, -1].item(), len(lengths)))
        assert len(lengths) == len(batch["imgs"])
        assert batch["max_lengths"].tolist() == [lengths.max().item()]
        assert (batch["tokens"] > 0).sum() == lengths.sum() - 3 * len(lengths)  # an image is 4 embeddings, and 1 token
    else:
        assert batch["cu_lengths"].tolist() == batch["max_lengths"].tolist() == [[0]]
if packed:  # of several samples, filled up to the length that is asked for
    assert 48 < max(fills)[0] <= 64 and max(fills)[1] > 3
os.makedirs(ARGS.dataloader_save, exist_ok=True)
torch.save({"dataloader_state_dict": train.save_state()}, f"{ARGS.dataloader_save}/train_dataloader_dprank000.pt")
expected = [seen(next(train)) for _ in range(4)]
drawn += [key for *_, keys in expected for one in keys for key in one.split(",")]
assert len(set(drawn)) == len(drawn) and all(key.startswith("llava-00") for key in drawn)
passes = [[next(valid)["__key__"] for _ in range(6)] for _ in range(2)]  # eval_iters x microbatches of each pass
assert passes[0] == passes[1]
assert all(key >= "llava-0045" for keys in passes[0] for one in keys for key in one.split(","))
ARGS.load = "here"
again, _, _ = provider(None)
assert [seen(next(again)) for _ in range(4)] == expected
ARGS.num_workers = 0
alone, _, _ = provider(None)
assert [seen(next(alone)) for _ in range(4)] == expected
print("sound", packed)
os._exit(0)
"""


@pytest.fixture(scope="module")
def llava(tmp_path_factory):
    """Fifty images with captions, converted: 45 rows for training, 5 for evaluation."""
    from PIL import Image  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("llava")
    (folder / "images").mkdir()
    entries = []
    for number in range(50):
        Image.new("RGB", (8, 8), (number, 3, 9)).save(folder / "images" / f"{number}.jpg")
        answer = "word " * (1 + number % 5)
        turns = [{"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": answer}]
        entries.append({"id": f"llava-{number:04d}", "image": f"{number}.jpg", "conversations": turns})
    (folder / "pretrain.json").write_text(json.dumps(entries))
    words = ["--images", folder / "images", "--out", folder / "shards", "--max-count", 5, "--split-ratio", "9,1,0"]
    assert run(["convert", "llava", str(folder / "pretrain.json"), *map(str, words)]) == 0
    (folder / "prompts.json").write_text("{}")
    for name, code in STAND_INS.items():
        path = folder / "stand_ins" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    return folder


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("packing", [None, 10])
def test_provider_gives_batches_and_goes_on_from_its_own_file(packing, workers, llava, tmp_path):
    arguments = {
        "data_path": [str(llava / "shards")],
        "prompt_path": str(llava / "prompts.json"),
        "load": None,
        "micro_batch_size": 2 if packing is None else 1,  # its batch stacks cu_lengths, of packs of one size only
        "packing_buffer_size": packing,
        "packing_seq_length": 64,
        "dataloader_seq_length": 64,
        "decoder_seq_length": 64,
        "num_workers": workers,
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
    path = os.pathsep.join(map(str, (llava / "stand_ins", EXAMPLES, ROOT / "compat", ROOT / "src")))
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": path, "MEGATRON_ARGS": json.dumps(arguments)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.stdout.endswith(f"sound {packing is not None}\n"), done.stdout + done.stderr
