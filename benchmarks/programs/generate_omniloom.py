"""Greedy answers through omniloom: all questions as one batch, or (``--mode alone``) one by one."""

import torch
from generate_clock import measure
from generate_problem import images, model, prompts
from meter import arguments

from omniloom.generate.decoding import generate
from omniloom.generate.sampling import SamplingConfig
from omniloom.model.build import build
from omniloom.model.families import fitting_table, read_config, tables_of

options = arguments("mode", "tokens")
theirs = model()
config = read_config(theirs.config.to_dict())
weights = theirs.state_dict()
table = fitting_table(tables_of(config), weights)
ours = build(config)
ours.load_state_dict(
    {name: place.row.change.undo(weights[place.row.theirs])[place.part] for name, place in table.by_ours.items()}
)
del theirs, weights
ours.eval()
questions, pixels = prompts(), images(options.mode)
sampling = SamplingConfig(max_new_tokens=options.tokens)


def answer_batch(several: list[list[int]], tiles: torch.Tensor) -> list[list[int]]:
    return [list(one.token_ids) for one in generate(ours, several, sampling=sampling, images=tiles)]


def answer() -> list[list[int]]:
    if options.mode == "alone":
        return [ids for row, one in enumerate(questions) for ids in answer_batch([one], pixels[row : row + 1])]
    return answer_batch(questions, pixels)


measure(answer)
