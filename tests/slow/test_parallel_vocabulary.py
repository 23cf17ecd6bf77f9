"""Words dealt over ranks: losses, their gradients and all scores are those of one rank that has every word."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slow.test_process_group import run_ranks

pytestmark = pytest.mark.slow


def test_losses_and_gradients_are_those_of_whole_scores(tmp_path: Path) -> None:
    body = """
from torch.nn import functional
from omniloom.parallel.vocabulary import sum_of_losses
torch.manual_seed(0)
stream, head = torch.randn(11, 6) * 30, torch.randn(8, 6)  # such scores overflow where the greatest is not taken off
labels, weights = torch.tensor([0, 7, -100, 3, 4, -100, 5, 1, 2, 6, 7]), torch.rand(11)
def ours(stream, head):
    own = head.chunk(world)[rank]
    return sum_of_losses(stream, own, labels, group=dist.group.WORLD, token_weights=weights, chunk_tokens=4).total
def torchs(stream, head):
    return (functional.cross_entropy(stream @ head.T, labels, reduction="none", ignore_index=-100) * weights).sum()
def told(loss):
    given = stream.clone().requires_grad_(), head.clone().requires_grad_()
    total = loss(*given)
    (2 * total).backward()
    rows = given[1].grad.chunk(world)[rank]
    return [total.item(), given[0].grad.flatten().tolist(), rows.flatten().tolist()]
print(json.dumps([told(ours), told(torchs)]))
"""
    for found, expected in run_ranks(2, body, tmp_path):
        for ours, theirs in zip(found, expected, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)


def test_scores_of_all_words_are_put_together(tmp_path: Path) -> None:
    body = """
from omniloom.model.documents import Documents
from omniloom.parallel.plan import ParallelConfig, lay_out, parallelize
from tests.contract.tiny_llava import packed_batch, tiny_llava
batch = packed_batch(1)
def scores(model):
    with torch.no_grad():
        return model(
            batch.input_ids, documents=Documents.of_lengths(batch.document_lengths.tolist()), images=batch.images
        )
expected = scores(tiny_llava())
config = ParallelConfig(tensor=2)
found = scores(parallelize(tiny_llava(), config, lay_out(config, device="cpu")))
print(json.dumps([list(found.shape) == list(expected.shape), (found - expected).abs().max().item()]))
"""
    for same_shape, difference in run_ranks(2, body, tmp_path):
        assert same_shape
        assert difference < 1e-5
