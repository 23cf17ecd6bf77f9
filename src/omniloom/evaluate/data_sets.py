"""Benchmarks that are data sets: of a prepared folder, or of a metadataset, each sample of a split part is an item.

A sample of any described kind, or a conversation as ``omniloom convert`` writes it, brings its question, answers,
options and images; the task says how the question is put, and scores.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

from omniloom.data.cook import Cooker
from omniloom.data.kinds import (
    CaptioningSample,
    MultiChoiceVQASample,
    OCRSample,
    VidQASample,
    VQAOCRSample,
    VQASample,
)
from omniloom.data.loader.config import WorkerConfig
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.open import get_val_dataset
from omniloom.data.pipeline.make import Make
from omniloom.data.sample import SampleKey
from omniloom.data.task import TaskEncoder
from omniloom.errors import ConfigError, SampleError
from omniloom.evaluate.task import Item, Stored
from omniloom.vlm.conversation import read_conversation
from omniloom.vlm.samples import ConversationSample, cook_conversation

_MIXES = (".yaml", ".yml")
_SIDECAR = ".nv-meta"


class Asked(NamedTuple):
    """What a sample asks.

    Attributes:
        question: without places of images.
        answers: that are right.
        pictures: contents of images, or of one video.
        options: by letter.
        video: whether the picture is a video.
    """

    question: str
    answers: tuple[str, ...]
    pictures: Sequence[Any]
    options: Mapping[str, str] = {}
    video: bool = False


class _AsStored(TaskEncoder[Any, Any, Any, Any]):
    """Images and videos stay the bytes that they are."""

    decoder = SampleDecoder(image_decode="raw", av_decode="raw")
    cookers = (Cooker(cook_conversation),)


def is_data_set(path: Path) -> bool:
    """Whether a path is a prepared data set, or a metadataset."""
    return (path / _SIDECAR).is_dir() or (path.suffix in _MIXES and path.is_file())


def read_data_set(path: Path, *, split_part: str = "val") -> list[Item]:
    """An item for each sample of a split part, in its order; the id is the sample's key.

    A key that several data sets of a mix have is told apart by the data set's name.

    Raises:
        ConfigError: there are no samples, or a sample of a kind that asks nothing.
        DatasetError: the data set is not prepared, or has no such part.
    """
    data_set = StoredSamples(path, split_part)
    items = [data_set.item(number, row) for number, row in data_set.rows()]
    if not items:
        raise ConfigError(f"{path}: no samples in its part {split_part!r}.")
    several = {name for name, count in Counter(item.id for item in items).items() if count > 1}
    return [replace(item, id=f"{item.facts['data_set']}/{item.id}") if item.id in several else item for item in items]


def fingerprint_of(items: Sequence[Item]) -> str:
    """The SHA-256 of ids, questions, options and answers: what a score hangs on, wherever the shards lie."""
    digest = hashlib.sha256()
    for item in items:
        told = [item.id, item.question, dict(item.options), list(item.answers)]
        digest.update(json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


@dataclass
class StoredSamples:
    """The samples of a split part, read one by one; opened when they are first asked for, anew in each process.

    Attributes:
        path: of a prepared data set or a metadataset.
        split_part: of its split.
    """

    path: Path
    split_part: str
    _make: Make | None = None

    def rows(self) -> Iterator[tuple[int, int]]:
        """Number of the data set and row in it, of each sample."""
        for number, leaf in enumerate(self._opened().leaves):
            yield from ((number, row) for row in range(len(leaf.rows)))  # type: ignore[attr-defined]

    def item(self, number: int, row: int) -> Item:
        """The item of a sample; its images are read again when they are shown."""
        sample = self._opened().make(SampleKey(number, 0, row))
        asked = asked_of(sample, where=f"{self.path}: {getattr(sample, '__key__', row)}")
        facts = dict(sample.__subflavors__ or {})
        facts["question_type"] = "multiple-choice" if asked.options else "open"
        return Item(
            id=str(sample.__key__),
            question=asked.question,
            answers=asked.answers,
            images=tuple(Stored(self, number, row, place, asked.video) for place in range(len(asked.pictures))),
            options=asked.options,
            facts=facts | {"data_set": self._opened().leaves[number].name},
        )

    def picture(self, shown: Stored) -> Any:
        """The bytes of an image or a video."""
        sample = self._opened().make(SampleKey(shown.number, 0, shown.row))
        content = asked_of(sample, where=str(shown)).pictures[shown.place]
        return content.read() if isinstance(content, io.IOBase) else content

    def __str__(self) -> str:
        return f"{self.path}[{self.split_part}]"

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "split_part": self.split_part, "_make": None}

    def _opened(self) -> Make:
        if self._make is None:
            stage = get_val_dataset(
                str(self.path),
                split_part=self.split_part,
                batch_size=None,
                worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0),
                task_encoder=_AsStored(),
            ).pipeline
            while not isinstance(stage, Make):
                stage = stage.source
            self._make = stage
        return self._make


def asked_of(sample: Any, *, where: str) -> Asked:
    """What a sample asks, and what is right.

    Raises:
        ConfigError: it is of a kind that asks nothing.
        SampleError: a conversation without a question and an answer.
    """
    match sample:
        case CaptioningSample():
            return Asked("", _texts(sample.caption), [sample.image])
        case MultiChoiceVQASample():
            options = dict(zip(ascii_uppercase, sample.choices or (), strict=False))
            right = tuple(list(options)[sample.correct_choice_idx :][:1])
            return Asked(_plain(sample.context), right, [sample.image], options)
        case VidQASample():
            return Asked(_plain(sample.context), _texts(sample.answers), [sample.video], video=True)
        case VQAOCRSample() | VQASample():
            return Asked(_plain(sample.context), _texts(sample.answers), [sample.image])
        case OCRSample():
            return Asked("", _texts(sample.text), [sample.image])
        case ConversationSample():
            return _first_question(sample, where)
    raise ConfigError(
        f"{where}: a {type(sample).__name__}, which asks nothing. Captions, questions with answers or choices, texts "
        "in images, and conversations are expected."
    )


def _first_question(sample: ConversationSample, where: str) -> Asked:
    """The first question of a conversation, and its answer."""
    images = 1 if sample.video is not None else len(sample.images)
    said: dict[str, str] = {}
    for turn in read_conversation(sample.turns, images=images):
        if turn.role in said:
            break
        said[turn.role] = "".join(part for part in turn.parts if isinstance(part, str)).strip()
    if not said.keys() >= {"user", "assistant"}:
        raise SampleError(f"{where}: a conversation without a question and an answer", reason="no-question")
    pictures = [sample.video] if sample.video is not None else sample.images
    return Asked(said["user"], (said["assistant"],), pictures, video=sample.video is not None)


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(str, value or ()))


def _plain(question: str) -> str:
    return question.replace("<image>", "").strip()
