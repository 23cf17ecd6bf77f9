"""A leaf at work: a source whose rows are read and made samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from omniloom.data.index.field_map import FieldOption, field_value, part_names
from omniloom.data.kinds import CrudeSample
from omniloom.data.media.decoder import IMAGE_EXTENSIONS, SampleDecoder
from omniloom.data.pipeline.faults import Origin
from omniloom.data.sample import RawSample, SampleKey, SourceInfo
from omniloom.data.shards.rows import Rows
from omniloom.data.side.store import SideStore
from omniloom.errors import SampleError


class RowCook(Protocol):
    """Makes a sample of what was read of a row."""

    @property
    def wanted(self) -> frozenset[str] | None:
        """The parts that are read; ``None``: all."""

    @property
    def decoder(self) -> SampleDecoder | None:
        """Decodes parts; ``None``: they stay bytes."""

    def __call__(self, raw: RawSample, key: SampleKey, source: SourceInfo) -> Any:
        """The sample. Raises SampleError where it cannot be made."""


@dataclass(frozen=True)
class FieldCook:
    """Makes a typed sample of a row by a field map.

    Attributes:
        sample_type: class of the samples.
        fields: alternatives of each field.
        decoder: decodes parts; ``None``: they stay bytes.
        subflavors: what the configuration says of the samples.
    """

    sample_type: Callable[..., Any]
    fields: Mapping[str, tuple[FieldOption, ...]]
    decoder: SampleDecoder | None
    subflavors: dict[str, Any] | None
    _simple: tuple[tuple[str, str, Callable[[bytes], Any] | None], ...] | None = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        simple = None
        if all(len(options) == 1 and not options[0].access for options in self.fields.values()):
            simple = tuple(
                (name, options[0].part, self._function(options[0].part)) for name, options in self.fields.items()
            )
        object.__setattr__(self, "_simple", simple)

    @property
    def wanted(self) -> frozenset[str]:
        """The parts that are read."""
        return part_names(self.fields)

    def __call__(self, raw: RawSample, key: SampleKey, source: SourceInfo) -> Any:
        """The sample. Raises SampleError when a field cannot be filled."""
        name, _, parts = raw
        if self._simple is None:
            decoded = _Decoded(parts, self.decoder)
            values = {field_name: field_value(decoded, options) for field_name, options in self.fields.items()}
        else:
            values = {}
            for field_name, part, function in self._simple:
                data = parts.get(part)
                if data is None:
                    raise _missing_part(part, parts)
                values[field_name] = data if function is None else function(data)
        return self.sample_type(
            __key__=name,
            __restore_key__=tuple(key),
            __subflavors__=self.subflavors,
            __sources__=(source,),
            **values,
        )

    def _function(self, part: str) -> Callable[[bytes], Any] | None:
        return None if self.decoder is None else self.decoder.function(part)


@dataclass(frozen=True)
class CrudeCook:
    """Makes a dict of a row: each part decoded under its name.

    Attributes:
        decoder: decodes parts; ``None``: they stay bytes.
        subflavors: what the configuration says of the samples.
    """

    decoder: SampleDecoder | None
    subflavors: dict[str, Any] | None
    wanted: frozenset[str] | None = None

    def __call__(self, raw: RawSample, key: SampleKey, source: SourceInfo) -> Any:
        """The sample."""
        values = raw.parts if self.decoder is None else {n: self.decoder.decode(n, d) for n, d in raw.parts.items()}
        return CrudeSample(
            __key__=raw.name,
            __shard__=raw.shard,
            __restore_key__=tuple(key),
            __subflavors__=self.subflavors,
            __sources__=(source,),
            **values,
        )


@dataclass
class Leaf:
    """A leaf at work: what `Make` needs of it.

    Attributes:
        name: stable name in the mix.
        rows: where its rows are read.
        cook_row: makes a sample of what was read.
        path: where the data set lies.
        aux: stores beside the data set, by the names that cookers know them by.
        primary: the data set itself as a store, or the one that the mix names so.
    """

    name: str
    rows: Rows
    cook_row: RowCook
    path: str
    aux: Mapping[str, SideStore] = field(default_factory=dict)
    primary: SideStore | None = None

    def read(self, row: int) -> RawSample:
        """The undecoded parts of a row."""
        return self.rows.read(row)

    def cook(self, raw: RawSample, key: SampleKey) -> Any:
        """The sample that the raw parts stand for."""
        name, shard, parts = raw
        if len(parts) == 1:  # the quicker way to the same tuple
            (part,) = parts
            files: tuple[str, ...] = (f"{name}.{part}",)
        else:
            files = tuple([f"{name}.{part}" for part in parts])
        return self.cook_row(raw, key, SourceInfo(self.path, key[2], shard, files))

    def decodes_images(self) -> bool:
        """Whether making a sample takes decoding images; judged by the field map, or by the first row."""
        decoder = self.cook_row.decoder
        if decoder is None or decoder.image_decode == "raw":
            return False
        parts = self.cook_row.wanted if self.cook_row.wanted is not None else self.rows.parts_of_first_row()
        return any(part.rpartition(".")[2].lower() in IMAGE_EXTENSIONS for part in parts)

    def origin(self, row: int) -> Origin:
        """Where a row lies, for messages."""
        shard, byte_range = self.rows.origin(row)
        return Origin(self.name, None, shard, byte_range)


def _missing_part(part: str, parts: Mapping[str, bytes]) -> SampleError:
    return SampleError(
        f"the sample has no part {part!r}, only {', '.join(map(repr, sorted(parts)))}", reason="missing-part"
    )


class _Decoded(Mapping[str, Any]):
    """Parts that are decoded when they are looked at, each once."""

    def __init__(self, parts: Mapping[str, bytes], decoder: SampleDecoder | None) -> None:
        self._parts = parts
        self._decoder = decoder
        self._values: dict[str, Any] = {}

    def __getitem__(self, part: str) -> Any:
        if part not in self._values:
            data = self._parts[part]
            self._values[part] = data if self._decoder is None else self._decoder.decode(part, data)
        return self._values[part]

    def __iter__(self) -> Any:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)
