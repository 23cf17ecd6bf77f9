"""Batches of one loader on all ranks of a group, its end and its failure; and layouts that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slow.test_process_group import run_ranks

pytestmark = pytest.mark.slow


def test_all_ranks_are_given_the_batches_of_the_first(tmp_path: Path) -> None:
    body = """
from tests.contract.tiny_llava import packed_batch
from omniloom.parallel.feed import FeedError, GroupLoader
from omniloom.parallel.wire import FIELDS, seed_of
def broken():
    yield packed_batch(1)
    raise OSError("the disk is gone")
def taken(batches):
    loader = GroupLoader(batches if rank == 0 else None, group=dist.group.WORLD, device=torch.device("cpu"))
    found, end = [], "end"
    try:
        for batch in loader:
            told = {name: [str(getattr(batch, name).dtype), getattr(batch, name).tolist()] for name in FIELDS}
            found.append(told | {"seed": seed_of(batch)})
    except (OSError, FeedError) as error:
        end = f"{type(error).__name__}: {error}"
    return found, end
half = packed_batch(2)
half.images = half.images.to(torch.bfloat16)
whole = taken([packed_batch(0), packed_batch(1), half])
print(json.dumps([whole, taken(broken())[1]]))
"""
    (first, failed), *others = run_ranks(3, body, tmp_path)
    batches, end = first
    assert (len(batches), end, failed) == (3, "end", "OSError: the disk is gone")
    assert [batch["images"][0] for batch in batches] == ["torch.float32", "torch.float32", "torch.bfloat16"]
    assert batches[0]["images"][1] == []
    assert len({batch["seed"] for batch in batches}) == 3
    for found, told in others:
        assert found == first
        assert told.startswith("FeedError: the first rank of this group could not load a batch")


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    body = """
from torch.distributed.device_mesh import init_device_mesh
from tests.contract.tiny_llava import tiny_llava
from omniloom.errors import ConfigError
from omniloom.parallel.plan import ParallelConfig, lay_out
from omniloom.parallel.tensor import cut_tensors, llava_of
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tensor",))
told = []
def one(action):
    try:
        action()
    except ConfigError as error:
        told.append(str(error))
one(lambda: lay_out(ParallelConfig(tensor=2), device="cpu"))
one(lambda: ParallelConfig(tensor=2, compile=True))
one(lambda: ParallelConfig(tensor=0))
one(lambda: cut_tensors(tiny_llava(), mesh))
one(lambda: llava_of(tiny_llava().language_model))
print(json.dumps(told))
"""
    for told in run_ranks(3, body, tmp_path):
        assert [message.partition(". ")[0].rstrip(".") for message in told] == [
            "parallel: tensor 2 and replicas 1 do not divide 3 ranks",
            "parallel: compile together with tensor 2 found",
            "parallel.tensor: 0 found; at least 1 expected",
            "parallel.tensor: 3 ranks do not divide 4 heads of the language model",
            "parallel: Decoder found; a LLaVA with our decoder expected",
        ]
