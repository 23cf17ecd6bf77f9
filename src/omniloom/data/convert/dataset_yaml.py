"""Which sample type, and which field map, a converted data set gets in its ``dataset.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omniloom.data.convert.entry_source import Description
from omniloom.data.convert.findings import Counts
from omniloom.data.index.dataset_yaml import dataset_config_of
from omniloom.data.index.sample_types import CRUDE_TYPE, check_sample_type
from omniloom.errors import ConfigError

QUESTION_TYPE = "VQASample"


def check_description(sample_type: str | None, field_map: Mapping[str, str] | None) -> None:
    """See whether a sample type and a field map, as asked for, can be used.

    Raises:
        ConfigError: there is no such type, it lacks a field map, or the map does not fit it.
    """
    if sample_type is None and field_map:
        raise ConfigError("a field map without a sample type: say which type's fields it fills, with --sample-type.")
    if sample_type is None:
        return
    check_sample_type(sample_type)
    if sample_type not in (CRUDE_TYPE, QUESTION_TYPE) and not field_map:
        raise ConfigError(
            f"sample type {sample_type} needs a field map that says which part fills which field, such as "
            '{"image": "jpg", "caption": "json[1][value]"}.'
        )
    if field_map:
        dataset_config_of(sample_type, field_map)


def converted_config(counts: Counts, *, sample_type: str | None, field_map: Mapping[str, str] | None) -> dict[str, Any]:
    """Content of ``dataset.yaml``.

    Without a sample type it is decided by what was converted. When every sample is one image, one question and one
    answer, it is ``VQASample`` with the field map that the Megatron guide tells its reader to type in. Otherwise (text
    only, several images, several turns) that map would lose something, so the set is crude: samples come as plain
    dicts for a cooker.

    Args:
        counts: what was converted.
        sample_type: name of a sample type, or ``CrudeWebdataset``; ``None`` decides as said.
        field_map: fields of the sample type and the parts that fill them; ``None`` takes the guide's for VQASample.
    """
    if sample_type is None:
        sample_type = QUESTION_TYPE if counts.questions == counts.samples else CRUDE_TYPE
    return dataset_config_of(sample_type, field_map or question_field_map(counts))


def described(description: Description, counts: Counts) -> tuple[str, dict[str, str]]:
    """The sample type and the field map of a data set whose entries decide them."""
    images = question_field_map(counts)["image"]
    return description.sample_type, {name: part.replace("{image}", images) for name, part in description.fields.items()}


def question_field_map(counts: Counts) -> dict[str, str]:
    """The guide's field map; where images are of several kinds, all of them as alternatives, frequent ones first."""
    images = ",".join(name for name, _ in sorted(counts.image_parts.items(), key=lambda item: (-item[1], item[0])))
    return {"image": images or "jpg", "context": "json[0][value]", "answers": "json[1][value]"}
