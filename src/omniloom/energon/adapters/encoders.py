"""Task encoders and decoder with Energon's default: images are float tensors from 0 to 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from omniloom.data.media import decoder as decoders
from omniloom.data.task import AugmentTaskEncoder as OmniloomAugmentTaskEncoder
from omniloom.data.task import DefaultTaskEncoder as OmniloomDefaultTaskEncoder
from omniloom.data.task import TaskEncoder as OmniloomTaskEncoder

T_sample = TypeVar("T_sample")
T_encoded_sample = TypeVar("T_encoded_sample")
T_raw_batch = TypeVar("T_raw_batch")
T_batch = TypeVar("T_batch")


@dataclass(frozen=True)
class SampleDecoder(decoders.SampleDecoder):
    """Decodes the parts of a sample, images to ``torchrgb`` where nothing else is asked for."""

    image_decode: str = "torchrgb"


class TaskEncoder(OmniloomTaskEncoder[T_sample, T_encoded_sample, T_raw_batch, T_batch]):
    """`omniloom.TaskEncoder`, with Energon's decoder."""

    decoder: decoders.SampleDecoder | None = SampleDecoder()


class DefaultTaskEncoder(TaskEncoder[Any, Any, Any, Any], OmniloomDefaultTaskEncoder):
    """`omniloom.DefaultTaskEncoder`, with Energon's decoder."""

    def __class_getitem__(cls, _types: Any) -> Any:
        return cls


class AugmentTaskEncoder(OmniloomAugmentTaskEncoder, TaskEncoder[Any, Any, Any, Any]):
    """`omniloom.AugmentTaskEncoder`, which hands on every step, not only the three that Energon's does."""

    def __class_getitem__(cls, _types: Any) -> Any:
        return cls


__all__ = ["AugmentTaskEncoder", "DefaultTaskEncoder", "SampleDecoder", "TaskEncoder"]
