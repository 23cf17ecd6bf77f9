"""``.nv-meta/dataset.yaml``: what kind of samples a data set holds and which parts fill their fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from omniloom.data.index.field_map import FieldOption, parse_field_map
from omniloom.data.index.layout import SAMPLE_LOADER
from omniloom.data.index.sample_types import (
    CRUDE_TYPE,
    ENERGON_MODULE,
    LEGACY_CLASSES,
    SAMPLE_TYPES,
    check_field_names,
    check_sample_type,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleDescription:
    """What a ``dataset.yaml`` declares, in one form for its three.

    Attributes:
        type_name: class name of the samples; ``CrudeWebdataset`` for plain parts, or a name this package does not know.
        module: module it is to be found in.
        fields: the alternatives of each mapped field; ``None`` without a field map.
        sample_loader: ``file.py:function`` that makes the fields, if any.
        legacy: the class stands at the top of the file, as older versions wrote it.
    """

    type_name: str
    module: str
    fields: dict[str, tuple[FieldOption, ...]] | None
    sample_loader: str | None
    legacy: bool

    @property
    def crude(self) -> bool:
        """Whether samples are handed on as plain parts."""
        return self.type_name == CRUDE_TYPE


def describe_samples(config: Mapping[str, Any], *, where: str) -> SampleDescription:
    """Read the content of a ``dataset.yaml``, in its new, old or crude form.

    Args:
        config: the content, as `dataset.dataset_config` gives it.
        where: name of the file, for messages.

    Raises:
        ConfigError: the field map is malformed.
    """
    top_class = config.get("__class__")
    legacy = isinstance(top_class, str)
    declared = config.get("sample_type")
    if isinstance(declared, dict) and isinstance(declared.get("__class__"), str):
        name, module = declared["__class__"], str(declared.get("__module__", ENERGON_MODULE))
    elif legacy:
        name, module = LEGACY_CLASSES.get(str(top_class), str(top_class)), str(config.get("__module__", ENERGON_MODULE))
    else:
        name, module = "unknown", ""
    raw_map = config.get("field_map")
    loader = config.get("sample_loader")
    return SampleDescription(
        type_name=name,
        module=module,
        fields=None if raw_map is None else parse_field_map(raw_map, where=where),
        sample_loader=loader if isinstance(loader, str) else None,
        legacy=legacy,
    )


def dataset_config_of(sample_type: str, field_map: Mapping[str, str] | None) -> dict[str, Any]:
    """Content for a ``dataset.yaml``.

    Args:
        sample_type: name of a type of `SAMPLE_TYPES`, or ``CrudeWebdataset``.
        field_map: description of each field; ``None`` refers to a ``sample_loader.py``.

    Raises:
        ConfigError: there is no such type, or the map does not fit it.
    """
    check_sample_type(sample_type)
    if sample_type == CRUDE_TYPE:
        return {"__module__": ENERGON_MODULE, "__class__": CRUDE_TYPE}
    declared = {"__module__": SAMPLE_TYPES[sample_type].module, "__class__": sample_type}
    if field_map is None:
        return {
            "sample_type": declared,
            "sample_loader": f"{SAMPLE_LOADER}:sample_loader",
            "part_filter": f"{SAMPLE_LOADER}:part_filter",
        }
    parse_field_map(dict(field_map), where="field_map")
    check_field_names(sample_type, field_map)
    return {"sample_type": declared, "field_map": dict(field_map)}


def sample_loader_text(sample_type: str, parts: Iterable[str]) -> str:
    """A ``sample_loader.py`` to be filled in: one line per field, and the filter of the parts that are there."""
    fields = SAMPLE_TYPES[sample_type].fields
    lines = [
        f'        "{field.name}": raw["..."],  # {field.kind}'
        + ("" if field.required else f"; may be left out, then {field.default}")
        for field in fields
    ]
    return "\n".join(
        [
            f'"""Makes the fields of a {sample_type} from the parts of a sample: write part names for the dots."""',
            "",
            "",
            "def sample_loader(raw: dict) -> dict:",
            '    """The fields; ``raw`` holds the decoded parts by name, and ``__key__``."""',
            "    return {",
            *lines,
            "    }",
            "",
            "",
            "def part_filter(part: str) -> bool:",
            '    """Whether a part is read at all. Take out what is not needed."""',
            f"    return part in {tuple(parts)!r}",
            "",
        ]
    )
