"""Which data a run sees, and how it becomes batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from omniloom.data.loader.config import WorkerConfig
from omniloom.data.open import get_train_dataset
from omniloom.data.pipeline.faults import DEFAULT_IN_A_ROW, FaultPolicy
from omniloom.errors import ConfigError
from omniloom.model.config import LlavaConfig
from omniloom.train.model_files import ModelConfig, model_tokenizer
from omniloom.vlm.conversation import PlaceholderPolicy
from omniloom.vlm.image_processor import ImageProcessor
from omniloom.vlm.jinja_template import OWN_TEMPLATE, JinjaTemplate
from omniloom.vlm.layouts import AnyResolution, CentreCrop, DynamicTiles, Layout, PadToSquare, Squash
from omniloom.vlm.prompts import PromptPools
from omniloom.vlm.statistics import PixelStatistics
from omniloom.vlm.talks import MEGATRON_RULES, TalkRules
from omniloom.vlm.task_encoder import LlavaSettings, LlavaTaskEncoder

QUARANTINE = "left-out-samples.jsonl"
_LEAST_AHEAD = 4  # with two, one slow batch among a few is waited for: 2.9 % of the time against 0.5


@dataclass(frozen=True, kw_only=True)
class FaultConfig:
    """What becomes of samples that cannot be read, decoded or encoded. They are always counted.

    Attributes:
        action: ``skip`` leaves them out; ``quarantine`` also writes each to ``left-out-samples.jsonl`` in the run's
            folder, with its place and the cause; ``raise`` ends the run with the first one.
        in_a_row: so many without a good one between them, in a lane, end the run; 0: no number does.
        share: of a lane's samples that may be left out, looked at after its first 100; ``None``: any.
    """

    action: Literal["skip", "quarantine", "raise"] = "skip"
    in_a_row: int = DEFAULT_IN_A_ROW
    share: float | None = None

    def __post_init__(self) -> None:
        if self.in_a_row < 0 or (self.share is not None and not 0 <= self.share < 1):
            raise ConfigError(
                f"in_a_row {self.in_a_row} and share {self.share} found; at least 0, and a share from 0 to below 1, "
                "expected."
            )

    def policy(self, folder: Path) -> FaultPolicy:
        """The loader's policy of a run in a folder."""
        written = str(folder / QUARANTINE) if self.action == "quarantine" else None
        return FaultPolicy(self.action, in_a_row=self.in_a_row, share=self.share, quarantine_path=written)


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which data, and how it becomes batches.

    Attributes:
        train: a prepared data set, a metadataset, or another source.
        validation: the same, for the loss on held-out data; ``None``: none.
        split_part, validation_split_part: parts of their splits.
        template: name of the chat template, or ``model``: the one that came with the tokenizer.
        template_variables: what that is given besides, such as ``{enable_thinking: false}``, or a ``date_string`` that
            stays when a run goes on another day.
        image_token: what that writes for an image, such as ``<|image_pad|>``; ``None``: images stand in the text.
        rules: what conversations are made by: ``omniloom``, or ``megatron`` (its system text, its placeholders).
        system: what the system says; ``None``: as the rules and the template have it.
        placeholders: what becomes of samples with another number of placeholders than of images; ``None``: as the
            rules have it.
        prompts: pools of prompts in Megatron's JSON form; ``None``: ours.
        special_tokens: more of them for the tokenizer, such as ``<box>``.
        layout: how an image becomes tiles: ``squash``, ``pad``, ``crop``, ``anyres``, ``tiles``.
        max_tiles: of an image, with ``tiles``, without the thumbnail.
        thumbnail: with ``tiles``, whether an image of several tiles also comes whole.
        tile_choice: with ``tiles``, how a grid is chosen: ``closest`` aspect ratio, or ``area-weighted``.
        tile_tags: put the name of each tile before its features, as NVLM does.
        image_tags: what stands around each image: nothing, ``nvlm`` or ``internvl``.
        video_frames: frames of a video at most.
        turns: ``apart``: each question of a conversation is a document of its own, and they share its images;
            ``together``: a conversation is one document.
        most_questions: of a conversation with turns ``apart``, drawn anew each time; ``None``: as many as fit a pack.
        max_tokens: of a sample, image features and all; with turns ``apart``, of a question with its answer.
        pack_tokens: of a pack; ``None``: samples are not packed, and ``batch_size`` of them make a micro-batch.
        pack_tiles: of a pack at most, for the memory of the tower; ``None``: any number.
        packing_buffer_size: samples of a rank among which packs are chosen.
        batch_size: samples, or packs, in a micro-batch. They lie one after another without padding, so a micro-batch
            of several samples costs no more than they do.
        global_batch_size: samples, or packs, in a step of all ranks; it takes the place of ``loop.micro_batches``, so
            that a recipe means the same on any number of ranks. ``None``: ``loop.micro_batches`` of each rank.
        shuffle_buffer_size: rows of a lane that are shuffled among themselves at least.
        max_samples_per_sequence: neighbours that stay together in a run at most.
        num_workers: worker processes of a rank.
        prefetch_factor: batches that each of them makes ahead; ``None``: those of the next step and half as many again,
            four at least, so that neither a slow batch nor a step of many micro-batches is waited for.
        lanes: streams of the run; ``None``: a multiple of ranks and workers, and of 12.
        faults: what becomes of samples that cannot be used.
    """

    train: str
    validation: str | None = None
    split_part: str = "train"
    validation_split_part: str = "val"
    template: str = "vicuna_v1"
    template_variables: Mapping[str, bool | int | str] = field(default_factory=dict)
    image_token: str | None = None
    rules: Literal["omniloom", "megatron"] = "omniloom"
    system: str | None = None
    placeholders: PlaceholderPolicy | None = None
    prompts: str | None = None
    special_tokens: tuple[str, ...] = ()
    layout: Literal["squash", "pad", "crop", "anyres", "tiles"] = "pad"
    max_tiles: int = 6
    thumbnail: bool = True
    tile_choice: Literal["closest", "area-weighted"] = "closest"
    tile_tags: bool = False
    image_tags: Literal["", "nvlm", "internvl"] = ""
    video_frames: int = 8
    turns: Literal["together", "apart"] = "together"
    most_questions: int | None = None
    max_tokens: int = 2048
    pack_tokens: int | None = None
    pack_tiles: int | None = None
    packing_buffer_size: int = 500
    batch_size: int = 1
    global_batch_size: int | None = None
    shuffle_buffer_size: int = 10_000
    max_samples_per_sequence: int = 100
    num_workers: int = 2
    prefetch_factor: int | None = None
    lanes: int | None = None
    faults: FaultConfig = field(default_factory=FaultConfig)

    def __post_init__(self) -> None:
        if self.prefetch_factor is not None and self.prefetch_factor < 1:
            raise ConfigError(f"data.prefetch_factor: {self.prefetch_factor} found; at least 1 expected.")
        if self.most_questions is not None and self.most_questions < 1:
            raise ConfigError(f"data.most_questions: {self.most_questions} found; at least 1 expected.")
        if min(self.packing_buffer_size, self.max_samples_per_sequence) < 1 or self.shuffle_buffer_size < 0:
            raise ConfigError(
                f"data: packing_buffer_size {self.packing_buffer_size}, max_samples_per_sequence "
                f"{self.max_samples_per_sequence} and shuffle_buffer_size {self.shuffle_buffer_size} found; at least "
                "1, 1 and 0 expected."
            )
        if self.batch_size < 1 or (self.global_batch_size is not None and self.global_batch_size < 1):
            raise ConfigError(
                f"data: batch_size {self.batch_size} and global_batch_size {self.global_batch_size} found; "
                "at least 1 expected."
            )

    def batches_ahead(self, *, micro_batches: int) -> int:
        """Batches that each worker makes ahead, of a rank with so many micro-batches in a step."""
        if self.prefetch_factor is not None:
            return self.prefetch_factor
        of_a_step = -(-micro_batches * 3 // (2 * max(1, self.num_workers)))
        return max(_LEAST_AHEAD, of_a_step)

    def micro_batches(self, *, data_ranks: int) -> int | None:
        """Micro-batches of each rank in a step; ``None`` where no global batch is asked for.

        Args:
            data_ranks: ranks that have batches of their own.

        Raises:
            ConfigError: the global batch cannot be cut so.
        """
        if self.global_batch_size is None:
            return None
        number, left = divmod(self.global_batch_size, self.batch_size * data_ranks)
        if left:
            raise ConfigError(
                f"data.global_batch_size: {self.global_batch_size} found for {data_ranks} data-parallel ranks with "
                f"data.batch_size {self.batch_size}; a multiple of {self.batch_size * data_ranks} expected."
            )
        return number


def task_encoder(
    data: DataConfig, model: ModelConfig, config: LlavaConfig, *, template: str | None = None
) -> LlavaTaskEncoder:
    """What makes batches of samples for a model.

    Args:
        data: what batches are to be.
        model: where its tokenizer is.
        config: of the model, which says what a tile is.
        template: chat template in place of the data's.
    """
    side = config.vision.image_size
    chosen = template or data.template
    tokenizer = model_tokenizer(model, template=chosen, special_tokens=data.special_tokens)
    own = chosen == OWN_TEMPLATE
    return LlavaTaskEncoder(
        tokenizer=tokenizer,
        template=JinjaTemplate.of(tokenizer, image_token=data.image_token, **data.template_variables)
        if own
        else chosen,
        images=ImageProcessor(
            tile_pixels=side,
            tile_tokens=config.image_tokens(side, side),
            tower=PixelStatistics(config.vision.pixel_mean, config.vision.pixel_std),
            layout=_LAYOUTS[data.layout](data),
        ),
        settings=LlavaSettings(
            max_tokens=data.max_tokens,
            image_id=config.image_token_id,
            image_tags=data.image_tags,
            tile_tags=data.tile_tags,
            video_frames=data.video_frames,
            pack_tokens=data.pack_tokens,
            pack_tiles=data.pack_tiles,
            turns=data.turns,
            most_questions=data.most_questions,
            rules=_rules(data),
        ),
    )


def training_data(data: DataConfig, encoder: LlavaTaskEncoder, workers: WorkerConfig) -> Any:
    """The data set that is trained on."""
    return get_train_dataset(
        data.train,
        split_part=data.split_part,
        worker_config=workers,
        batch_size=data.batch_size,
        packing_buffer_size=data.packing_buffer_size if data.pack_tokens is not None else None,
        shuffle_buffer_size=data.shuffle_buffer_size,
        max_samples_per_sequence=data.max_samples_per_sequence,
        task_encoder=encoder,
    )


_LAYOUTS: Mapping[str, Callable[[DataConfig], Layout]] = {
    "squash": lambda _: Squash(),
    "pad": lambda _: PadToSquare(),
    "crop": lambda _: CentreCrop(),
    "anyres": lambda _: AnyResolution(),
    "tiles": lambda data: DynamicTiles(max_tiles=data.max_tiles, thumbnail=data.thumbnail, choice=data.tile_choice),
}


def _rules(data: DataConfig) -> TalkRules:
    base = MEGATRON_RULES if data.rules == "megatron" else TalkRules()
    return replace(
        base,
        prompts=base.prompts if data.prompts is None else PromptPools.from_file(Path(data.prompts)),
        system=base.system if data.system is None else data.system,
        placeholders=base.placeholders if data.placeholders is None else data.placeholders,
    )
