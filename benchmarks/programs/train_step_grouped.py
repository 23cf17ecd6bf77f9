"""A training step through transformers' LLaVA at its best: samples of like length together, labelled rows scored."""

import torch
from meter import arguments
from torch.nn import functional
from train_step_clock import train
from train_step_problem import ROWS, images, model, samples

GROUP = 2
options = arguments("stage", "steps")
theirs = model()
if options.stage == 1:
    theirs.requires_grad_(False)
    theirs.model.multi_modal_projector.requires_grad_(True)

pixels = images()
by_length = sorted(enumerate(samples()), key=lambda each: len(each[1].ids))
groups = []
for start in range(0, ROWS, GROUP):
    part = by_length[start : start + GROUP]
    longest = max(len(sample.ids) for _, sample in part)
    ids = torch.tensor([[*sample.ids, *[0] * (longest - len(sample.ids))] for _, sample in part])
    mask = torch.tensor([[1] * len(sample.ids) + [0] * (longest - len(sample.ids)) for _, sample in part])
    labels = torch.tensor([[*sample.labels, *[-100] * (longest - len(sample.labels))] for _, sample in part])
    groups.append((ids, mask, labels, pixels[[number for number, _ in part]]))
learned = sum(int((labels != -100).sum()) for _, _, labels, _ in groups)


def loss_of_batch() -> torch.Tensor:
    total = torch.zeros(())
    for ids, mask, labels, tiles in groups:
        stream = theirs.model(input_ids=ids, attention_mask=mask, pixel_values=tiles, use_cache=False).last_hidden_state
        rows = labels != -100
        total = total + functional.cross_entropy(theirs.lm_head(stream[rows]), labels[rows], reduction="sum")
    return total / learned


train(loss_of_batch, theirs.parameters(), steps=options.steps)
