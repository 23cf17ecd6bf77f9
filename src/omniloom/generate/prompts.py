"""From a question and its images to what a model goes on from: ids with places for features, and tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from omniloom.errors import SampleError
from omniloom.generate.decoding import generate
from omniloom.generate.sampling import SamplingConfig
from omniloom.generate.stops import text_before_stop
from omniloom.model.llava import Llava, ShownTiles
from omniloom.vlm.conversation import Turn, place_images
from omniloom.vlm.image_processor import ImageProcessor
from omniloom.vlm.jinja_template import JinjaTemplate
from omniloom.vlm.layouts import TilePlan
from omniloom.vlm.task_encoder import LlavaTaskEncoder
from omniloom.vlm.template import ChatTemplate
from omniloom.vlm.template_table import IMAGE_TAGS
from omniloom.vlm.tokenizer import Tokenizer
from omniloom.vlm.tokens import special_id, tokenize


class IdsOfImage(Protocol):
    """What the place of an image becomes: placeholders of features, and what stands between them."""

    def __call__(self, plan: TilePlan, *, video: bool) -> npt.NDArray[np.int64]:
        """Ids of an image with such tiles."""


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
        text: without the token or text that ended it, and without white space around it.
        ended: whether it came to an end by itself or at a stop text, rather than at the limit.
    """

    text: str
    ended: bool


@dataclass(frozen=True, kw_only=True)
class Prompter:
    """Makes prompts, and texts of answers. `of` makes one whose prompts are those that a model was trained on.

    Attributes:
        tokenizer: gives ids.
        template: the chat template.
        images: what is done to images.
        image_id: the placeholder of an image feature.
        image_tags: forms before and after each image.
        system: what the system says where a prompt does not; ``None``: what the template has of its own accord.
        ids_of_image: what the place of an image becomes, where that is more than a placeholder a feature.
    """

    tokenizer: Tokenizer
    template: ChatTemplate | JinjaTemplate
    images: ImageProcessor
    image_id: int
    image_tags: tuple[str, str] = ("", "")
    system: str | None = None
    ids_of_image: IdsOfImage | None = None

    @classmethod
    def of(cls, encoder: LlavaTaskEncoder) -> Prompter:
        """Prompts as a task encoder makes them: with its tags of images and tiles, and its system text."""
        return cls(
            tokenizer=encoder.tokenizer,
            template=encoder.template,
            images=encoder.images,
            image_id=encoder.settings.image_id,
            image_tags=IMAGE_TAGS[encoder.settings.image_tags],
            system=encoder.settings.rules.system,
            ids_of_image=encoder.ids_of_image,
        )

    def prompt(self, question: str, images: Sequence[Any] = (), *, system: str | None = None) -> Prompt:
        """The prompt of a question.

        Args:
            question: what the user says; images are put before it, with a line break.
            images: as `omniloom.vlm.picture.open_picture` takes them; a list is the frames of a video, which stand at
                one place.
            system: what the system says; ``None``: `system`.

        Raises:
            SampleError: an image cannot be read, or the question has half a character.
            ConfigError: the template has no special token that it needs.
        """
        _check_whole(question)
        turns = [Turn("user", (question,))]
        said = self.system if system is None else system
        if said is not None:
            turns.insert(0, Turn("system", (said,)))
        placed = place_images(tuple(turns), images=len(images))
        pieces = self.template.render_prompt(placed, image_tags=self.image_tags)
        made = tokenize(pieces, self.tokenizer, image_id=self.image_id, after_image=self.template.after_image)
        plans = [TilePlan((len(one), 1)) if isinstance(one, list) else self.images.plan(one) for one in images]
        ids: list[int] = []
        shown = iter(made.images)
        for number in made.ids:
            ids += self._ids_of(plans, images, next(shown)) if number == self.image_id else [number]
        pixels = [
            self.images.frames(one) if isinstance(one, list) else self.images.pixels(one, plan)
            for one, plan in zip(images, plans, strict=True)
        ]
        stacked = torch.from_numpy(np.concatenate(pixels)) if pixels else None
        return Prompt(ids, stacked, "".join(piece.text for piece in pieces))

    def _ids_of(self, plans: Sequence[TilePlan], images: Sequence[Any], image: int) -> list[int]:
        """What the place of an image becomes."""
        if self.ids_of_image is None:
            return [self.image_id] * (plans[image].tiles * self.images.tile_tokens)
        found: list[int] = self.ids_of_image(plans[image], video=isinstance(images[image], list)).tolist()
        return found

    @cached_property
    def stop_tokens(self) -> frozenset[int]:
        """Ids that end an answer."""
        names = self.template.end_tokens
        found = {special_id(self.tokenizer, name) for name in names}
        if self.tokenizer.eos_id is not None:
            found.add(self.tokenizer.eos_id)
        return frozenset(found)

    def text(self, ids: Sequence[int], *, stop: Sequence[str] = ()) -> str:
        """The text of an answer's ids, up to the first token or stop text that ends it."""
        text = self.plain_text(ids)
        before = text_before_stop(text, stop)
        return (text if before is None else before).strip()

    def plain_text(self, ids: Sequence[int]) -> str:
        """The text of ids up to the first that ends an answer, white space and all."""
        stops = self.stop_tokens
        whole = next((place for place, number in enumerate(ids) if number in stops), len(ids))
        return self.tokenizer.decode(ids[:whole])


def _check_whole(question: str) -> None:
    """See that a text can be written as UTF-8, as tokenizers want it: JSON can hold one half of a surrogate pair."""
    try:
        question.encode()
    except UnicodeEncodeError as half:
        raise SampleError(
            f"character {half.start} of its question is {question[half.start]!r}, half of a pair. Mend the text.",
            reason="half-character",
        ) from None


def answer_prompts(
    model: Llava,
    prompter: Prompter,
    prompts: Sequence[Prompt],
    *,
    sampling: SamplingConfig,
    keys: Sequence[str] | None = None,
    on_text: Callable[[int, str], None] | None = None,
) -> list[Answer]:
    """Answers to some prompts, as one batch.

    Args:
        model: in evaluation mode, on its device.
        prompter: that made the prompts.
        prompts: at least one.
        sampling: how words are chosen, and what ends an answer.
        keys: names of the answers, which draws hang on; by default the prompts' numbers.
        on_text: called for each word with the prompt's number and its answer's text so far, white space and all.
    """

    def tell(row: int, ids: Sequence[int]) -> None:
        if on_text is not None:
            on_text(row, prompter.plain_text(ids))

    made = generate(
        model,
        [prompt.ids for prompt in prompts],
        sampling=sampling,
        stop_tokens=prompter.stop_tokens,
        images=_shown_tiles(prompts),
        keys=keys,
        text_of=prompter.plain_text,
        on_words=None if on_text is None else tell,
    )
    return [Answer(prompter.text(one.token_ids, stop=sampling.stop), one.ended) for one in made]


def _shown_tiles(prompts: Sequence[Prompt]) -> ShownTiles | None:
    """The tiles of prompts; those of a prompt that comes several times are there once."""
    firsts: dict[int, int] = {}
    tiles: list[torch.Tensor] = []
    shown: list[int] = []
    for prompt in prompts:
        if prompt.tiles is None:
            continue
        if id(prompt.tiles) not in firsts:
            firsts[id(prompt.tiles)] = sum(map(len, tiles))
            tiles.append(prompt.tiles)
        first = firsts[id(prompt.tiles)]
        shown += range(first, first + len(prompt.tiles))
    return ShownTiles(torch.cat(tiles), torch.tensor(shown)) if tiles else None
