"""A leaf at work: a prepared data set whose rows are read from shards and made samples."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from omniloom.data.index.dataset import DatasetIndex, open_dataset
from omniloom.data.index.field_map import FieldOption, field_value, part_names
from omniloom.data.kinds import CrudeSample
from omniloom.data.media.decoder import IMAGE_EXTENSIONS, SampleDecoder
from omniloom.data.pipeline.faults import Origin
from omniloom.data.sample import RawSample, SampleKey, SourceInfo
from omniloom.data.shards.tar_shard import TarShard
from omniloom.errors import DatasetError, SampleError, SkipSample

Cook = Callable[[RawSample, SampleKey, SourceInfo], Any]


class TarRows:
    """The rows of a data set's split part, laid end to end, or a range of them.

    It is sent to a worker as the place of the data set and opened there again: a list of a hundred
    thousand shards is quicker to read than to unpickle.

    Args:
        index: the opened data set.
        split_config: name of the split file it was opened by.
        start: first row.
        stop: row after the last one; ``None``: the end.
        wanted: parts to read; ``None``: all.
    """

    def __init__(
        self,
        index: DatasetIndex,
        *,
        split_config: str,
        start: int = 0,
        stop: int | None = None,
        wanted: frozenset[str] | None = None,
    ) -> None:
        self.index = index
        self.start = start
        self.stop = index.samples if stop is None else stop
        self.wanted = wanted
        self._split_config = split_config
        self._ends = list(accumulate(entry.samples for entry in index.shards))
        self._shards: list[TarShard | None] = [None] * len(index.shards)

    def __reduce__(self) -> tuple[Any, ...]:
        place = self.index.root, self.index.split_part, self._split_config
        return _rows_again, (place, self._ends[-1], self.start, self.stop, self.wanted)

    def __repr__(self) -> str:
        return f"TarRows({self.index.root!r}, {self.index.split_part!r}, {self.start}:{self.stop})"

    def __len__(self) -> int:
        return self.stop - self.start

    def _shard_of(self, row: int) -> tuple[TarShard, int, frozenset[str]]:
        """The shard of a row of the split part, the row in it, and the keys that are excluded there."""
        number = bisect_right(self._ends, row)
        entry = self.index.shards[number]
        shard = self._shards[number]
        if shard is None:
            shard = self._shards[number] = TarShard(
                entry.path,
                name=entry.name,
                samples=entry.samples,
                size_bytes=entry.size_bytes,
                fingerprint=entry.fingerprint,
                parts_path=entry.parts_path,
                rule=self.index.rule,
            )
        return shard, row - self._ends[number] + entry.samples, entry.excluded_keys

    def read(self, row: int) -> RawSample:
        """The parts of a row. Raises SkipSample for rows that the split excludes and for rows of junk."""
        shard, shard_row, excluded = self._shard_of(row + self.start)
        try:
            name, parts = shard.read(shard_row, self.wanted)
        except SampleError as error:
            if error.reason == "ignored-row":
                raise SkipSample("ignored-row") from None
            raise
        if excluded and name in excluded:
            raise SkipSample("excluded")
        return RawSample(name, shard.name, parts)

    def parts_of_first_row(self) -> frozenset[str]:
        """Names of the parts of the first row; nothing where it cannot be read."""
        try:
            return frozenset(self.read(0).parts)
        except (DatasetError, SkipSample, OSError):
            return frozenset()

    def origin(self, row: int) -> tuple[str, tuple[int, int] | None]:
        """Shard and byte range of a row; never raises."""
        shard, shard_row, _ = self._shard_of(row + self.start)
        try:
            return shard.name, shard.byte_range(shard_row)
        except Exception:
            return shard.name, None


def _rows_again(
    place: tuple[str, str, str], samples: int, start: int, stop: int, wanted: frozenset[str] | None
) -> TarRows:
    root, split_part, split_config = place
    index = open_dataset(root, split_part=split_part, split_config=split_config, check_files=False)
    if index.samples != samples:
        raise DatasetError(
            f"{root}: split part {split_part!r} had {samples} samples when the loader was made and has "
            f"{index.samples} now. Make the loader again."
        )
    return TarRows(index, split_config=split_config, start=start, stop=stop, wanted=wanted)


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
        cook: makes a sample of what was read.
        path: where the data set lies.
    """

    name: str
    rows: TarRows
    cook_row: FieldCook | CrudeCook
    path: str

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
