"""From a question and its images to what a model goes on from: ids with places for features, and tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from omniloom.generate.greedy import generate_greedily
from omniloom.model.llava import Llava
from omniloom.vlm.conversation import Turn, place_images
from omniloom.vlm.image_processor import ImageProcessor
from omniloom.vlm.jinja_template import JinjaTemplate
from omniloom.vlm.template import ChatTemplate
from omniloom.vlm.tokenizer import Tokenizer
from omniloom.vlm.tokens import special_id, tokenize


class Prompt(NamedTuple):
    """What a model goes on from.

    Attributes:
        ids: token ids, a placeholder for each image feature.
        tiles: float32 (tiles, 3, height, width) of its images; ``None`` without any.
        text: the prompt for people.
    """

    ids: list[int]
    tiles: torch.Tensor | None
    text: str


class Answer(NamedTuple):
    """What a model said.

    Attributes:
        text: without special tokens, and without white space around it.
        ended: whether it came to an end by itself, rather than at the limit.
    """

    text: str
    ended: bool


@dataclass(frozen=True, kw_only=True)
class Prompter:
    """Makes prompts, and texts of answers.

    Attributes:
        tokenizer: gives ids.
        template: the chat template.
        images: what is done to images.
        image_id: the placeholder of an image feature.
    """

    tokenizer: Tokenizer
    template: ChatTemplate | JinjaTemplate
    images: ImageProcessor
    image_id: int

    def prompt(self, question: str, images: Sequence[Any] = (), *, system: str | None = None) -> Prompt:
        """The prompt of a question.

        Args:
            question: what the user says; images are put before it, with a line break.
            images: as `omniloom.vlm.picture.open_picture` takes them.
            system: what the system says.

        Raises:
            SampleError: an image cannot be read.
            ConfigError: the template has no special token that it needs.
        """
        turns = [Turn("user", (question,))]
        if system is not None:
            turns.insert(0, Turn("system", (system,)))
        pieces = self.template.render_prompt(place_images(tuple(turns), images=len(images)))
        made = tokenize(pieces, self.tokenizer, image_id=self.image_id, after_image=self.template.after_image)
        plans = [self.images.plan(image) for image in images]
        ids: list[int] = []
        shown = iter(made.images)
        for number in made.ids:
            tiles = plans[next(shown)].tiles if number == self.image_id else 0
            ids += [self.image_id] * (tiles * self.images.tile_tokens) if tiles else [number]
        pixels = [self.images.pixels(image, plan) for image, plan in zip(images, plans, strict=True)]
        stacked = torch.from_numpy(np.concatenate(pixels)) if pixels else None
        return Prompt(ids, stacked, "".join(piece.text for piece in pieces))

    @property
    def stop_tokens(self) -> frozenset[int]:
        """Ids that end an answer."""
        names = self.template.end_tokens
        found = {special_id(self.tokenizer, name) for name in names}
        if self.tokenizer.eos_id is not None:
            found.add(self.tokenizer.eos_id)
        return frozenset(found)

    def text(self, ids: Sequence[int]) -> str:
        """The text of an answer's ids, up to the first that ends it."""
        stops = self.stop_tokens
        kept = []
        for number in ids:
            if number in stops:
                break
            kept.append(number)
        return self.tokenizer.decode(kept).strip()


def answer_prompts(model: Llava, prompter: Prompter, prompts: Sequence[Prompt], *, max_new_tokens: int) -> list[Answer]:
    """The likeliest answers to some prompts, as one batch.

    Args:
        model: in evaluation mode, on its device.
        prompter: that made the prompts.
        prompts: at least one.
        max_new_tokens: of each answer.
    """
    device = next(model.parameters()).device
    tiles = [prompt.tiles for prompt in prompts if prompt.tiles is not None]
    made = generate_greedily(
        model,
        [prompt.ids for prompt in prompts],
        max_new_tokens=max_new_tokens,
        stop_tokens=prompter.stop_tokens,
        images=torch.cat(tiles).to(device) if tiles else None,
    )
    return [Answer(prompter.text(one.token_ids), one.ended) for one in made]
