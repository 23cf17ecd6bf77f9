"""The sample types that a data set can be declared to hold, by name: one table, which everyone walks.

Plain names and texts: to prepare a data set needs no tensors, so nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from omniloom.errors import ConfigError

CRUDE_TYPE = "CrudeWebdataset"
ENERGON_MODULE = "megatron.energon"


class Field(NamedTuple):
    """A field of a sample type.

    Attributes:
        name: its name.
        kind: what it holds, as text.
        default: text of its default; ``None`` where a value is required.
    """

    name: str
    kind: str
    default: str | None = None

    @property
    def required(self) -> bool:
        """Whether a sample cannot be made without it."""
        return self.default is None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleType:
    """A sample type.

    Attributes:
        name: name of the class.
        fields: its fields without those that every sample has.
        module: where Energon has the class.
        menu: whether Energon's menu of types lists it.
    """

    name: str
    fields: tuple[Field, ...]
    module: str = ENERGON_MODULE
    menu: bool = True


_IMAGE = Field("image", "tensor (channels, height, width)")
_CONTEXT = Field("context", "text")
_ANSWERS = Field("answers", "list of texts", "None")
_WEIGHTS = Field("answer_weights", "tensor (answers,)", "None")

SAMPLE_TYPES: dict[str, SampleType] = {
    each.name: each
    for each in (
        SampleType(name="CaptioningSample", fields=(_IMAGE, Field("caption", "text"))),
        SampleType(
            name="ImageClassificationSample",
            fields=(_IMAGE, Field("label", "whole number", "None"), Field("label_name", "text", "None")),
        ),
        SampleType(name="ImageSample", fields=(_IMAGE,)),
        SampleType(name="InterleavedSample", fields=(Field("sequence", "list of tensors and texts"),)),
        SampleType(
            name="MultiChoiceVQASample",
            fields=(
                _IMAGE,
                _CONTEXT,
                Field("choices", "list of texts", "None"),
                Field("correct_choice_idx", "whole number", "0"),
            ),
        ),
        SampleType(
            name="OCRSample",
            fields=(
                _IMAGE,
                Field("text", "text"),
                Field("block_boxes", "tensor (blocks, 4 or 5)", "None"),
                Field("block_classes", "tensor (blocks,) or list of texts", "None"),
                Field("block_text", "list of texts", "None"),
                Field("lines_boxes", "tensor (lines, 4 or 5)", "None"),
                Field("lines_text", "list of texts", "None"),
                Field("words_boxes", "tensor (words, 4 or 5)", "None"),
                Field("words_text", "list of texts", "None"),
                Field("chars_boxes", "tensor (characters, 4 or 5)", "None"),
                Field("chars_text", "list of texts", "None"),
            ),
        ),
        SampleType(name="Sample", fields=()),
        SampleType(
            name="SimilarityInterleavedSample",
            fields=(
                Field("images", "list of tensors"),
                Field("texts", "list of texts"),
                Field("audio", "list of tensors", "None"),
                Field("video", "list of tensors", "None"),
                Field("similarity_matrix", "tensor (images, texts)", "None"),
                Field("matched_text_indices", "list of whole numbers", "None"),
            ),
        ),
        SampleType(name="TextSample", fields=(Field("text", "text"),)),
        SampleType(name="VQASample", fields=(_IMAGE, _CONTEXT, _ANSWERS, _WEIGHTS)),
        SampleType(name="VidQASample", fields=(Field("video", "video decoder"), _CONTEXT, _ANSWERS, _WEIGHTS)),
        SampleType(
            name="VQAOCRSample",
            fields=(
                _IMAGE,
                _CONTEXT,
                Field("text", "text"),
                _ANSWERS,
                _WEIGHTS,
                Field("words_boxes", "tensor (words, 4 or 5)", "None"),
                Field("words_text", "list of texts", "None"),
            ),
            module="megatron.energon.flavors.vqa_and_ocr",
            menu=False,
        ),
    )
}

# Classes that old dataset.yaml files name at their top, and the sample types they make.
LEGACY_CLASSES: dict[str, str] = {
    name.removesuffix("Sample") + "Webdataset": name for name in SAMPLE_TYPES if name != "Sample"
}


def menu() -> list[str]:
    """The names of Energon's numbered menu, in its order; the last entry is the crude type."""
    return [name for name, each in SAMPLE_TYPES.items() if each.menu] + [CRUDE_TYPE]


def check_sample_type(name: str) -> None:
    """See that a type of this name can be declared.

    Raises:
        ConfigError: there is none; lists those that there are.
    """
    if name != CRUDE_TYPE and name not in SAMPLE_TYPES:
        raise ConfigError(f"there is no sample type {name!r}; there are {', '.join([*SAMPLE_TYPES, CRUDE_TYPE])}.")


def check_field_names(sample_type: str, names: Iterable[str], *, where: str = "") -> None:
    """See that a field map names fields of the type, and all that are required.

    Args:
        sample_type: name of the type.
        names: fields that the map fills.
        where: the file it stands in, for messages.

    Raises:
        ConfigError: a name is no field, or a required field is missing.
    """
    begin = f"{where}: " if where else ""
    fields = {field.name: field for field in SAMPLE_TYPES[sample_type].fields}
    given = set(names)
    unknown = sorted(given - set(fields))
    if unknown:
        raise ConfigError(
            f"{begin}{sample_type} has no field {unknown[0]!r}; its fields are {', '.join(fields) or 'none'}."
        )
    missing = [name for name, field in fields.items() if field.required and name not in given]
    if missing:
        raise ConfigError(
            f"{begin}the field map leaves out {', '.join(map(repr, missing))}, which {sample_type} needs. Say which "
            f'part holds it, such as {{"{missing[0]}": "txt"}}.'
        )
