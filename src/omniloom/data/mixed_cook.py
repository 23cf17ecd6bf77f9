"""What becomes of the rows of a mix that are more than a data set's own: joined ones, and those of several ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from omniloom.data.leaf import Leaf
from omniloom.data.media.decoder import SampleDecoder
from omniloom.data.mix.join_rows import JoinedRaw
from omniloom.data.plan.permute import mix_key
from omniloom.data.row_cook import RowCook
from omniloom.data.sample import RawSample, SampleKey, SourceInfo
from omniloom.errors import SkipSample

_GOLDEN_RATIO = 0x9E3779B97F4A7C15  # its fraction, times 2^64


@dataclass(frozen=True)
class JoinCook:
    """Makes one sample of those of several leaves.

    Attributes:
        columns: the leaves, the primary first.
        joiner: makes the joined sample; ``None`` of it leaves the row out.
        keywords: names of its arguments; ``None``: they go by position.
    """

    columns: tuple[Leaf, ...]
    joiner: Callable[..., Any]
    keywords: tuple[str, ...] | None = None
    wanted: frozenset[str] | None = None
    calls_users: ClassVar[bool] = True

    @property
    def decoder(self) -> SampleDecoder | None:
        """That of the primary."""
        return self.columns[0].cook_row.decoder

    def eager(self) -> JoinCook:
        """The same, with decoders that make tensors at once."""
        return replace(self, columns=tuple(leaf.eager() for leaf in self.columns))

    def __call__(self, raw: RawSample, key: SampleKey, source: SourceInfo) -> Any:
        """The joined sample; its restore key is that of the join, its sources are those of the leaves."""
        if not isinstance(raw, JoinedRaw):
            raise TypeError(f"{type(raw).__name__} found, a joined row expected")
        samples = [
            None if column is None else leaf.cook(column[1], key._replace(row=column[0]))
            for leaf, column in zip(self.columns, raw.columns, strict=True)
        ]
        if self.keywords is None:
            joined = self.joiner(*samples)
        else:
            joined = self.joiner(**dict(zip(self.keywords, samples, strict=True)))
        if joined is None:
            raise SkipSample("joiner")
        if isinstance(joined, dict):
            joined["__restore_key__"] = tuple(key)
        elif hasattr(joined, "__restore_key__"):
            joined.__restore_key__ = tuple(key)
        return joined


@dataclass(frozen=True)
class WaysCook:
    """Makes the samples of a data set that a mix reaches on several ways, with other subflavors on each.

    Which way a row goes follows from its epoch and number, so that an epoch still has each row once. From epoch to
    epoch a row goes its ways in turn, as their shares say (steps of the golden ratio), and not by chance.

    Attributes:
        ways: the cook of each way.
        borders: upper border of each way's share, from 0 to 2^64.
    """

    ways: tuple[RowCook, ...]
    borders: tuple[int, ...]

    @property
    def wanted(self) -> Any:
        """The parts that are read, the same on all ways."""
        return self.ways[0].wanted

    @property
    def decoder(self) -> SampleDecoder | None:
        """That of all ways."""
        return self.ways[0].decoder

    @property
    def calls_users(self) -> bool:
        """Whether a function of a user's makes the samples of a way."""
        return any(way.calls_users for way in self.ways)

    def eager(self) -> WaysCook:
        """The same, with decoders that make tensors at once."""
        return replace(self, ways=tuple(way.eager() for way in self.ways))

    def __call__(self, raw: RawSample, key: SampleKey, source: SourceInfo) -> Any:
        """The sample as the key's way makes it."""
        drawn = (mix_key(key.row, 0) + key.epoch * _GOLDEN_RATIO) % 2**64
        number = next((n for n, border in enumerate(self.borders) if drawn < border), len(self.ways) - 1)
        return self.ways[number](raw, key, source)


@dataclass(frozen=True)
class CookByWay:
    """The user's cook of each way, found by the subflavors that a sample has.

    Attributes:
        subflavors: those of each way.
        cooks: the cook of each; ``None``: the sample stays as it is.
    """

    subflavors: tuple[Any, ...]
    cooks: tuple[Callable[[Any], Any] | None, ...]

    def __call__(self, sample: Any) -> Any:
        """The sample that a crude one stands for."""
        cook = self.cooks[self.subflavors.index(sample["__subflavors__"])]
        return sample if cook is None else cook(sample)
