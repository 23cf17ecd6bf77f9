"""Greedy answers through transformers: a left-padded batch, or (``one``, ``shared-one``, ``alone``) one by one."""

import torch
from generate_clock import measure
from generate_problem import images, model, prompts
from meter import arguments

options = arguments("mode", "tokens")
theirs = model()
theirs.generation_config.eos_token_id = None
questions, pixels = prompts(), images(options.mode)


def answer_batch(rows: list[int]) -> list[list[int]]:
    longest = max(len(questions[row]) for row in rows)
    missing = [longest - len(questions[row]) for row in rows]
    input_ids = torch.tensor([[0] * less + questions[row] for row, less in zip(rows, missing, strict=True)])
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
    rows = list(range(len(questions)))
    if options.mode in ("one", "shared-one", "alone"):
        return [ids for row in rows for ids in answer_batch([row])]
    return answer_batch(rows)


measure(answer)
