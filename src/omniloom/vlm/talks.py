"""What each kind of sample is asked and answered: from a sample to a conversation and what it talks about.

The rules are those of Megatron-LM's multimodal task encoder. Its switches are read from the same places: the
subflavors ``SplitByLine``, ``is_llava_training``, ``VQASFT``, ``has_video`` and ``augmentation``, and the words
``pdfa``, ``multi``, ``llava`` and ``docvqa`` in a sample's key. The subflavor ``task`` (``pdf``, ``ocr-multi``,
``grounding``, ``pretrain``, ``docvqa``) says the same without having to rename samples.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omniloom.data.convert.choice_text import LETTERS, choice_text
from omniloom.data.kinds import (
    CaptioningSample,
    CrudeSample,
    InterleavedSample,
    MultiChoiceVQASample,
    OCRSample,
    SimilarityInterleavedSample,
    TextSample,
    VidQASample,
    VQAOCRSample,
    VQASample,
)
from omniloom.errors import SampleError
from omniloom.vlm.conversation import (
    MEGATRON_PLACEHOLDERS,
    ImagePart,
    Part,
    PlaceholderPolicy,
    TokenPart,
    Turn,
    place_images,
    read_conversation,
    split_places,
)
from omniloom.vlm.grids import Grid
from omniloom.vlm.prompts import PromptPools
from omniloom.vlm.samples import ConversationSample, OfflineTargetAspectRatioSample, cook_conversation


@dataclass(frozen=True)
class Talk:
    """A conversation and what it talks about.

    Attributes:
        turns: the conversation; its image parts name `images`.
        images: images, not decoded; a single video counts as one.
        video: whether the one image is a video.
        grids: grid of tiles of each image, where it was chosen beforehand.
        free: a running text in place of a conversation: one turn, all of whose text is learned, without a template.
    """

    turns: tuple[Turn, ...]
    images: tuple[Any, ...] = ()
    video: bool = False
    grids: tuple[Grid | None, ...] | None = None
    free: bool = False


@dataclass(frozen=True, kw_only=True)
class TalkRules:
    """How conversations are made of samples.

    Attributes:
        prompts: pools that questions are drawn from.
        system: what the system says before questions and instructions; ``None``: what the chat template says of its
            own accord. Captions have neither.
        placeholders: what becomes of placeholders that do not match the images.
    """

    prompts: PromptPools = field(default_factory=PromptPools.standard)
    system: str | None = None
    placeholders: PlaceholderPolicy = field(default_factory=PlaceholderPolicy)

    def talk(self, sample: Any) -> Talk:
        """The conversation of a sample.

        Raises:
            SampleError: ``unknown-sample-type``, or what is wrong with the sample.
        """
        if isinstance(sample, CrudeSample):
            sample = cook_conversation(sample)
        for kind, make in _TALKS.items():
            if isinstance(sample, kind):
                return make(self, sample)
        known = ", ".join(kind.__name__ for kind in _TALKS)
        raise SampleError(
            f"a {type(sample).__name__} is not known to this encoder; it knows {known}", reason="unknown-sample-type"
        )

    def opened(self, question: Sequence[Part], answer: Sequence[Part], *, system: bool = True) -> tuple[Turn, ...]:
        """One question and its answer, after what the system says."""
        turns = (Turn("user", tuple(question)), Turn("assistant", tuple(answer)))
        return (Turn("system", (self.system,)), *turns) if system and self.system is not None else turns


def _captioning(rules: TalkRules, sample: CaptioningSample) -> Talk:
    question = (ImagePart(0), "\n" + rules.prompts.draw("CaptioningPretraining", "raw") + "\n")
    # Data sets with several captions an image give them all, and each time one of them is learned.
    caption = sample.caption if isinstance(sample.caption, str) else random.choice(sample.caption)
    return Talk(rules.opened(question, [_one_text(sample, caption)], system=False), (sample.image,))


def _question(rules: TalkRules, sample: VQASample | VQAOCRSample) -> Talk:
    flavors = sample.__subflavors__ or {}
    if _task(sample) == "pretrain" or "llava" in sample.__key__ or flavors.get("is_llava_training"):
        answer = _answer(sample.answers, None)
        return Talk(rules.opened((ImagePart(0), "\n"), [answer], system=False), (sample.image,))
    if "docvqa" in sample.__key__ or _task(sample) == "docvqa":
        asked = rules.prompts.draw("VQASFT", "docvqa", sample.context)
    elif flavors.get("VQASFT"):
        asked = rules.prompts.draw("VQASFT", "raw", sample.context)
    else:
        asked = sample.context
    return _asked(rules, asked, _answer(sample.answers, sample.answer_weights), sample.image)


def _choice(rules: TalkRules, sample: MultiChoiceVQASample) -> Talk:
    choices = sample.choices or []
    if not 0 <= sample.correct_choice_idx < len(choices) <= len(LETTERS):
        raise SampleError(
            f"choice {sample.correct_choice_idx} of {len(choices)} is said to be right; one of 0 to "
            f"{len(choices) - 1}, and at most {len(LETTERS)} choices, expected",
            reason="bad-choice",
        )
    return _asked(rules, choice_text(sample.context, choices), LETTERS[sample.correct_choice_idx], sample.image)


def _asked(rules: TalkRules, asked: str, answer: str, image: Any) -> Talk:
    parts = split_places(asked)
    if not any(isinstance(part, ImagePart) for part in parts):
        parts = (ImagePart(0), "\n", *parts)
    turns = place_images(rules.opened(parts, [answer]), images=1, policy=rules.placeholders)
    return Talk(turns, (image,))


def _document(rules: TalkRules, sample: OCRSample) -> Talk:
    task = _task(sample)
    if task == "pdf" or "pdfa" in sample.__key__:
        prompt = rules.prompts.draw("DocPretraining", "raw")
        answer: Sequence[Part] = [_one_text(sample, sample.text.replace("<image>", ""))]
    elif task == "ocr-multi" or "multi" in sample.__key__:
        prompt = rules.prompts.draw("DocPretraining", "ocr_multi")
        answer = [part for text, box in _regions(sample) for part in (*_ref(text), *_box(box))]
    else:
        return _grounding(rules, sample)
    return Talk(rules.opened((ImagePart(0), "\n" + prompt), answer), (sample.image,))


def _grounding(rules: TalkRules, sample: OCRSample) -> Talk:
    """Either the text is given and its place is asked, or the place is given and the text is asked."""
    text, box = random.choice(_regions(sample))
    by_text = random.random() < 0.5
    name = "referring_grounding" if by_text else "grounded_ocr"
    prompt = rules.prompts.draw("DocPretraining", name)
    given, wanted = (_ref(text), _box(box)) if by_text else (_box(box), _ref(text))
    before, found, after = prompt.partition("{}")
    if not found:
        raise SampleError(f"prompt {prompt!r} of DocPretraining.{name} has no {{}} for the region", reason="bad-prompt")
    return Talk(rules.opened((ImagePart(0), "\n" + before, *given, after), wanted), (sample.image,))


def _regions(sample: OCRSample) -> list[tuple[str, list[int]]]:
    """Texts and their boxes: words, or else lines, or else blocks, or the whole text with one box."""
    for texts, boxes in (
        (sample.words_text, sample.words_boxes),
        (sample.lines_text, sample.lines_boxes),
        (sample.block_text, sample.block_boxes),
    ):
        if boxes is None:
            continue
        rows = boxes.tolist() if hasattr(boxes, "tolist") else list(boxes)
        rows = rows if rows and isinstance(rows[0], list | tuple) else [rows]
        named = list(texts) if texts else [sample.text] * (len(rows) == 1)
        if len(named) != len(rows) or not rows:
            raise SampleError(f"{len(named)} texts and {len(rows)} boxes", reason="bad-boxes")
        return [(text, [int(number) for number in row]) for text, row in zip(named, rows, strict=True)]
    raise SampleError("no boxes of words, lines or blocks to ask for", reason="bad-boxes")


def _ref(text: str) -> list[Part]:
    return [TokenPart("<ref>"), text, TokenPart("</ref>")]


def _box(numbers: Sequence[int]) -> list[Part]:
    if len(numbers) not in (4, 8):
        raise SampleError(f"a box of {len(numbers)} numbers; 4, or 8 of a quadrangle, expected", reason="bad-boxes")
    name = "box" if len(numbers) == 4 else "quad"
    points = ",".join(f"({x},{y})" for x, y in zip(numbers[::2], numbers[1::2], strict=True))
    return [TokenPart(f"<{name}>"), points, TokenPart(f"</{name}>")]


def _interleaved(rules: TalkRules, sample: SimilarityInterleavedSample) -> Talk:
    """Turns under ``texts``. Megatron keeps frames of a video under ``images.frames``."""
    flavors = sample.__subflavors__ or {}
    if flavors.get("has_video"):
        return _video_talk(rules, _turns_of(sample.texts), getattr(sample.images, "frames", sample.images))
    return _image_talk(rules, _turns_of(sample.texts), sample.images or [], None)


def _offline(rules: TalkRules, sample: OfflineTargetAspectRatioSample) -> Talk:
    grids = [tuple(grid) for grid in sample.target_aspect_ratio]
    return _image_talk(rules, _turns_of(sample.texts), sample.images, grids)


def _conversation(rules: TalkRules, sample: ConversationSample) -> Talk:
    if sample.video is not None:
        return _video_talk(rules, sample.turns, sample.video)
    if sample.complete:
        turns = read_conversation(sample.turns, images=len(sample.images), policy=rules.placeholders)
        return Talk(turns, tuple(sample.images), grids=None if sample.grids is None else tuple(sample.grids))
    return _image_talk(rules, sample.turns, sample.images, sample.grids)


def _image_talk(
    rules: TalkRules, turns: Sequence[Mapping[str, Any]], images: Sequence[Any], grids: Sequence[Any] | None
) -> Talk:
    if grids is not None and len(grids) != len(images):
        raise SampleError(f"{len(grids)} grids for {len(images)} images", reason="bad-grids")
    read = read_conversation(turns, images=len(images), policy=rules.placeholders)
    return Talk(_with_system(rules, read), tuple(images), grids=None if grids is None else tuple(grids))


def _video_talk(rules: TalkRules, turns: Sequence[Mapping[str, Any]], video: Any) -> Talk:
    read = read_conversation(turns, images=1, policy=rules.placeholders)
    return Talk(_with_system(rules, read), (video,), video=True)


def _text(rules: TalkRules, sample: TextSample) -> Talk:
    return Talk((Turn("assistant", (sample.text,)),), free=True)


def _running_text(rules: TalkRules, sample: InterleavedSample) -> Talk:
    """Texts and images as they come; what is no text is an image."""
    images = [part for part in sample.sequence if not isinstance(part, str)]
    numbers = iter(range(len(images)))
    parts = tuple(part if isinstance(part, str) else ImagePart(next(numbers)) for part in sample.sequence)
    return Talk((Turn("assistant", parts),), tuple(images), free=True)


def _with_system(rules: TalkRules, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    if rules.system is None or turns[0].role == "system":
        return turns
    return (Turn("system", (rules.system,)), *turns)


def _turns_of(texts: Sequence[Any]) -> list[Mapping[str, Any]]:
    turns = json.loads(texts) if isinstance(texts, str) else list(texts)
    turns = [json.loads(turn) if isinstance(turn, str) else turn for turn in turns]
    if not all(isinstance(turn, Mapping) for turn in turns):
        raise SampleError('texts hold no turns: mappings {"from": ..., "value": ...} expected', reason="bad-content")
    return turns


def _video_question(rules: TalkRules, sample: VidQASample) -> Talk:
    asked = split_places(sample.context)
    if not any(isinstance(part, ImagePart) for part in asked):
        asked = (ImagePart(0), "\n", *asked)
    turns = rules.opened(asked, [_answer(sample.answers, sample.answer_weights)])
    return Talk(place_images(turns, images=1, policy=rules.placeholders), (sample.video,), video=True)


def _answer(answers: Any, weights: Any) -> str:
    """One of the answers, by weight; all alike where no weights are given."""
    if isinstance(answers, str):
        return answers
    if not answers:
        raise SampleError("the sample has no answer", reason="no-target")
    listed = list(answers)
    if weights is None:
        return str(random.choice(listed))
    numbers = [float(weight) for weight in weights]
    if len(numbers) != len(listed) or not sum(numbers) > 0 or min(numbers) < 0:
        raise SampleError(
            f"answer weights {numbers} for {len(listed)} answers; one each, none negative, not all 0 expected",
            reason="bad-weights",
        )
    return str(random.choices(listed, numbers)[0])


def _one_text(sample: Any, text: str) -> str:
    """The text stripped, or with ``SplitByLine`` one of its lines."""
    if (sample.__subflavors__ or {}).get("SplitByLine"):
        lines = [line for line in text.split("\n") if line.strip()]
        text = random.choice(lines) if lines else ""
    return text.strip()


def _task(sample: Any) -> str | None:
    found = (sample.__subflavors__ or {}).get("task")
    return None if found is None else str(found)


MEGATRON_RULES = TalkRules(system="Answer the questions.", placeholders=MEGATRON_PLACEHOLDERS)
"""The rules of Megatron-LM's multimodal example to the letter."""

_TALKS: dict[type, Callable[[TalkRules, Any], Talk]] = {
    CaptioningSample: _captioning,
    MultiChoiceVQASample: _choice,
    VidQASample: _video_question,
    VQASample: _question,
    VQAOCRSample: _question,
    OCRSample: _document,
    SimilarityInterleavedSample: _interleaved,
    InterleavedSample: _running_text,
    TextSample: _text,
    OfflineTargetAspectRatioSample: _offline,
    ConversationSample: _conversation,
}
