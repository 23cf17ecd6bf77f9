"""Greedy answers through omniloom: prompts packed, one batch."""

from generate_clock import measure
from meter import arguments
from train_step_problem import images, model, samples

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
prompts = [sample.ids for sample in samples()]
pixels = images()
sampling = SamplingConfig(max_new_tokens=options.tokens)


def answer() -> list[list[int]]:
    return [list(one.token_ids) for one in generate(ours, prompts, sampling=sampling, images=pixels)]


measure(answer)
