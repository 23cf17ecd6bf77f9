"""The chunked loss is torch's cross entropy, with its gradients, and takes less memory."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from omniloom.errors import InputError
from omniloom.model.loss import TokenGroups, chunked_cross_entropy, sum_of_losses


def problem(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    stream = torch.randn(53, 16, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(31, 16, generator=generator).to(dtype).requires_grad_()
    labels = torch.randint(0, 31, (53,), generator=generator)
    labels[torch.rand(53, generator=generator) < 0.6] = -100
    return stream, weight, labels, torch.rand(53, generator=generator)


@pytest.mark.parametrize("chunk_tokens", [1, 7, 64])
@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_gradients(chunk_tokens: int, weighted: bool) -> None:
    stream, weight, labels, token_weights = problem()
    weights = token_weights if weighted else None
    numbers = torch.arange(53) // 4 % 3
    loss = sum_of_losses(
        stream, weight, labels, token_weights=weights, token_groups=TokenGroups(numbers, 4), chunk_tokens=chunk_tokens
    )
    assert loss.tokens == int((labels != -100).sum())
    ours = torch.autograd.grad(loss.total * 0.37, (stream, weight))
    terms = functional.cross_entropy(stream @ weight.T, labels, reduction="none")
    expected = (terms * token_weights).sum() if weighted else terms.sum()
    assert torch.allclose(loss.total, expected, rtol=1e-6)
    of_groups = [(terms * (token_weights if weighted else 1))[numbers == group].sum().detach() for group in range(4)]
    assert loss.by_group is not None
    assert not loss.by_group.requires_grad
    torch.testing.assert_close(loss.by_group, torch.stack(of_groups))
    for gradient, reference in zip(ours, torch.autograd.grad(expected * 0.37, (stream, weight)), strict=True):
        assert torch.allclose(gradient, reference, atol=1e-5)


def test_numerical_gradients_in_double_precision() -> None:
    stream, weight, labels, _ = problem(torch.float64)
    learned = (labels != -100).nonzero()[:6, 0]

    def loss(rows: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        return chunked_cross_entropy(rows, head, labels[learned], chunk_tokens=4)[0]

    # The loss is summed in float32, so that finite differences are good to about 1e-3 only.
    assert torch.autograd.gradcheck(loss, (stream[learned].detach().requires_grad_(), weight), eps=1e-2, atol=2e-3)


@pytest.mark.parametrize("trained", ["stream", "head", "neither"])
def test_only_gradients_that_are_wanted(trained: str) -> None:
    stream, weight, labels, _ = problem()
    stream.requires_grad_(trained == "stream")
    weight.requires_grad_(trained == "head")
    loss = sum_of_losses(stream, weight, labels).total
    assert loss.requires_grad is (trained != "neither")
    if loss.requires_grad:
        loss.backward()
    assert (stream.grad is not None) is (trained == "stream")
    assert (weight.grad is not None) is (trained == "head")


def test_half_precision_is_summed_in_float32() -> None:
    stream, weight, labels, _ = problem(torch.bfloat16)
    loss = sum_of_losses(stream, weight, labels, chunk_tokens=8)
    loss.total.backward()
    assert loss.total.dtype == torch.float32
    assert weight.grad is not None
    assert weight.grad.dtype == torch.bfloat16
    exact_stream, exact_weight, _, _ = problem()
    expected = sum_of_losses(exact_stream, exact_weight, labels)
    expected.total.backward()
    assert torch.allclose(loss.total, expected.total, rtol=2e-2)
    assert exact_weight.grad is not None
    assert torch.allclose(weight.grad.float(), exact_weight.grad, atol=0.1)


def test_a_batch_without_labels_is_zero_and_has_zero_gradients() -> None:
    stream, weight, labels, _ = problem()
    loss = sum_of_losses(stream, weight, torch.full_like(labels, -100))
    loss.total.backward()
    assert (loss.total.item(), loss.tokens) == (0.0, 0)
    assert stream.grad is not None
    assert weight.grad is not None
    assert not stream.grad.any()
    assert not weight.grad.any()


def test_labels_of_another_number() -> None:
    stream, weight, labels, _ = problem()
    with pytest.raises(InputError, match="52 labels for 53 tokens"):
        sum_of_losses(stream, weight, labels[1:])


def test_no_tensor_is_larger_than_a_chunk_of_logits() -> None:
    """Full logits of this problem are 40 times a chunk; nothing of their size is ever made."""
    stream = torch.randn(640, 8, requires_grad=True)
    weight = torch.randn(512, 8, requires_grad=True)
    sizes: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            sizes.extend(one.numel() for one in (result if isinstance(result, tuple) else (result,)) if one is not None)
            return result

    with Watch():
        sum_of_losses(stream, weight, torch.randint(0, 512, (640,)), chunk_tokens=16).total.backward()
    assert max(sizes) <= 16 * 512
