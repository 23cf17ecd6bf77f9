"""The loss of 4,096 tokens over 32,768 words, 60 % without label: memory and time beside full logits."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import json, resource, sys, time, torch
from torch.nn import functional
from omniloom.model.loss import sum_of_losses
torch.set_num_threads(1)
torch.manual_seed(0)
stream = torch.randn(4096, 256, requires_grad=True)
head = (torch.randn(32768, 256) * 0.02).requires_grad_()
labels = torch.randint(0, 32768, (4096,))
labels[torch.rand(4096) < 0.6] = -100
def loss(rows):
    if sys.argv[1] == "full":
        return functional.cross_entropy(stream[:rows] @ head.T, labels[:rows], reduction="sum")
    return sum_of_losses(stream[:rows], head, labels[:rows]).total
loss(64).backward()
stream.grad = head.grad = None
before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
total = loss(4096)
total.backward()
seconds = time.process_time() - started
print(json.dumps([total.item(), seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]))
"""


def _measure(way: str) -> tuple[float, float, float]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, way], check=True, capture_output=True, text=True, timeout=300)
    loss, seconds, kibibytes = json.loads(done.stdout)
    return loss, seconds, kibibytes


def test_an_eighth_of_the_memory_and_less_time() -> None:
    full, chunked = _measure("full"), _measure("chunked")
    assert chunked[0] == pytest.approx(full[0], rel=1e-6)
    assert chunked[2] * 8 <= full[2]
    assert chunked[1] < full[1]
