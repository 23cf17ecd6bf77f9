"""A training step through transformers' LLaVA: padded, with its own loss."""

import torch
from meter import arguments
from train_step_clock import train
from train_step_problem import LENGTH, images, model, samples

options = arguments("stage", "steps")
theirs = model()
if options.stage == 1:
    theirs.requires_grad_(False)
    theirs.model.multi_modal_projector.requires_grad_(True)

batch = samples()
input_ids = torch.tensor([[*sample.ids, *[0] * (LENGTH - len(sample.ids))] for sample in batch])
mask = torch.tensor([[1] * len(sample.ids) + [0] * (LENGTH - len(sample.ids)) for sample in batch])
# transformers moves labels itself: the label of a token is that token.
moved = [[-100, *sample.labels[:-1], *[-100] * (LENGTH - len(sample.labels))] for sample in batch]
for row, sample in zip(moved, batch, strict=True):
    row[len(sample.labels)] = sample.labels[-1]
labels, pixels = torch.tensor(moved), images()
input_ids = torch.where(labels == -100, input_ids, labels)  # the last word of a sample is a label only


def loss_of_batch() -> torch.Tensor:
    output = theirs(input_ids=input_ids, attention_mask=mask, pixel_values=pixels, labels=labels, use_cache=False)
    loss: torch.Tensor = output.loss
    return loss


train(loss_of_batch, theirs.parameters(), steps=options.steps)
