"""Greedy answers through transformers: a left-padded batch (``--mode padded``), or one by one (``--mode one``)."""

import torch
from generate_clock import measure
from meter import arguments
from train_step_problem import images, model, samples

options = arguments("mode", "tokens")
theirs = model().eval()
theirs.generation_config.eos_token_id = None
prompts = [sample.ids for sample in samples()]
pixels = images()


def answer_batch(rows: list[int]) -> list[list[int]]:
    longest = max(len(prompts[row]) for row in rows)
    missing = [longest - len(prompts[row]) for row in rows]
    input_ids = torch.tensor([[0] * less + prompts[row] for row, less in zip(rows, missing, strict=True)])
    mask = torch.tensor([[0] * less + [1] * (longest - less) for less in missing])
    with torch.inference_mode():
        made = theirs.generate(
            input_ids=input_ids,
            attention_mask=mask,
            pixel_values=pixels[rows],
            max_new_tokens=options.tokens,
            do_sample=False,
            pad_token_id=0,
        )
    ids: list[list[int]] = made[:, longest:].tolist()
    return ids


def answer() -> list[list[int]]:
    rows = list(range(len(prompts)))
    if options.mode == "padded":
        return answer_batch(rows)
    return [ids for row in rows for ids in answer_batch([row])]


measure(answer)
