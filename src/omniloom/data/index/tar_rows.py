"""`TarRows`: the samples of a prepared data set's split part, its shards laid end to end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container
from itertools import accumulate
from typing import Any

from omniloom.data.index.dataset import DatasetIndex, open_dataset
from omniloom.data.sample import RawSample
from omniloom.data.shards.tar_shard import TarShard
from omniloom.errors import DatasetError, SampleError, SkipSample
from omniloom.storage.urls import is_url, redacted


class TarRows:
    """The rows of a data set's split part, laid end to end.

    It is sent to a worker as the place of the data set and opened there again: a list of a hundred
    thousand shards is quicker to read than to unpickle.

    Args:
        index: the opened data set.
        split_config: name of the split file it was opened by.
        wanted: parts to read; ``None``: all.
    """

    def __init__(self, index: DatasetIndex, *, split_config: str, wanted: Container[str] | None = None) -> None:
        self.index = index
        self.wanted = wanted
        self._split_config = split_config
        self._ends = list(accumulate(entry.samples for entry in index.shards))
        self._shards: list[TarShard | None] = [None] * len(index.shards)

    def __reduce__(self) -> tuple[Any, ...]:
        place = self.index.root, self.index.split_part, self._split_config
        return _rows_again, (place, self._ends[-1], self.wanted, _kept_folder(self.index.root))

    def __repr__(self) -> str:
        return f"TarRows({redacted(self.index.root)!r}, {self.index.split_part!r})"

    def __len__(self) -> int:
        return self._ends[-1]

    def _shard_of(self, row: int) -> tuple[TarShard, int, frozenset[str]]:
        """The shard of a row of the split part, the row in it, and the keys that are excluded there."""
        number = bisect_right(self._ends, row)
        entry = self.index.shards[number]
        shard = self._shards[number]
        if shard is None:
            shard = self._shards[number] = entry.open(self.index.rule)
        return shard, row - self._ends[number] + entry.samples, entry.excluded_keys

    def read(self, row: int) -> RawSample:
        """The parts of a row. Raises SkipSample for rows that the split excludes and for rows of junk."""
        shard, shard_row, excluded = self._shard_of(row)
        try:
            name, parts = shard.read(shard_row, self.wanted)
        except SampleError as error:
            if error.reason == "ignored-row":
                raise SkipSample("ignored-row") from None
            raise
        if excluded and name in excluded:
            raise SkipSample("excluded")
        return RawSample(name, shard.name, parts)

    @property
    def is_far(self) -> bool:
        """Whether its shards lie in a store."""
        return is_url(self.index.shards[0].path)

    def knows_places(self, row: int) -> bool:
        """Whether `places` answers without a request."""
        return self._shard_of(row)[0].knows_places()

    def opened_by(self, row: int) -> int:
        """The number of the shard that has to be open before the places of a row are known."""
        return bisect_right(self._ends, row)

    def places(self, row: int) -> list[tuple[str, int, int]]:
        """The ranges that reading a row asks for; none where they are not known beforehand."""
        shard, shard_row, _ = self._shard_of(row)
        return shard.places(shard_row, self.wanted)

    def make_ready(self, row: int) -> None:
        """Open and check the shard of a row before the row is read."""
        self._shard_of(row)[0].make_ready()

    def parts_of_first_row(self) -> frozenset[str]:
        """Names of the parts of the first row; nothing where it cannot be read."""
        try:
            return frozenset(self.read(0).parts)
        except (DatasetError, SkipSample, OSError):
            return frozenset()

    def origin(self, row: int) -> tuple[str, tuple[int, int] | None]:
        """Shard and byte range of a row; never raises."""
        shard, shard_row, _ = self._shard_of(row)
        try:
            return shard.name, shard.byte_range(shard_row)
        except Exception:
            return shard.name, None


def _kept_folder(root: str) -> str:
    """Where this machine keeps the sidecar of a data set in a store."""
    if not is_url(root):
        return ""
    from omniloom.data.index.mirror import mirror_folder  # noqa: PLC0415 - local sets need no store

    return str(mirror_folder(root))


def _rows_again(place: tuple[str, str, str], samples: int, wanted: Container[str] | None, kept: str = "") -> TarRows:
    root, split_part, split_config = place
    if kept:
        from omniloom.data.index.mirror import adopt  # noqa: PLC0415 - local sets need no store

        adopt(root, kept)
    index = open_dataset(root, split_part=split_part, split_config=split_config, check_files=False)
    if index.samples != samples:
        raise DatasetError(
            f"{root}: split part {split_part!r} had {samples} samples when the loader was made and has "
            f"{index.samples} now. Make the loader again."
        )
    return TarRows(index, split_config=split_config, wanted=wanted)
