"""The likeliest words: the shortest way to `omniloom.generate.decoding.generate`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from omniloom.generate.decoding import Generated, generate
from omniloom.generate.sampling import SamplingConfig
from omniloom.model.decoder import LanguageModel
from omniloom.model.llava import Images, Llava

GreedyAnswer = Generated


def generate_greedily(
    model: Llava | LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_tokens: Collection[int] = (),
    images: Images = None,
) -> list[Generated]:
    """The likeliest word, again and again; arguments and errors are those of `generate`."""
    sampling = SamplingConfig(max_new_tokens=max_new_tokens)
    return generate(model, prompts, sampling=sampling, stop_tokens=stop_tokens, images=images)
