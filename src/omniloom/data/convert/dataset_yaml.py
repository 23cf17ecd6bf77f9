"""``dataset.yaml`` of a converted data set: what its samples are, in the words of Energon's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omniloom.data.convert.findings import Counts

CRUDE = "CrudeWebdataset"
QUESTION_TYPE = "VQASample"
_MODULE = "megatron.energon"


def dataset_yaml(counts: Counts, *, sample_type: str | None, field_map: Mapping[str, str] | None) -> dict[str, Any]:
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
        sample_type = QUESTION_TYPE if counts.questions == counts.samples else CRUDE
    if sample_type == CRUDE:
        return {"__module__": _MODULE, "__class__": CRUDE}
    named = {"sample_type": {"__module__": _MODULE, "__class__": sample_type}}
    return named | {"field_map": dict(field_map) if field_map else question_field_map(counts)}


def question_field_map(counts: Counts) -> dict[str, str]:
    """The guide's field map; where images are of several kinds, all of them as alternatives, frequent ones first."""
    images = ",".join(name for name, _ in sorted(counts.image_parts.items(), key=lambda item: (-item[1], item[0])))
    return {"image": images or "jpg", "context": "json[0][value]", "answers": "json[1][value]"}
