"""Work of the encoder that is done beforehand: data sets of packs, and of conversations with their grids of tiles.

A sample is written as the encoder understood it: prompts are drawn, placeholders are places, each image has its grid.
So reading it again gives the same tokens, whatever the settings of rules and tiles are then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from omniloom.data.convert.entry_source import Description
from omniloom.data.convert.json_entries import RawEntry
from omniloom.data.convert.llava_entry import LlavaEntry
from omniloom.data.index.sample_types import CRUDE_TYPE
from omniloom.data.loader.config import WorkerConfig
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.open import get_val_dataset
from omniloom.data.pipeline.make import Make
from omniloom.data.sample import SampleKey
from omniloom.errors import ConfigError, DatasetError, SampleError, SkipSample
from omniloom.storage.urls import is_url, name_of, redacted
from omniloom.vlm.conversation import ImagePart, write_conversation
from omniloom.vlm.encoded import EncodedSample
from omniloom.vlm.packing import best_fit
from omniloom.vlm.samples import SampleListSample
from omniloom.vlm.talks import Talk
from omniloom.vlm.task_encoder import LlavaTaskEncoder

DEFAULT_WINDOW = 10_000


@dataclass(frozen=True, slots=True)
class TalkedSample:
    """A sample as the encoder understood it.

    Attributes:
        talk: its conversation and images.
        encoded: its tokens and plans.
    """

    talk: Talk
    encoded: EncodedSample


class TalkEncoder(LlavaTaskEncoder):
    """An encoder that keeps the conversation beside the tokens, and images as they are stored."""

    decoder = SampleDecoder(image_decode="raw", av_decode="raw")

    @classmethod
    def of(cls, encoder: LlavaTaskEncoder) -> TalkEncoder:
        """The same encoder, keeping conversations."""
        return cls(
            tokenizer=encoder.tokenizer, template=encoder.template, images=encoder.images, settings=encoder.settings
        )

    def preencode_sample(self, sample: Any) -> Any:
        """The conversation and its tokens."""
        if isinstance(sample, SampleListSample):
            raise SampleError("a sample that is a pack already", reason="packed-twice")
        talk = self.settings.rules.talk(sample)
        encoded = self._encode(sample, talk)
        if talk.video:
            raise SampleError("a sample with a video; those stay in data sets of their own", reason="video-in-pack")
        if len(encoded.images) < len({p.index for t in talk.turns for p in t.parts if isinstance(p, ImagePart)}):
            raise SampleError("too long: an image lies behind the end", reason="oversize")
        return TalkedSample(talk, encoded)


class OfflineEntries:
    """The entries of a data set that is written as the encoder understands it.

    Args:
        dataset: path or URL of a prepared data set.
        encoder: what samples become.
        split_part: part of the data set.
        pack_tokens: length of packs; ``None``: each sample stays one, with its grids.
        window: samples among which packs are chosen.
    """

    description: Description | None = Description(CRUDE_TYPE, {})
    in_shares = False  # each share would have to encode all samples

    def __init__(
        self,
        dataset: str | Path,
        *,
        encoder: LlavaTaskEncoder,
        split_part: str = "train",
        pack_tokens: int | None = None,
        window: int = DEFAULT_WINDOW,
    ) -> None:
        config = WorkerConfig(rank=0, world_size=1, num_workers=0)
        if encoder.settings.turns == "apart":
            raise ConfigError("turns='apart' is chosen when training; packs and grids are written of conversations")
        talking = TalkEncoder.of(encoder)
        opened = get_val_dataset(dataset, split_part=split_part, task_encoder=talking, worker_config=config)
        stage: Any = opened.pipeline
        while not isinstance(stage, Make):
            stage = stage.source
        self.path = Path(name_of(str(dataset)) if is_url(dataset) else dataset)
        self._make = stage
        self._sizes = [len(leaf.rows) for leaf in stage.leaves]  # type: ignore[attr-defined]
        self._pack_tokens = pack_tokens
        self._window = window
        self._what = f"{_place(dataset)} {split_part} {self._sizes} {encoder.images} {encoder.settings}"
        self._what += f" {encoder.template.name} {encoder.tokenizer.vocabulary_size} {pack_tokens} {window}"
        self.size_bytes = max(1, sum(self._sizes))  # progress goes by samples

    def entries(self, start: int) -> Iterator[RawEntry]:
        """The entries from position ``start`` on: packs, or samples, and those that are of no use with the reason."""
        for position, (entry, reason, detail, done) in enumerate(self._all()):
            if position >= start:
                yield RawEntry(position, 0, entry, reason, detail, done)

    def read(self, value: Any, position: int) -> LlavaEntry:
        """The entry, which is ready."""
        entry: LlavaEntry = value
        return entry

    def fingerprint(self) -> str:
        """The data set's path and size, and all settings."""
        return self._what

    def _all(self) -> Iterator[tuple[Any, str | None, str, int]]:
        total, number = sum(self._sizes), 0
        for begin in range(0, total, self._window):
            rows = range(begin, min(begin + self._window, total))
            lengths: dict[int, int] = {}
            for row in rows:
                try:
                    lengths[row] = self._sample(row).encoded.total_tokens
                except (DatasetError, SkipSample) as error:
                    reason = error.reason if isinstance(error, SampleError) else "skipped"
                    yield None, reason, f"row {row}: {error}", row + 1
            for pack in self._packs(lengths):
                samples = [self._sample(row) for row in pack]
                yield self._entry(samples, number), None, "", rows.stop
                number += 1

    def _packs(self, lengths: dict[int, int]) -> list[list[int]]:
        rows = list(lengths)
        if self._pack_tokens is None:
            return [[row] for row in rows]
        packs = best_fit([lengths[row] for row in rows], capacity=self._pack_tokens)
        return [[rows[index] for index in pack] for pack in packs]

    def _sample(self, row: int) -> TalkedSample:
        ends = list(accumulate(self._sizes))
        leaf = next(number for number, end in enumerate(ends) if row < end)
        made: TalkedSample = self._make.make(SampleKey(leaf, 0, row - ends[leaf] + self._sizes[leaf]))
        return made

    def _entry(self, samples: list[TalkedSample], number: int) -> LlavaEntry:
        written: list[dict[str, Any]] = []
        pictures: list[bytes] = []
        for sample in samples:
            one = _written(sample)
            one["images"] = list(range(len(pictures), len(pictures) + len(sample.encoded.images)))
            pictures += [_bytes(image) for image in sample.encoded.images]
            written.append(one)
        if self._pack_tokens is None:
            (content,) = written
            content.pop("images")
            key = content.pop("key")
            return LlavaEntry(
                key, ("",) * len(pictures), [], {}, (), (), {**content, "complete": True}, tuple(pictures)
            )
        tokens = sum(sample.encoded.total_tokens for sample in samples)
        content = {"samples": written, "tokens": tokens, "capacity": self._pack_tokens}
        key = f"pack-{number:09d}"
        return LlavaEntry(key, ("",) * len(pictures), [], {}, (), (), content, tuple(pictures))


def _place(dataset: str | Path) -> str:
    """Where a data set lies, whatever the folder that one is in; without secrets."""
    return redacted(str(dataset)) if is_url(dataset) else str(Path(dataset).resolve())


def _written(sample: TalkedSample) -> dict[str, Any]:
    return {
        "key": sample.encoded.__key__,
        "turns": write_conversation(sample.talk.turns),
        "grids": [list(plan.grid) for plan in sample.encoded.plans],
        "tokens": sample.encoded.total_tokens,
    }


def _bytes(image: Any) -> bytes:
    """The undecoded bytes of an image."""
    if not isinstance(image, bytes):
        raise DatasetError(f"an image that is a {type(image).__name__}; undecoded bytes expected, to be written again")
    return image
