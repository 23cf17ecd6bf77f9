"""From YAML, or a dict of the same form, to the tree: metadatasets V1 and V2."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

from omniloom.data.index.yaml_dialect import load_yaml
from omniloom.data.mix.fields import Fields, unknown_key
from omniloom.data.mix.place import Place
from omniloom.data.mix.subset import Subset
from omniloom.data.mix.tree import (
    Blend,
    Concat,
    Epochized,
    Join,
    JoinColumn,
    JoinerName,
    Metadataset,
    Node,
    Nonmatch,
    Ref,
    Unit,
)
from omniloom.data.plan.weights import Curve
from omniloom.errors import ConfigError
from omniloom.storage.files import read_file
from omniloom.storage.urls import redacted

VERSIONS = {"Metadataset": 1, "MetadatasetV2": 2}
"""Classes that a metadataset may name at its top, and the grammar of each. No other is ever imported."""

_CLASS_KEYS = ("__module__", "__class__")
_V1_REF_KEYS = (
    "path", "split_part", "subflavors", "subflavor", "shuffle_over_epochs_multiplier", "dataset_config", "split_config",
)  # fmt: skip
_REF_KEYS = (*_V1_REF_KEYS, "split", "subset", "aux", "name", "mean_tokens")  # `split`: a word of Energon's pages
_JOIN_KEYS = (
    "join", "joiner", "split_part", "subflavors", "shuffle_over_epochs_multiplier", "subset", "dataset_config",
    "split_config", "name", "mean_tokens",
)  # fmt: skip
_UNITS = ("samples", "tokens")

_NODE_KEYS = {
    "path": _REF_KEYS,
    "blend": ("blend", "subset", "weights_in", "schedule_in"),
    "blend_epochized": ("blend_epochized", "subset"),
    "concat": ("concat", "subset"),
    "join": _JOIN_KEYS,
}
"""What a node of a V2 metadataset may hold, by the key that says what it is."""


def read_metadataset(path: str) -> Metadataset:
    """Read a metadataset file.

    Raises:
        DatasetError: there is no such file.
        ConfigError: it is no YAML, or not a metadataset; names file, line and the nearest known key.
    """
    data = read_file(path, what="metadataset", advice="Check the path.")
    return parse_metadataset(load_yaml(data, name=redacted(path)), Place(redacted(path)))


def parse_metadataset(value: Any, place: Place | None = None) -> Metadataset:
    """Read the content of a metadataset: V2 where it names that class, else V1.

    Keys at its top that begin with ``x-`` are the author's own: a place for what anchors stand for.
    """
    place = place or Place()
    own = [key for key in value if str(key).startswith("x-")] if isinstance(value, Mapping) else []
    named = value.get("__class__", "Metadataset") if isinstance(value, Mapping) else "Metadataset"
    version = VERSIONS.get(str(named))
    if version is None:
        raise ConfigError(
            f"{place.at('__class__')}: class {named!r} found; expected {' or '.join(VERSIONS)}. A class of your own is "
            "imported by omniloom.energon alone, and not where OMNILOOM_TRUST=0 forbids it."
        )
    fields = Fields(value, place, allowed=("splits", *_CLASS_KEYS, *own), what="a metadataset")
    splits = fields.mapping("splits")
    if not splits:
        raise ConfigError(f"{place}: no splits; expected 'splits:' with an entry such as 'train:'")
    read = _v1_split if version == 1 else parse_node
    return Metadataset(
        splits={part: read(node, fields.at("splits").at(part)) for part, node in splits.items()}, place=place
    )


def parse_node(value: Any, place: Place, *, extra: tuple[str, ...] = ()) -> Node:
    """Read a node of a V2 metadataset.

    Args:
        value: what stands there.
        place: where.
        extra: keys that belong to the entry that the node stands in, such as ``weight``.
    """
    if isinstance(value, Node):
        return value
    found = [key for key in _NODE_KEYS if isinstance(value, Mapping) and key in value]
    if len(found) != 1:
        if isinstance(value, Mapping) and not found and value:
            raise unknown_key(str(next(iter(value))), _NODE_KEYS, place=place, what="a data set, blend or join")
        raise ConfigError(f"{place}: {value!r:.80} found; expected exactly one of {', '.join(_NODE_KEYS)}")
    kind = found[0]
    fields = Fields(value, place, allowed=(*_NODE_KEYS[kind], *extra), what=f"an entry with {kind!r}")
    return _READERS[kind](fields)


def as_node(value: Any, place: Place | None = None) -> Node:
    """The node of anything that stands for a data set: a path, a node, or a dict in the form of the YAML."""
    place = place or Place()
    if isinstance(value, Node):
        return value
    if isinstance(value, str | os.PathLike):
        return Ref(path=os.fspath(value), place=place)
    if isinstance(value, Mapping):
        return parse_metadataset(value, place) if "splits" in value else parse_node(value, place)
    raise ConfigError(
        f"{place}: {value!r:.80} found; expected a path, a dict with the content of a metadataset, or what source(), "
        "blend(), concat() or join() give"
    )


def parse_curve(value: Any, place: Place) -> Curve:
    """A weight: a number, ``{0: 1.0, 1000000: 0.5}`` in straight lines, or ``{steps: {...}}``."""
    if isinstance(value, Curve):
        return value
    steps = isinstance(value, Mapping) and list(value) == ["steps"] and isinstance(value["steps"], Mapping)
    points = value["steps"] if steps else value if isinstance(value, Mapping) else {0: value}
    try:
        numbers = [(float(str(position)), float(weight)) for position, weight in points.items()]
        if any(isinstance(weight, bool | str) for weight in points.values()):
            raise ValueError
        return Curve(tuple(sorted(numbers)), steps)
    except (TypeError, ValueError) as error:
        why = f": {error}" if isinstance(error, ConfigError) else ""
        raise ConfigError(
            f"{place}: weight {value!r:.80} found; expected a number of at least 0, or such numbers by position, "
            f"{{0: 1.0, 1000000: 0.5}}{why}"
        ) from None


def parse_repetitions(value: Any, place: Place) -> Fraction:
    """How often a data set is gone through: a whole number or a decimal fraction, taken as it is written."""
    if isinstance(value, int | float | Fraction) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return Fraction(str(value)) if isinstance(value, float) else Fraction(value)
    raise ConfigError(f"{place}: repetitions {value!r:.80} found; a number of at least 0 expected")


def parse_aux(value: Any, place: Place) -> str:
    """A reference of an auxiliary store: a text, ``{path: ...}`` or ``{fs_path: ...}``."""
    if isinstance(value, str):
        return value
    fields = Fields(value, place, allowed=("path", "fs_path"), what="an auxiliary store")
    if len(fields.value) != 1:
        raise ConfigError(f"{place}: {value!r:.80} found; expected a path, or one of 'path' and 'fs_path'")
    folder = fields.text("fs_path")
    if folder is None:
        return fields.text("path") or ""
    scheme, found, rest = folder.partition("://")
    return f"filesystem+{scheme}://{rest}" if found else f"filesystem://{folder}"


def _v1_split(value: Any, place: Place) -> Node:
    if isinstance(value, Node):
        return value
    fields = Fields(value, place, allowed=("datasets",), what="a split of a metadataset")
    entries = fields.sequence("datasets")
    where = fields.at("datasets")
    parts = []
    for number, entry in enumerate(entries):
        at = where.at(number)
        if isinstance(entry, Mapping) and (later := set(entry) & {"subset", "aux", "blend", "join"}):
            raise ConfigError(
                f"{at.at(min(later))}: {min(later)!r} needs a metadataset V2. Write `__module__: megatron.energon` and "
                "`__class__: MetadatasetV2` at the top, and `blend:` for `datasets:`."
            )
        inner = Fields(entry, at, allowed=(*_V1_REF_KEYS, "weight"), what="a data set of a metadataset")
        parts.append((_ref(inner), parse_curve(entry.get("weight", 1.0), inner.at("weight"))))
    return Blend(parts=tuple(parts), place=place)


def _ref(fields: Fields) -> Ref:
    path = fields.text("path")
    if not path:
        raise ConfigError(f"{fields.place}: no path; expected 'path:' with that of a data set or metadataset")
    subflavors = fields.mapping("subflavors")
    if (old := fields.text("subflavor")) is not None:
        subflavors = {"__subflavor__": old, **subflavors}
    aux_place = fields.at("aux")
    mean_tokens = fields.number("mean_tokens", 0.0)
    return Ref(
        path=path,
        split_part=fields.text("split_part") or fields.text("split"),
        subflavors=subflavors,
        shuffle_over_epochs_multiplier=_multiplier(fields),
        dataset_config=fields.text("dataset_config"),
        split_config=fields.text("split_config"),
        subset=_subset(fields),
        aux={name: parse_aux(value, aux_place.at(name)) for name, value in fields.mapping("aux").items()},
        name=fields.text("name"),
        mean_tokens=mean_tokens or None,
        place=fields.place,
    )


def _blend(fields: Fields) -> Blend:
    where = fields.at("blend")
    parts = []
    for number, entry in enumerate(fields.sequence("blend")):
        at = where.at(number)
        node = parse_node(entry, at, extra=("weight",))
        parts.append((node, parse_curve(entry.get("weight", 1.0), at.at("weight"))))
    return Blend(
        parts=tuple(parts),
        weights_in=_unit(fields, "weights_in"),
        schedule_in=_unit(fields, "schedule_in"),
        subset=_subset(fields),
        place=fields.place,
    )


def _unit(fields: Fields, key: str) -> Unit | None:
    return cast(Unit, fields.choice(key, _UNITS)) if key in fields else None


def _epochized(fields: Fields) -> Epochized:
    where = fields.at("blend_epochized")
    parts = []
    for number, entry in enumerate(fields.sequence("blend_epochized")):
        at = where.at(number)
        node = parse_node(entry, at, extra=("repetitions",))
        parts.append((node, parse_repetitions(entry.get("repetitions", 1), at.at("repetitions"))))
    return Epochized(parts=tuple(parts), subset=_subset(fields), place=fields.place)


def _concat(fields: Fields) -> Concat:
    where = fields.at("concat")
    parts = tuple(parse_node(entry, where.at(number)) for number, entry in enumerate(fields.sequence("concat")))
    return Concat(parts=parts, subset=_subset(fields), place=fields.place)


def _join(fields: Fields) -> Join:
    configs = {key: name for key in ("dataset_config", "split_config") if (name := fields.text(key)) is not None}
    where, entries = fields.at("join"), fields.value["join"]
    named = isinstance(entries, Mapping)
    items = list(entries.items()) if named else list(enumerate(fields.sequence("join")))
    columns = tuple(_column(entry, where.at(key), str(key) if named else None) for key, entry in items)
    return Join(
        columns=tuple(_with_configs(column, configs) for column in columns),
        joiner=_joiner(fields),
        split_part=fields.text("split_part"),
        subflavors=fields.mapping("subflavors"),
        shuffle_over_epochs_multiplier=_multiplier(fields),
        subset=_subset(fields),
        name=fields.text("name"),
        mean_tokens=fields.number("mean_tokens", 0.0) or None,
        place=fields.place,
    )


def _column(entry: Any, place: Place, name: str | None) -> JoinColumn:
    fields = Fields(entry, place, allowed=(*_REF_KEYS, "nonmatch"), what="a data set of a join")
    nonmatch = cast(Nonmatch, fields.choice("nonmatch", ("error", "skip", "none")))
    return JoinColumn(ref=_ref(fields), nonmatch=nonmatch, name=name)


def _with_configs(column: JoinColumn, configs: Mapping[str, str]) -> JoinColumn:
    """A data set of a join with the names of files that the join says and it does not."""
    ref = replace(
        column.ref,
        dataset_config=column.ref.dataset_config or configs.get("dataset_config"),
        split_config=column.ref.split_config or configs.get("split_config"),
    )
    return replace(column, ref=ref)


def _joiner(fields: Fields) -> JoinerName:
    place = fields.at("joiner")
    if "joiner" not in fields:
        raise ConfigError(
            f"{fields.place}: no joiner; expected 'joiner:' with __module__ and __class__ or __function__"
        )
    inner = Fields(
        fields.value["joiner"], place, allowed=("__module__", "__class__", "__function__"), what="a joiner"
    )  # fmt: skip
    name = inner.text("__class__") or inner.text("__function__")
    if name is None or ("__class__" in inner and "__function__" in inner):
        raise ConfigError(f"{place}: expected one of __class__ and __function__")
    return JoinerName(module=inner.text("__module__") or "megatron.energon", name=name, place=place)


def _subset(fields: Fields) -> Subset | None:
    if fields.value.get("subset") is None:
        return None
    place = fields.at("subset")
    inner = Fields(fields.value["subset"], place, allowed=("range",), what="a subset")
    return Subset.parse(inner.value.get("range"), place=place.at("range"))


def _multiplier(fields: Fields) -> int | None:
    value = fields.whole_or_none("shuffle_over_epochs_multiplier", 1)
    if value is not None and value != -1 and value < 1:
        raise ConfigError(
            f"{fields.at('shuffle_over_epochs_multiplier')}: {value} found; expected a number from 1 on, -1 or null"
        )
    return value


_READERS: dict[str, Callable[[Fields], Node]] = {
    "path": _ref,
    "blend": _blend,
    "blend_epochized": _epochized,
    "concat": _concat,
    "join": _join,
}
