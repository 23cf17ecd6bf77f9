"""A conversion that is killed goes on where it stopped, and ends with the very same bytes."""

import json
import signal
import subprocess
import sys
import time

import pytest
import torch

from omniloom.conversion.published import Published
from omniloom.conversion.targets import Wanted, plan_target
from omniloom.model.families import read_config
from omniloom.weights.filling import JOURNAL, fill
from omniloom.weights.source import InMemory
from tests.contract.model_zoo import TEXT, coded_weights

SLOW_CONVERT = """
import sys, time
from omniloom.tools.main import run
from omniloom.weights import filling, safetensors_file

filling._SYNC_EVERY_BYTES = 1
read = safetensors_file.SafetensorsFile.read

def slowly(self, name):
    time.sleep(float(sys.argv[1]))
    print(name, flush=True)
    return read(self, name)

safetensors_file.SafetensorsFile.read = slowly
sys.exit(run(["weights", "convert", *sys.argv[2:]]))
"""


def converting(seconds, *words):
    return subprocess.Popen(
        [sys.executable, "-c", SLOW_CONVERT, str(seconds), *map(str, words)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_a_killed_conversion_goes_on(tmp_path):
    config = read_config({"model_type": "llama", **TEXT, "num_hidden_layers": 6})
    published = Published(None, "omniloom", config, InMemory(coded_weights(config, torch.bfloat16)))
    target = plan_target(published, Wanted(to="hf"))
    fill(target.plan, target.source, tmp_path / "hf")
    whole = converting(0, tmp_path / "hf", tmp_path / "whole", "--to", "megatron", "--tp", "2")
    everything, _ = whole.communicate()
    words = [tmp_path / "hf", tmp_path / "m", "--to", "megatron", "--tp", "2"]
    killed = converting(0.05, *words)
    journal = tmp_path / "m.partial" / JOURNAL
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not journal.is_file() or journal.read_text().count("\n") < 8):
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    done = {json.loads(line)[0] for line in journal.read_text().splitlines()[1:]}
    assert len(done) >= 7
    assert not (tmp_path / "m").exists()
    again = converting(0, *words)
    told, _ = again.communicate()
    assert again.returncode == 0
    names = [line for line in told.splitlines() if line.startswith(("model.", "lm_head"))]
    assert 0 < len(names) < len([line for line in everything.splitlines() if line.startswith(("model.", "lm_head"))])
    files = sorted(path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(tmp_path / "m") for path in (tmp_path / "m").rglob("*") if path.is_file())
    assert all((tmp_path / "whole" / file).read_bytes() == (tmp_path / "m" / file).read_bytes() for file in files)
