"""A training step through omniloom: packed, only labelled rows scored."""

import torch
from meter import arguments
from train_step_clock import train
from train_step_problem import images, model, samples

from omniloom.model.build import build
from omniloom.model.documents import Documents
from omniloom.model.families import fitting_table, read_config, tables_of

options = arguments("stage", "steps")
theirs = model()
config = read_config(theirs.config.to_dict())
weights = theirs.state_dict()
table = fitting_table(tables_of(config), weights)
ours = build(config)
ours.load_state_dict(
    {name: place.row.change.undo(weights[place.row.theirs])[place.part] for name, place in table.by_ours.items()}
)
del theirs, weights
ours.train()
if options.stage == 1:
    ours.requires_grad_(False)
    ours.projector.requires_grad_(True)

batch = samples()
input_ids = torch.tensor([word for sample in batch for word in sample.ids])
labels = torch.tensor([word for sample in batch for word in sample.labels])
documents = Documents.of_lengths(len(sample.ids) for sample in batch)
pixels = images()


def loss_of_batch() -> torch.Tensor:
    loss = ours.loss(input_ids, labels=labels, documents=documents, images=pixels)
    return loss.total / loss.tokens


train(loss_of_batch, ours.parameters(), steps=options.steps)
