"""A conversion holds a tensor or two at a time, however large the model is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys, time
from pathlib import Path

import torch

sys.path.insert(0, sys.argv[2])
from benchmarks.weights_7b import AnonymousMemory, Coded, write
from omniloom.conversion.published import Published, open_published
from omniloom.model.build import parameter_shapes
from omniloom.model.families import read_config
from omniloom.weights.megatron_write import Parallelism

work = Path(sys.argv[1])
sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 8}
config = read_config({"model_type": "llama", **sizes, "vocab_size": 16000, "tie_word_embeddings": False})
coded = Published(work, "omniloom", config, Coded(parameter_shapes(config)))
write(coded, work / "hf", to="hf")
before = AnonymousMemory()
before.start()
time.sleep(0.2)
before = before.stop()
memory = AnonymousMemory()
memory.start()
write(open_published(work / "hf"), work / "m", to="megatron", parallelism=Parallelism(4))
peak = memory.stop()
print(json.dumps({"model": coded.source.size_bytes, "grown": peak - before}))
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_model(tmp_path):
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(root)], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert told["model"] > 800_000_000
    assert told["grown"] < 200_000_000
