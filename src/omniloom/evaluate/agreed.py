"""Several answers are drawn for each prompt, and the one that is most like all of them is given.

A model that is not sure says the likeliest thing where it is likely for many images, such as that there is a man. What
many of its draws have in common is what it is sure of. For short answers it is the vote of a majority (Wang et al.
2022, Self-Consistency); for captions the choice of minimum Bayes risk (Kumar and Byrne 2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omniloom.errors import ConfigError
from omniloom.evaluate.scores.captions import ALL_ALIKE, Rarity, agreement
from omniloom.evaluate.scores.treebank import caption_tokens
from omniloom.generate.prompts import Answer, Prompt, Prompter, answer_prompts
from omniloom.generate.sampling import SamplingConfig
from omniloom.model.llava import Llava


def agreed_answers(
    model: Llava,
    prompter: Prompter,
    prompts: Sequence[Prompt],
    *,
    sampling: SamplingConfig,
    keys: Sequence[str],
    samples: int,
    rarity: Rarity = ALL_ALIKE,
) -> list[Answer]:
    """Answers to some prompts, as one batch.

    Args:
        model: in evaluation mode, on its device.
        prompter: that made the prompts.
        prompts: at least one.
        sampling: how words are drawn.
        keys: names of the answers, which draws hang on.
        samples: answers that are drawn for each; 1: that one is given.
        rarity: how much words and their neighbours weigh in what is alike.
    """
    if samples == 1:
        return answer_prompts(model, prompter, prompts, sampling=sampling, keys=keys)
    drawn = answer_prompts(
        model,
        prompter,
        [prompt for prompt in prompts for _ in range(samples)],
        sampling=sampling,
        keys=[f"{key}/{number}" for key in keys for number in range(samples)],
    )
    return [most_alike(drawn[start : start + samples], rarity=rarity) for start in range(0, len(drawn), samples)]


def rarity_in(path: Path) -> Rarity:
    """How rare words and their neighbours are in the lines of a text file.

    Raises:
        ConfigError: it has no text.
    """
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise ConfigError(f"{path}: holds no text; one a line expected.")
    return Rarity.in_texts(caption_tokens(lines))


def most_alike(answers: Sequence[Answer], *, rarity: Rarity = ALL_ALIKE) -> Answer:
    """The answer that is most like all of them; the first of several such."""
    worth = agreement(caption_tokens([answer.text for answer in answers]), rarity=rarity)
    return answers[max(range(len(answers)), key=worth.__getitem__)]
