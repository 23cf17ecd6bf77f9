"""Published numbers that a score may be held against, and what has to be equal before it may. One table."""

from __future__ import annotations

from dataclasses import dataclass

_LLAVA = "arXiv 2310.03744"
_LLAVA_COST = "8 A100: about 3.5 h of pretraining and 10 h of fine-tuning, by its authors"
_LLAVA_13B_COST = "8 A100: about 5.5 h of pretraining and 20 h of fine-tuning, by its authors"
_MEGATRON = "README of Megatron-LM's multimodal example"
_MEGATRON_COST = "64 A100: about a day of pretraining and 11 h of fine-tuning, by its authors"


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """One published number.

    Attributes:
        task: name of the benchmark, as `omniloom evaluate` has it.
        shown: name for people, with the part that was scored.
        model: whose score it is.
        score: as published, in the unit of the benchmark's first metric.
        about: whether the publication rounds it, as in *about 94*.
        source: where it stands.
        cost: hardware and time of that training.
        equal: what is the same here.
        differs: what keeps a score of this page from being held against it.
        side_by_side: whether nothing does that a reader has to know first, so that it may stand beside a page's scores.
    """

    task: str
    shown: str
    model: str
    score: float
    about: bool = False
    source: str
    cost: str
    equal: str
    differs: str
    side_by_side: bool = False


ANCHORS = (
    Anchor(
        task="vqav2",
        shown="VQAv2, test-dev",
        model="LLaVA-1.5 7B",
        score=78.5,
        source=_LLAVA,
        cost=_LLAVA_COST,
        equal="the rule, with variant published",
        differs="its answers are secret and scored by a server; a score on the validation part is another number",
    ),
    Anchor(
        task="textvqa",
        shown="TextVQA, validation, 5,000 questions",
        model="LLaVA-1.5 7B",
        score=58.2,
        source=_LLAVA,
        cost=_LLAVA_COST,
        equal="questions and rule, with variant published",
        differs="its prompts hold the words that an OCR program found in the image; without them scores are lower",
    ),
    Anchor(
        task="mmmu",
        shown="MMMU, validation, 900 questions",
        model="LLaVA-1.5 13B",
        score=36.4,
        source="the benchmark's table of results",
        cost=_LLAVA_13B_COST,
        equal="questions and rule, with variant published, which draws a letter where an answer has none",
        differs="variant no-guess draws none and is lower; the answers published later score 36.7 (330 of 900)",
    ),
    Anchor(
        task="pope",
        shown="POPE, mean of its three parts",
        model="LLaVA-1.5 7B",
        score=85.9,
        source=_LLAVA,
        cost=_LLAVA_COST,
        equal="the rule: F1 of yes",
        differs="it is the mean of the random, popular and adversarial questions; a score of one part is not",
    ),
    Anchor(
        task="scienceqa",
        shown="ScienceQA, test, questions with an image",
        model="LLaVA-1.5 7B",
        score=66.8,
        source=_LLAVA,
        cost=_LLAVA_COST,
        equal="the rule",
        differs="only the 2,017 test questions that have an image count; with the others it is another number",
    ),
    Anchor(
        task="coco-captions",
        shown="COCO captions, CIDEr",
        model="Mistral-7B with CLIP-L/14 at 336, pretrained only",
        score=94,
        about=True,
        source=_MEGATRON,
        cost=_MEGATRON_COST,
        equal="images and references, with its split; the rule, with variant megatron",
        differs="captions of 12 tokens at most; variant published keeps case and the last period",
    ),
    Anchor(
        task="mmmu",
        shown="MMMU, validation",
        model="Mistral-7B with CLIP-L/14 at 336, fine-tuned",
        score=38,
        about=True,
        source=_MEGATRON,
        cost=_MEGATRON_COST,
        equal="questions; the rule, with variant megatron",
        differs="the other variants treat answers without a letter differently",
    ),
    Anchor(
        task="easy-vqa",
        shown="easy-VQA, test, 9,673 questions",
        model="CNN of its author",
        score=93.8,
        source="github.com/vzhou842/easy-VQA-keras",
        cost="a laptop: eight epochs of two convolutions and a bag of words",
        equal="questions and rule",
        differs="scores on a part of the questions",
        side_by_side=True,
    ),
)
