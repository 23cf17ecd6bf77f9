"""From what was read of a row to a sample: by a field map, as a dict of its parts, or by a function of the data set."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from omniloom.data.index.field_map import FieldOption, field_value, part_names
from omniloom.data.kinds import CrudeSample
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.sample import RawSample, SampleKey, SourceInfo
from omniloom.data.tables.columns import ColumnKind, column_values
from omniloom.errors import SampleError


class RowCook(Protocol):
    """Makes a sample of what was read of a row."""

    @property
    def wanted(self) -> Container[str] | None:
        """The parts that are read; ``None``: all."""

    @property
    def decoder(self) -> SampleDecoder | None:
        """Decodes parts; ``None``: they stay bytes."""

    @property
    def calls_users(self) -> bool:
        """Whether a function of a user's makes the samples."""

    def eager(self) -> RowCook:
        """The same, with a decoder that makes tensors at once."""

    def __call__(self, raw: RawSample, key: SampleKey, source: SourceInfo) -> Any:
        """The sample. Raises SampleError where it cannot be made."""


class _Decoding:
    """What cooks with a decoder have in common."""

    decoder: SampleDecoder | None
    subflavors: dict[str, Any] | None
    calls_users: ClassVar[bool] = False

    def own_subflavors(self) -> dict[str, Any] | None:
        """The subflavors of one sample: what user code changes in them, others shall not see."""
        return None if self.subflavors is None else {**self.subflavors}

    def eager(self) -> Any:
        """The same, with a decoder that makes tensors at once."""
        decoder = self.decoder
        return replace(self, decoder=decoder.eager()) if decoder is not None and decoder.late else self  # type: ignore[type-var]


@dataclass(frozen=True)
class FieldCook(_Decoding):
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
            __subflavors__=self.own_subflavors(),
            __sources__=(source,),
            **values,
        )

    def _function(self, part: str) -> Callable[[bytes], Any] | None:
        return None if self.decoder is None else self.decoder.function(part)


@dataclass(frozen=True)
class CrudeCook(_Decoding):
    """Makes a dict of a row: each part decoded under its name.

    Attributes:
        decoder: decodes parts; ``None``: they stay bytes.
        subflavors: what the configuration says of the samples.
        wanted: the parts that are read; ``None``: all.
    """

    decoder: SampleDecoder | None
    subflavors: dict[str, Any] | None
    wanted: Container[str] | None = None

    def __call__(self, raw: RawSample, key: SampleKey, source: SourceInfo) -> Any:
        """The sample."""
        values = raw.parts if self.decoder is None else {n: self.decoder.later(n, d) for n, d in raw.parts.items()}
        return CrudeSample(
            __key__=raw.name,
            __shard__=raw.shard,
            __restore_key__=tuple(key),
            __subflavors__=self.own_subflavors(),
            __sources__=(source,),
            **values,
        )


@dataclass(frozen=True)
class ColumnCook(_Decoding):
    """Makes a sample of a row whose parts are columns (see `columns`): a dict of all, or a typed one by a field map.

    Attributes:
        columns: kinds of the columns that are read.
        decoder: decodes media; ``None``: they stay bytes.
        subflavors: what the configuration says of the samples.
        sample_type: class of the samples; ``None``: dicts.
        fields: alternatives of each field; the first name of each is a column.
    """

    columns: Mapping[str, ColumnKind]
    decoder: SampleDecoder | None
    subflavors: dict[str, Any] | None
    sample_type: Callable[..., Any] | None = None
    fields: Mapping[str, tuple[FieldOption, ...]] = field(default_factory=dict)
    wanted: Container[str] | None = None

    def __call__(self, raw: RawSample, key: SampleKey, source: SourceInfo) -> Any:
        """The sample. Raises SampleError when a field cannot be filled."""
        values = column_values(raw.parts, self.columns, self.decoder)
        base = {
            "__key__": raw.name,
            "__restore_key__": tuple(key),
            "__subflavors__": self.own_subflavors(),
            "__sources__": (source,),
        }
        if self.sample_type is None:
            return CrudeSample(__shard__=raw.shard, **base, **{**dict.fromkeys(self.columns), **values})
        return self.sample_type(**base, **{name: field_value(values, of) for name, of in self.fields.items()})


@dataclass(frozen=True)
class LoaderCook(_Decoding):
    """Makes a typed sample by a function of the data set: its ``sample_loader``.

    Attributes:
        sample_type: class of the samples.
        loader: gets the decoded parts, ``__key__``, ``__shard__``, ``__restore_key__`` and ``__sources__``, and gives
            the fields; of the names with underscores only a ``__key__`` of its own counts.
        decoder: decodes parts; ``None``: they stay bytes.
        subflavors: what the configuration says of the samples.
        wanted: the parts that are read; ``None``: all.
    """

    sample_type: Callable[..., Any]
    loader: Callable[[dict[str, Any]], Any]
    decoder: SampleDecoder | None
    subflavors: dict[str, Any] | None
    wanted: Container[str] | None = None
    calls_users: ClassVar[bool] = True

    def __call__(self, raw: RawSample, key: SampleKey, source: SourceInfo) -> Any:
        """The sample. Raises SampleError when the function gives no fields, and what it raises itself."""
        values = raw.parts if self.decoder is None else {n: self.decoder.decode(n, d) for n, d in raw.parts.items()}
        base = {"__restore_key__": tuple(key), "__sources__": (source,)}
        fields = self.loader({"__key__": raw.name, "__shard__": raw.shard, **base, **values})
        if not isinstance(fields, dict):
            raise SampleError(f"sample_loader gave {type(fields).__name__}, a dict of fields expected", reason="loader")
        return self.sample_type(**{"__key__": raw.name, **fields, **base, "__subflavors__": self.own_subflavors()})


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
