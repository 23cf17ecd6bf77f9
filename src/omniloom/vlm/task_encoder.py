"""`LlavaTaskEncoder`: from samples of every kind to batches of a vision-language model.

Until a pack is chosen, only ids are made: images are measured by their headers. Pixels are decoded afterwards, for the
samples of the pack whose turn has come. A sample that does not fit its images, its template or its length is a counted
`SampleError` before it can meet others in a batch.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from omniloom.data.cook import Cooker
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.pipeline.best_fit import BestFitPacker
from omniloom.data.task import TaskEncoder
from omniloom.errors import ConfigError, SampleError
from omniloom.vlm.encoded import (
    EncodedPack,
    EncodedQuestions,
    EncodedSample,
    Ids,
    LlavaBatch,
    flat_batch,
    megatron_batch,
)
from omniloom.vlm.frames import frame_count, video_frames
from omniloom.vlm.image_processor import ImageProcessor
from omniloom.vlm.jinja_template import JinjaTemplate
from omniloom.vlm.layouts import DynamicTiles, TilePlan
from omniloom.vlm.packing import MegatronPacker
from omniloom.vlm.questions import questions_of
from omniloom.vlm.samples import SampleListSample, cook_conversation
from omniloom.vlm.talks import Talk, TalkRules
from omniloom.vlm.template import ChatTemplate, TurnForm
from omniloom.vlm.template_table import IMAGE_TAGS, chat_template
from omniloom.vlm.tile_tags import tile_tags
from omniloom.vlm.tokenizer import Tokenizer
from omniloom.vlm.tokens import IMAGE_ID, TokenizedConversation, tokenize, truncate

logger = logging.getLogger("omniloom")

SPARE_TOKENS = 4
"""Left free when tiles are chosen within the length of a sample, as Megatron does."""


@dataclass(frozen=True, kw_only=True)
class LlavaSettings:
    """What a `LlavaTaskEncoder` does.

    Attributes:
        max_tokens: length of a sample at most, with the features of images.
        image_id: the placeholder of an image feature; below 0 it cannot be an id of text.
        image_tags: what stands around each image: ``""``, ``nvlm`` or ``internvl``.
        tile_tags: put the name of each tile before its features, as NVLM does.
        video_frames: frames of a video at most.
        pack_tokens: length of a pack at most; ``None``: that of a sample.
        pack_tiles: tiles of a pack at most, for the memory of the vision tower; ``None``: any number.
        packing: ``best-fit``: packs are filled across windows; ``megatron``: its packs of one window.
        form: ``flat``: a `LlavaBatch`; ``megatron``: a dict of its tensors.
        turns: ``together``: a conversation is one document; ``apart``: each of its questions is one, with its answer,
            and they share its images. See `omniloom.vlm.questions`.
        most_questions: of a conversation with turns ``apart``, drawn anew each time; ``None``: as many as fit a pack.
        learn_after_images: whether text right after an image is learned, see `omniloom.vlm.encoded.expand`.
        row_tokens: width of the rows of ``megatron``; ``None``: that of the longest row.
        rules: how conversations are made of samples.
    """

    max_tokens: int
    image_id: int = IMAGE_ID
    image_tags: str = ""
    tile_tags: bool = False
    video_frames: int = 8
    pack_tokens: int | None = None
    pack_tiles: int | None = None
    packing: Literal["best-fit", "megatron"] = "best-fit"
    form: Literal["flat", "megatron"] = "flat"
    turns: Literal["together", "apart"] = "together"
    most_questions: int | None = None
    learn_after_images: bool = True
    row_tokens: int | None = None
    rules: TalkRules = field(default_factory=TalkRules)

    def __post_init__(self) -> None:
        if self.image_tags not in IMAGE_TAGS:
            raise ConfigError(
                f"image_tags={self.image_tags!r} found; one of {', '.join(map(repr, IMAGE_TAGS))} expected"
            )
        if min(self.max_tokens, self.video_frames, self.pack_tokens or 1) < 1:
            raise ConfigError(
                f"max_tokens={self.max_tokens}, video_frames={self.video_frames}, pack_tokens={self.pack_tokens}; "
                "numbers of at least 1 expected"
            )
        if self.pack_tiles is not None and (self.pack_tiles < 1 or self.packing == "megatron"):
            raise ConfigError(f"pack_tiles={self.pack_tiles}: at least 1, and packing='best-fit', expected")
        if self.turns == "apart" and self.form == "megatron":
            raise ConfigError("turns='apart' shares images between documents, which form='megatron' cannot say")
        if self.pack_tokens is not None and self.pack_tokens < self.max_tokens:
            raise ConfigError(
                f"pack_tokens={self.pack_tokens} is less than max_tokens={self.max_tokens}: a sample might fit no pack"
            )


class LlavaTaskEncoder(TaskEncoder[Any, Any, Any, Any]):
    """From samples of every kind to batches of a vision-language model.

    Args:
        tokenizer: gives ids.
        template: the chat template, or its name.
        images: what is done to images.
        settings: everything else.

    Raises:
        ConfigError: the tokenizer lacks a token of the template, or settings do not go together.
    """

    decoder = SampleDecoder(image_decode="rgb8", av_decode="raw", lazy=True)
    cookers = (Cooker(cook_conversation),)

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        template: ChatTemplate | JinjaTemplate | str,
        images: ImageProcessor,
        settings: LlavaSettings,
    ) -> None:
        self.tokenizer = tokenizer
        self.template = chat_template(template) if isinstance(template, str) else template
        self.images = images
        self.settings = settings
        capacity = {"tokens": settings.pack_tokens or settings.max_tokens}
        if settings.pack_tiles is not None:
            capacity["tiles"] = settings.pack_tiles
        self.packer = (BestFitPacker if settings.packing == "best-fit" else MegatronPacker)(capacity)
        if settings.tile_tags and not isinstance(images.layout, DynamicTiles):
            raise ConfigError("tile_tags name the tiles of DynamicTiles; choose that layout, or leave the tags out")
        limit = images.layout.max_tiles if isinstance(images.layout, DynamicTiles) else 1
        self._tags = tile_tags(tokenizer, max_tiles=limit) if settings.tile_tags else None
        begin, end = "" if tokenizer.bos_id is None else "«bos»", "" if tokenizer.eos_id is None else "«eos»"
        self._running_text = ChatTemplate(name="text", begin=begin, user=TurnForm(), assistant=TurnForm(after=end))
        if isinstance(self.template, ChatTemplate):
            self._check_tokens(self.template)
        else:
            for doubt in self.template.doubts():
                logger.warning("%s", doubt)

    def preencode_sample(self, sample: Any) -> EncodedSample | EncodedPack:
        """Ids, labels and tile plans; no pixel is decoded.

        Raises:
            SampleError: what is wrong with the sample, see docs/sft-data.md for the reasons.
        """
        if isinstance(sample, SampleListSample):
            return self._offline_pack(sample)
        talk = self.settings.rules.talk(sample)
        return self._encode(sample, talk) if self.settings.turns == "together" else self._questions(sample, talk)

    def postencode_sample(self, sample: EncodedSample | EncodedPack) -> EncodedSample | EncodedPack:
        """The sample with its pixels. Raises SampleError where an image cannot be decoded."""
        if isinstance(sample, EncodedQuestions):
            return EncodedQuestions(**_base(sample), samples=self._with_shared_pixels(sample.samples))
        if isinstance(sample, EncodedPack):
            made = [self._with_pixels(one) for one in sample.samples]
            return EncodedPack(**_base(sample), samples=made)
        return self._with_pixels(sample)

    def packing_cost(self, sample: EncodedSample | EncodedPack) -> dict[str, int]:
        """Tokens with the features of images, and tiles where they are counted."""
        if isinstance(sample, EncodedPack) and not isinstance(sample, EncodedQuestions):
            raise SampleError("a sample that is a pack already cannot be packed", reason="packed-twice")
        cost = {"tokens": self.token_count(sample)}
        if self.settings.pack_tiles is not None:
            cost["tiles"] = sum({_shown(one): sum(one.num_tiles) for one in _samples_of(sample)}.values())
        return cost

    def token_count(self, sample: EncodedSample | EncodedPack) -> int:
        """Tokens with the features of images."""
        return sum(one.total_tokens for one in _samples_of(sample))

    def pack_selected_samples(self, samples: list[EncodedSample | EncodedQuestions]) -> EncodedPack:
        """The samples as one sequence; their borders are kept."""
        sources = tuple(source for sample in samples for source in sample.__sources__ or ())
        return EncodedPack(
            __key__=",".join(sample.__key__ for sample in samples),
            __restore_key__=samples[0].__restore_key__,
            __subflavors__=samples[0].__subflavors__,
            __sources__=sources or None,
            samples=[one for sample in samples for one in _samples_of(sample)],
        )

    def batch(self, samples: list[EncodedSample | EncodedPack]) -> LlavaBatch | dict[str, Any]:
        """The batch, in the form that the settings name."""
        rows = [_samples_of(sample) for sample in samples]
        sources = tuple(source for sample in samples for source in sample.__sources__ or ())
        base: dict[str, Any] = {
            "__key__": [sample.__key__ for sample in samples],
            "__restore_key__": tuple(sample.__restore_key__ for sample in samples),
            "__sources__": sources or None,
        }
        if self.settings.form == "megatron":
            pad_id = self.pad_id
            packed = any(isinstance(sample, EncodedPack) for sample in samples)
            return base | megatron_batch(rows, pad_id=pad_id, packed=packed, width=self.settings.row_tokens)
        flat = [sample for row in rows for sample in row]
        base["__subflavors__"] = [sample.__subflavors__ for sample in samples]
        return flat_batch(
            flat,
            image_id=self.settings.image_id,
            tile_pixels=self.images.tile_pixels,
            base=base,
            sets=[_set_of(one, sample) for sample, row in zip(samples, rows, strict=True) for one in row],
            learn_after_images=self.settings.learn_after_images,
        )

    @property
    def pad_id(self) -> int:
        """The token that fills up rows: the template's, or the tokenizer's, or the one that ends a text."""
        named = None if self.template.pad is None else self.tokenizer.token_id(self.template.pad)
        found = next((i for i in (named, self.tokenizer.pad_id, self.tokenizer.eos_id) if i is not None), None)
        if found is None:
            raise ConfigError("neither the template nor the tokenizer says which token fills up rows")
        return found

    def tokens_of(self, talk: Talk) -> TokenizedConversation:
        """Ids and mask of a conversation, before anything is cut."""
        tags = IMAGE_TAGS[self.settings.image_tags]
        if talk.free:
            pieces = self._running_text.render(talk.turns, image_tags=tags)
            return tokenize(pieces, self.tokenizer, image_id=self.settings.image_id)
        pieces = self.template.render(talk.turns, image_tags=tags)
        return tokenize(pieces, self.tokenizer, image_id=self.settings.image_id, after_image=self.template.after_image)

    def _encode(self, sample: Any, talk: Talk) -> EncodedSample:
        tokens = self.tokens_of(talk)
        plans = self._plans(talk, tokens)
        of_image = [self.ids_of_image(plan, video=talk.video) for plan in plans]
        lengths = [len(ids) for ids in of_image]
        tokens = truncate(tokens, image_tokens=lengths, max_tokens=self.settings.max_tokens)
        shown = tokens.images
        return EncodedSample(
            **_base(sample),
            ids=np.asarray(tokens.ids, np.int64),
            labels=np.asarray(tokens.labels, np.int64),
            image_ids=[of_image[image] for image in shown],
            num_tiles=[plans[image].tiles for image in shown],
            total_tokens=tokens.expanded_length(lengths),
            images=[talk.images[image] for image in shown],
            plans=[plans[image] for image in shown],
            video=talk.video,
            augment=bool((_base(sample)["__subflavors__"] or {}).get("augmentation")),
        )

    def _questions(self, sample: Any, talk: Talk) -> EncodedQuestions:
        """As many questions as fit a pack; which they are is drawn, so that in other epochs others are."""
        encoded = [self._encode(sample, one) for one in questions_of(talk, most=self.settings.most_questions)]
        room = self.settings.pack_tokens or sum(one.total_tokens for one in encoded)
        kept: list[int] = []
        for number in random.sample(range(len(encoded)), len(encoded)):
            room -= encoded[number].total_tokens
            if room < 0:
                break
            kept.append(number)
        return EncodedQuestions(**_base(sample), samples=[encoded[number] for number in sorted(kept)])

    def _plans(self, talk: Talk, tokens: TokenizedConversation) -> list[TilePlan]:
        """Tiles of each image; fewer where they would leave no room for the text."""
        if talk.video:
            frames = frame_count(talk.images[0], count=self.settings.video_frames)
            return [TilePlan((frames, 1))]
        room = self.settings.max_tokens - len(tokens.ids) - SPARE_TOKENS
        if talk.grids is not None and isinstance(self.images.layout, DynamicTiles):
            layout = self.images.layout
            return [
                self.images.plan(image) if grid is None else layout.with_grid(grid)
                for image, grid in zip(talk.images, talk.grids, strict=True)
            ]
        return self.images.plan_within(talk.images, max_tokens=room)

    def ids_of_image(self, plan: TilePlan, *, video: bool) -> Ids:
        """What the place of an image becomes: a placeholder for each feature, and the tags of tiles before them."""
        tile = np.full(self.images.tile_tokens, self.settings.image_id, np.int64)
        if self._tags is None or video:
            return np.tile(tile, plan.tiles)
        return np.concatenate([part for tag in self._tags.of(plan.tiles) for part in (tag, tile)])

    def _with_pixels(self, sample: EncodedSample) -> EncodedSample:
        if sample.video:
            frames = video_frames(sample.images[0], count=self.settings.video_frames) if sample.images else []
            tiles = [self.images.frames(frames)] if frames else []
        else:
            pairs = zip(sample.images, sample.plans, strict=True)
            tiles = [self.images.pixels(image, plan, augment=sample.augment) for image, plan in pairs]
        made = sum(map(len, tiles))
        if made != sum(sample.num_tiles):
            raise SampleError(f"{made} tiles were made, {sum(sample.num_tiles)} were planned", reason="tile-count")
        return replace(sample, images=[], plans=[], pixels=np.concatenate(tiles) if tiles else None)

    def _with_shared_pixels(self, samples: Sequence[EncodedSample]) -> list[EncodedSample]:
        """The samples with their pixels; those that show the same images have one array."""
        made: dict[tuple[int, ...], EncodedSample] = {}
        for sample in samples:
            if _shown(sample) not in made:
                made[_shown(sample)] = self._with_pixels(sample)
        return [replace(one, images=[], plans=[], pixels=made[_shown(one)].pixels) for one in samples]

    def _offline_pack(self, sample: SampleListSample) -> EncodedPack:
        """The samples of a pack that was made beforehand, as far as they fit."""
        capacity = self.settings.pack_tokens or self.settings.max_tokens
        fitting: list[EncodedSample] = []
        for one in sample.samples:
            encoded = self._encode(one, self.settings.rules.talk(one))
            if sum(other.total_tokens for other in fitting) + encoded.total_tokens > capacity:
                raise SampleError(
                    f"pack {sample.__key__!r} of {len(sample.samples)} samples is longer than {capacity} tokens. "
                    "Write the packs again with this encoder's settings, or raise pack_tokens.",
                    reason="oversize",
                )
            fitting.append(encoded)
        if not fitting:
            raise SampleError(f"pack {sample.__key__!r} is empty", reason="no-target")
        return EncodedPack(**_base(sample), samples=fitting)

    def _check_tokens(self, template: ChatTemplate) -> None:
        for name in sorted(template.named_tokens):
            known = {"bos": self.tokenizer.bos_id, "eos": self.tokenizer.eos_id}
            found = known[name] if name in known else self.tokenizer.token_id(name)
            if found is None:
                raise ConfigError(
                    f"the tokenizer has no token {name!r}, which chat template {template.name!r} needs. Choose the "
                    "template that belongs to the model."
                )


def _samples_of(sample: EncodedSample | EncodedPack) -> Sequence[EncodedSample]:
    return sample.samples if isinstance(sample, EncodedPack) else [sample]


def _set_of(one: EncodedSample, whole: EncodedSample | EncodedPack) -> int:
    """Position in the mix of a sample's data set: told by its key, or by that of the pack that it was written in."""
    keys = (one.__restore_key__, whole.__restore_key__)
    return next((key[0] for key in keys if key and isinstance(key[0], int)), 0)


def _shown(sample: EncodedSample) -> tuple[int, ...]:
    """Which images a document of a sample shows: told by the objects, which its documents share."""
    return tuple(map(id, sample.images))


def _base(sample: Any) -> dict[str, Any]:
    names = ("__key__", "__restore_key__", "__subflavors__", "__sources__")
    if isinstance(sample, dict):
        return {name: sample.get(name) for name in names}
    return {name: getattr(sample, name) for name in names}
