"""How a training step is timed: processor time of the whole process on one thread, so that neighbours cost nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import torch
from meter import report
from train_step_problem import useful_tokens


def train(loss_of_batch: Callable[[], torch.Tensor], parameters: Iterable[torch.nn.Parameter], *, steps: int) -> None:
    """Forward, backward and AdamW; the best step counts, the first loss tells that both sides do the same."""
    optimizer = torch.optim.AdamW([one for one in parameters if one.requires_grad], lr=1e-4)
    seconds, losses = [], []
    for _ in range(steps + 1):
        started = time.process_time()
        loss = loss_of_batch()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.process_time() - started)
        losses.append(loss.item())
    best = min(seconds[1:])
    report(tokens_per_second=useful_tokens() / best, step_seconds=best, first_loss=losses[0], last_loss=losses[-1])
