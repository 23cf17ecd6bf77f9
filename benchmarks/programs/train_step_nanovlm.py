"""A training step through nanoVLM: padded, with its own loss."""

import torch
from meter import arguments
from train_step_clock import train
from train_step_nano_problem import nano_model
from train_step_problem import LENGTH, images, samples

options = arguments("stage", "steps")
theirs = nano_model()
if options.stage == 1:
    theirs.requires_grad_(False)
    theirs.MP.requires_grad_(True)

batch = samples()
input_ids = torch.tensor([[*sample.ids, *[0] * (LENGTH - len(sample.ids))] for sample in batch])
mask = torch.tensor([[1] * len(sample.ids) + [0] * (LENGTH - len(sample.ids)) for sample in batch])
targets = torch.tensor([[*sample.labels, *[-100] * (LENGTH - len(sample.labels))] for sample in batch])
pixels = images()


def loss_of_batch() -> torch.Tensor:
    _, loss = theirs(input_ids, pixels, attention_mask=mask, targets=targets)
    return loss


train(loss_of_batch, theirs.parameters(), steps=options.steps)
