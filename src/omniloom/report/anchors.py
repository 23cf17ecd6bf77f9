"""Published numbers that a score may be held against, and what has to be equal before it may. One table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Who published numbers of a model.

    Attributes:
        model: name for people.
        source: where its numbers stand.
        cost: hardware and time of its training.
        recipes: folder of the recipes by which it would be trained here; nothing: there are none.
    """

    model: str
    source: str
    cost: str
    recipes: str = ""


@dataclass(frozen=True)
class Anchor:
    """One published number.

    Attributes:
        task: name of the benchmark, as `omniloom evaluate` has it.
        shown: name for people, with the part that was scored.
        by: whose score it is.
        score: as published, in the unit of the benchmark's first metric.
        equal: what is the same here.
        differs: what keeps a score of this page from being held against it.
        about: whether the publication rounds it, as in *about 94*.
        items: a score of just so many may stand beside it: nothing else has to be known first; ``None``: none may.
    """

    task: str
    shown: str
    by: Publication
    score: float
    equal: str
    differs: str
    about: bool = False
    items: int | None = None


_LLAVA_7B = Publication(
    model="LLaVA-1.5 7B",
    source="arXiv 2310.03744",
    cost="8 A100: about 3.5 h of pretraining and 10 h of fine-tuning, by its authors",
    recipes="recipes/llava-1.5",
)
_LLAVA_13B = Publication(
    model="LLaVA-1.5 13B",
    source="the benchmark's table of results",
    cost="8 A100: about 5.5 h of pretraining and 20 h of fine-tuning, by its authors",
    recipes="recipes/llava-1.5",
)
_MEGATRON_COST = "64 A100: about a day of pretraining and 11 h of fine-tuning, by its authors"
_PRETRAINED, _FINE_TUNED = (
    Publication(
        model=f"Mistral-7B with CLIP-L/14 at 336, {stage}",
        source="README of Megatron-LM's multimodal example",
        cost=_MEGATRON_COST,
        recipes="recipes/mistral-7b-clip",
    )
    for stage in ("pretrained only", "fine-tuned")
)
_SMALL_CNN = Publication(
    model="CNN of its author",
    source="github.com/vzhou842/easy-VQA-keras",
    cost="a laptop: eight epochs of two convolutions and a bag of words",
)

ANCHORS = (
    Anchor(
        "vqav2", "VQAv2, test-dev", _LLAVA_7B, 78.5,
        "the rule, with variant published",
        "its answers are secret and scored by a server; a score on the validation part is another number",
    ),
    Anchor(
        "textvqa", "TextVQA, validation, 5,000 questions", _LLAVA_7B, 58.2,
        "questions and rule, with variant published",
        "its prompts hold the words that an OCR program found in the image; without them scores are lower",
    ),
    Anchor(
        "mmmu", "MMMU, validation, 900 questions", _LLAVA_13B, 36.4,
        "questions and rule, with variant published, which draws a letter where an answer has none",
        "variant no-guess draws none and is lower; the answers published later score 36.7 (330 of 900)",
    ),
    Anchor(
        "pope", "POPE, mean of its three parts", _LLAVA_7B, 85.9,
        "the rule: F1 of yes, the mean of the three parts",
        "F1 of all questions together, which is the first score here, is another number; so is that of one part",
    ),
    Anchor(
        "scienceqa", "ScienceQA, test, questions with an image", _LLAVA_7B, 66.8,
        "the rule",
        "only the 2,017 test questions that have an image count; with the others it is another number",
    ),
    Anchor(
        "coco-captions", "COCO captions, CIDEr", _PRETRAINED, 94,
        "images and references, with its split; the rule, with variant megatron",
        "captions of 12 tokens at most; variant published keeps case and the last period",
        about=True,
    ),
    Anchor(
        "mmmu", "MMMU, validation", _FINE_TUNED, 38,
        "questions; the rule, with variant megatron",
        "the other variants treat answers without a letter differently",
        about=True,
    ),
    Anchor(
        "easy-vqa", "easy-VQA, test, 9,673 questions", _SMALL_CNN, 93.8,
        "questions and rule",
        "scores on a part of the questions",
        items=9_673,
    ),
)  # fmt: skip
"""In the order in which a page has them."""
