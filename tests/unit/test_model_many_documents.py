"""Attention on the CPU: documents of a length share a call, and half precision is attended in float32."""

from __future__ import annotations

import torch

from omniloom.model.attention import attend_each_document
from omniloom.model.documents import Documents


def test_many_documents_of_some_lengths_are_each_alone() -> None:
    """Documents of a length share a call, wherever they lie; values and gradients are those of one at a time."""
    draw = torch.Generator().manual_seed(5)
    lengths = [3, 7, 3, 1, 7, 7, 2]
    rows = [torch.randn(sum(lengths), heads, 8, generator=draw, requires_grad=True) for heads in (4, 2, 2)]
    together = attend_each_document(*rows, Documents.of_lengths(lengths), window=None)
    alone = torch.cat(
        [
            attend_each_document(
                *(each[start:stop] for each in rows), Documents.of_lengths([stop - start]), window=None
            )
            for start, stop in Documents.of_lengths(lengths).spans()
        ]
    )
    assert torch.allclose(together, alone, atol=1e-6)
    towards = torch.randn(together.shape, generator=draw)
    gradients = torch.autograd.grad((together * towards).sum(), rows)
    for ours, theirs in zip(gradients, torch.autograd.grad((alone * towards).sum(), rows), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_half_precision_on_the_cpu_attends_in_float32() -> None:
    draw = torch.Generator().manual_seed(6)
    rows = [torch.randn(9, 2, 8, generator=draw) for _ in range(3)]
    documents = Documents.of_lengths([4, 5])
    with torch.autocast("cpu", torch.bfloat16):
        gathered = attend_each_document(*(each.bfloat16() for each in rows), documents, window=None)
    exact = attend_each_document(*(each.bfloat16().float() for each in rows), documents, window=None)
    assert gathered.dtype == torch.bfloat16
    assert torch.equal(gathered, exact.bfloat16())
