"""What a sample is: the sample types under Energon's names, and batches of them.

Nothing here needs torch until a tensor is made: fields that hold tensors are annotated, not checked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from omniloom.data.collate import batch_pad_stack
from omniloom.data.media.lazy import LazyDict
from omniloom.data.sample import SourceInfo

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
Made = TypeVar("Made", bound="_Fields")

BASE_FIELDS = ("__key__", "__restore_key__", "__subflavors__", "__sources__")


@dataclass_transform(kw_only_default=True)
def edataclass(cls: type[T]) -> type[T]:
    """A dataclass with slots whose fields are given by name, as all sample and batch types are.

    It is pickled as its fields by name. A worker knows a class of the main script by its content alone, and such a copy
    has no slots: what it would pickle by itself, the class with slots could not take in.
    """
    made = dataclasses.dataclass(slots=True, kw_only=True)(cls)
    if made.__getstate__ is object.__getstate__:
        made.__getstate__ = _fields_by_name  # type: ignore[method-assign, assignment]
        made.__setstate__ = _set_fields  # type: ignore[attr-defined]
    return made


@lru_cache(maxsize=256)
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _fields_by_name(value: Any) -> dict[str, Any]:
    kind: Any = type(value)
    known = {name: getattr(value, name) for name in _field_names(kind) if hasattr(value, name)}
    more = getattr(value, "__dict__", None)
    return {**known, **more} if more else known


def _set_fields(value: Any, state: dict[str, Any]) -> None:
    for name, one in state.items():
        object.__setattr__(value, name, one)


class _Fields:
    """What samples and batches have in common."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        """``batch["image"]`` is ``batch.image``."""
        try:
            return getattr(self, name)
        except AttributeError:
            names = ", ".join(field.name for field in dataclasses.fields(self))  # type: ignore[arg-type]
            raise KeyError(f"{type(self).__name__} has no field {name!r}; its fields are {names}") from None

    def __contains__(self, name: str) -> bool:
        return hasattr(self, name)

    def keys(self) -> list[str]:
        """Names of the fields, so that ``dict(batch)`` works."""
        return [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]

    def pin_memory(self: Made) -> Made:
        """A copy with its tensors in page-locked memory."""
        pinned: Made = map_tensors(self, lambda tensor: tensor.pin_memory())
        return pinned

    def to(self: Made, *args: Any, **kwargs: Any) -> Made:
        """A copy with its tensors moved; arguments as for `torch.Tensor.to`."""
        moved: Made = map_tensors(self, lambda tensor: tensor.to(*args, **kwargs))
        return moved

    @classmethod
    def extend(cls: type[Made], src: Any, **kwargs: Any) -> Made:
        """An object of this subclass with the fields of ``src`` and more."""
        if not issubclass(cls, type(src)):
            raise TypeError(f"{cls.__name__} does not extend {type(src).__name__}")
        return cls(**{field.name: getattr(src, field.name) for field in dataclasses.fields(src)} | kwargs)


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of nested dataclasses, dicts, lists and tuples with each tensor changed; the rest is shared."""
    if isinstance(value, str | bytes | int | float | SourceInfo) or value is None:
        return value
    if hasattr(value, "pin_memory") and hasattr(value, "dtype"):
        return change(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: map_tensors(getattr(value, f.name), change) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    if isinstance(value, dict):
        return type(value)((key, map_tensors(one, change)) for key, one in value.items())
    if isinstance(value, list | tuple):
        mapped = [map_tensors(one, change) for one in value]
        return type(value)(*mapped) if hasattr(value, "_fields") else type(value)(mapped)
    return value


@edataclass
class Sample(_Fields):
    """Base of all sample types.

    Attributes:
        __key__: the sample's key in its shard.
        __restore_key__: (data set, epoch, row[, part]); `restore_sample` makes the same sample of it again.
        __subflavors__: what the data set's configuration says of its samples.
        __sources__: where its data came from.
    """

    __key__: str
    __restore_key__: tuple[Any, ...]
    __subflavors__: dict[str, Any] | None = None
    __sources__: tuple[SourceInfo, ...] | None = None

    @classmethod
    def derive_from(cls: type[Made], base_sample: Any, **kwargs: Any) -> Made:
        """A sample of this type with the base fields of another one; everything else is given."""
        return cls(**{name: getattr(base_sample, name) for name in BASE_FIELDS} | kwargs)

    @classmethod
    def from_joined(cls: type[Made], *samples: Any) -> Made:
        """A sample of this type of several that were joined: fields of later ones stand before those of earlier ones.

        Key and subflavors are the primary's, the sources those of all. A type with its own way to join, also by name,
        overrides this.

        Args:
            samples: the samples, the primary first; ``None`` where a row has no partner.
        """
        primary = samples[0]
        values: dict[str, Any] = {}
        for sample in filter(None, samples):
            values |= {f.name: getattr(sample, f.name) for f in dataclasses.fields(sample)}
        values |= {name: getattr(primary, name) for name in BASE_FIELDS}
        values["__sources__"] = tuple(s for sample in filter(None, samples) for s in sample.__sources__ or ())
        return cls(**values)


@edataclass
class CaptioningSample(Sample):
    """An image (channels, height, width) and its caption."""

    image: torch.Tensor
    caption: str


@edataclass
class ImageSample(Sample):
    """An image (channels, height, width)."""

    image: torch.Tensor


@edataclass
class ImageClassificationSample(Sample):
    """An image (channels, height, width) and its class."""

    image: torch.Tensor
    label: int | None = None
    label_name: str | None = None


@edataclass
class InterleavedSample(Sample):
    """Texts and images, in their order."""

    sequence: list[torch.Tensor | str]


@edataclass
class MultiChoiceVQASample(Sample):
    """An image, a question, choices, and which of them is right."""

    image: torch.Tensor
    context: str
    choices: list[str] | None = None
    correct_choice_idx: int = 0


@edataclass
class OCRSample(Sample):
    """An image of text: the text, and boxes and texts of its blocks, lines, words and characters."""

    image: torch.Tensor
    text: str
    block_boxes: torch.Tensor | None = None
    block_classes: torch.Tensor | list[str] | None = None
    block_text: list[str] | None = None
    lines_boxes: torch.Tensor | None = None
    lines_text: list[str] | None = None
    words_boxes: torch.Tensor | None = None
    words_text: list[str] | None = None
    chars_boxes: torch.Tensor | None = None
    chars_text: list[str] | None = None


@edataclass
class SimilarityInterleavedSample(Sample):
    """Images and texts with their similarities."""

    images: list[torch.Tensor]
    texts: list[str]
    audio: list[torch.Tensor] | None = None
    video: list[torch.Tensor] | None = None
    similarity_matrix: torch.Tensor | None = None
    matched_text_indices: list[int] | None = None


@edataclass
class TextSample(Sample):
    """A text."""

    text: str


@edataclass
class VidQASample(Sample):
    """A video, a question, and answers with weights."""

    video: Any
    context: str
    answers: list[str] | None = None
    answer_weights: torch.Tensor | None = None


@edataclass
class VQASample(Sample):
    """An image, a question, and answers with weights."""

    image: torch.Tensor
    context: str
    answers: list[str] | None = None
    answer_weights: torch.Tensor | None = None


@edataclass
class VQAOCRSample(Sample):
    """An image, a question, and the text in the image."""

    image: torch.Tensor
    context: str
    text: str
    answers: list[str] | None = None
    answer_weights: torch.Tensor | None = None
    words_boxes: torch.Tensor | None = None
    words_text: list[str] | None = None


class CrudeSample(LazyDict):
    """A sample of an undescribed data set: ``__key__``, ``__shard__`` and the like, and each part under its name.

    Images and other media are decoded when they are looked at; ``peek("jpg").size()`` is known before.
    """


@edataclass
class Batch(_Fields):
    """Base of batch types.

    Attributes:
        __key__: keys of the samples.
        __restore_key__: restore keys of the samples.
        __subflavors__: subflavors of the samples.
        __sources__: sources of all samples.
        __pad__: the batch only evens out the steps of ranks; leave it out of every score.
    """

    __key__: list[str]
    __restore_key__: tuple[Any, ...]
    __subflavors__: list[dict[str, Any] | None] | None = None
    __sources__: tuple[SourceInfo, ...] | None = None
    __pad__: bool = False

    @classmethod
    def derive_from(cls: type[Made], base_batch: Any, **kwargs: Any) -> Made:
        """A batch of this type with the base fields of another one; everything else is given."""
        return cls(**{name: getattr(base_batch, name) for name in (*BASE_FIELDS, "__pad__")} | kwargs)

    @classmethod
    def from_samples(cls: type[Made], samples: Sequence[Any], **kwargs: Any) -> Made:
        """A batch of samples: tensors are padded and stacked, everything else is listed."""
        made = dict(kwargs)
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            if field.name not in made and field.name != "__pad__":
                made[field.name] = _listed(field.name, samples)
        return cls(**made)


def _listed(name: str, samples: Sequence[Any]) -> Any:
    if name == "__sources__":
        sources = tuple(source for sample in samples for source in (sample.__sources__ or ()))
        return sources or None
    values = [getattr(sample, name) for sample in samples]
    if name == "__restore_key__":
        return tuple(values)
    return batch_pad_stack(values) if hasattr(values[0], "dtype") else values


_CLASSES: list[type[Sample]] = [Sample, *Sample.__subclasses__()]

SAMPLE_CLASSES: dict[str, type[Sample]] = {cls.__name__: cls for cls in _CLASSES}
"""The classes by name, as a ``dataset.yaml`` names them."""
