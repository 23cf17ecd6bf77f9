"""Samples of shards by their place, as tools for Energon read them: undecoded parts by name, with key and source."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from omniloom.data.index.layout import DATABASE, MAIN_FOLDER
from omniloom.data.sample import SourceInfo
from omniloom.data.shards.keys import split_key
from omniloom.data.side.key_index import ListedEntry
from omniloom.data.side.stores import JsonlFileStore
from omniloom.energon.adapters.dataset_types import ShardInfo, get_info_shard_files
from omniloom.energon.adapters.epath import EPath
from omniloom.energon.adapters.index_files import JoinIndexReader, SqliteIndexReader
from omniloom.energon.adapters.shard_index import ITarSamplePointer, open_itar, span_of_sample
from omniloom.errors import DatasetError, MissingKeyError

Filter = Callable[[str], bool] | None


class ITarReader(ABC):
    """Samples of some shards.

    Args:
        base_path: folder of the data set.
        tar_filenames: names of the shards.
        part_filter: says of the name of a part whether it is read.
        sample_filter: says of a key whether the sample is wanted; where not, ``None`` comes in its place.
        settings: Energon's other arguments; nothing is held open here.
    """

    def __init__(
        self,
        base_path: EPath,
        tar_filenames: Sequence[str],
        part_filter: Filter = None,
        sample_filter: Filter = None,
        **settings: Any,
    ) -> None:
        self.base_path, self.tar_filenames = base_path, list(tar_filenames)
        self.part_filter, self.sample_filter = part_filter, sample_filter

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples."""

    @abstractmethod
    def pointer(self, idx: Any) -> ITarSamplePointer:
        """Where a sample lies."""

    def __getitem__(self, idx: Any) -> Any:
        pointer = self.pointer(idx)
        if pointer.tar_file_id < 0:
            return None
        shard = self.tar_filenames[pointer.tar_file_id]
        parts: dict[str, bytes] = {}
        key = None
        with open_itar(self.base_path / shard, pointer.byte_offset, pointer.byte_size) as archive:
            for member in archive:
                halves = split_key(member.name, "first-dot") if member.isreg() else None
                if halves is None:
                    continue
                if key not in (None, halves[0]):
                    raise DatasetError(f"{shard}: a sample with the keys {key!r} and {halves[0]!r}: index it again")
                key = halves[0]
                content = archive.extractfile(member)
                if content is not None and (self.part_filter is None or self.part_filter(halves[1])):
                    parts[halves[1]] = content.read()
        if key is None:
            raise DatasetError(f"{shard}: no sample at byte {pointer.byte_offset}: index it again")
        if self.sample_filter is not None and not self.sample_filter(key):
            return None
        source = SourceInfo(str(self.base_path), idx, shard, tuple(f"{key}.{part}" for part in parts))
        base = {"__key__": key, "__shard__": shard, "__restore_key__": ("Webdataset", idx), "__sources__": (source,)}
        return {**base, **parts}

    def __str__(self) -> str:
        return f"{type(self).__name__}(len={len(self)}, base_path={self.base_path}, shards={len(self.tar_filenames)})"

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close what is held open."""


class ShardInfosITarReader(ITarReader):
    """Samples of shards by their number, through the shards' indexes.

    Args:
        base_path: folder of the data set.
        shard_infos: the shards.
        settings: as `ITarReader` has them.
    """

    def __init__(self, base_path: EPath, shard_infos: Sequence[ShardInfo], **settings: Any) -> None:
        super().__init__(base_path, [one.name for one in shard_infos], **settings)
        self.shard_infos = list(shard_infos)
        self._ends = list(accumulate(one.count for one in shard_infos))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def pointer(self, idx: int) -> ITarSamplePointer:
        """Where a sample lies. Raises IndexError."""
        if not 0 <= idx < len(self):
            raise IndexError(f"{self.base_path}: there is no sample {idx}; there are {len(self)}")
        number = bisect_right(self._ends, idx)
        row = idx - self._ends[number] + self.shard_infos[number].count
        start, size = span_of_sample(self.shard_infos[number].path, row)
        return ITarSamplePointer(tar_file_id=number, byte_offset=start, byte_size=size)


class JoinIndexFileITarReader(ITarReader):
    """Samples of one data set of a join by the numbers of the joined rows; ``None`` where it has no partner.

    Args:
        index_file: the index of the join.
        column: which data set.
        tar_filenames: the shards of its split part.
        base_path: its folder.
        settings: as `ITarReader` has them.
    """

    def __init__(
        self, index_file: EPath, column: int, tar_filenames: Sequence[str], base_path: EPath, **settings: Any
    ) -> None:
        super().__init__(base_path, tar_filenames, **settings)
        self._index = JoinIndexReader(index_file, column=column)

    def __len__(self) -> int:
        return len(self._index)

    def pointer(self, idx: int) -> ITarSamplePointer:
        """Where a sample lies. Raises IndexError."""
        ((shard, start, size),) = self._index[idx]
        return ITarSamplePointer(tar_file_id=shard, byte_offset=start, byte_size=size)


class SqliteITarEntryReader(ITarReader):
    """Samples of a prepared data set by key; or, by full names, the contents of parts with their sources.

    Args:
        base_path: folder of the data set.
        key_is_full_entryname: names are those of parts, ``<key>.<part>``.
        settings: as `ITarReader` has them.
    """

    def __init__(self, base_path: EPath, *, key_is_full_entryname: bool = False, **settings: Any) -> None:
        super().__init__(base_path, get_info_shard_files(base_path), **settings)
        self.sqlite_reader = SqliteIndexReader(base_path / MAIN_FOLDER / DATABASE)
        self.key_is_full_entryname = key_is_full_entryname

    def __len__(self) -> int:
        return self.sqlite_reader.get_sample_count()

    def pointer(self, idx: str) -> ITarSamplePointer:
        """Where a sample lies. Raises MissingKeyError."""
        return self.sqlite_reader.get_sample_pointer_by_key(idx)

    def __getitem__(self, idx: str) -> Any:
        if not self.key_is_full_entryname:
            return super().__getitem__(idx)
        halves = split_key(idx, "first-dot")
        sample = None if halves is None else super().__getitem__(halves[0])
        if halves is None or sample is None or halves[1] not in sample:
            raise MissingKeyError(f"{self.base_path}: no part has the name {idx!r}", reason="missing-key")
        return sample[halves[1]], SourceInfo(str(self.base_path), idx, sample["__shard__"], (idx,))

    def list_all_samples(self) -> Iterator[ListedEntry]:
        """All samples: key, bytes, number of the shard."""
        return self.sqlite_reader.list_all_samples()

    def list_all_sample_parts(self) -> Iterator[ListedEntry]:
        """All parts: full name, bytes, number of the shard."""
        return self.sqlite_reader.list_all_sample_parts()

    def list_sample_parts(self, sample_key: str) -> Iterator[ListedEntry]:
        """The parts of a sample: name of the part, bytes, number of the shard."""
        return self.sqlite_reader.list_sample_parts(sample_key)

    def get_total_size(self) -> int:
        """Bytes of all samples, with headers."""
        return self.sqlite_reader.get_total_size()

    def close(self) -> None:
        """Close the database."""
        self.sqlite_reader.close()


class IJsonlReader(JsonlFileStore):
    """Records of a JSONL file: by number as undecoded samples, by the name ``3.json`` with their source.

    Args:
        jsonl_path: the file.
        sample_filter: says of a key whether the record is wanted; where not, ``None`` comes in its place.
        settings: Energon's other arguments; nothing is held open here.
    """

    def __init__(self, jsonl_path: str | os.PathLike[str], sample_filter: Filter = None, **settings: Any) -> None:
        super().__init__(jsonl_path)
        self.sample_filter = sample_filter

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, str) and idx.endswith(".json"):
            return super().__getitem__(idx)
        key = str(int(idx))
        if self.sample_filter is not None and not self.sample_filter(key):
            return None
        data, source = super().__getitem__(key)
        base = {"__key__": key, "__shard__": source.shard_name, "__restore_key__": ("Webdataset", int(key))}
        return {**base, "__sources__": (source,), "json": data}
