"""The key database of a data set and the index of a join, as tools for Energon read and write them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from omniloom.data.index.layout import MAIN_FOLDER
from omniloom.data.mix.energon_join import MAGIC
from omniloom.data.side.key_index import KeyIndex, ListedEntry
from omniloom.energon.adapters.epath import EPath
from omniloom.energon.adapters.shard_index import ITarRawSamplePartPointer, ITarSamplePointer
from omniloom.errors import DatasetError, MissingKeyError

Place = tuple[int, int, int]


class SqliteIndexReader:
    """What the key database of a prepared data set says.

    Args:
        sqlite_path: the database, ``.nv-meta/index.sqlite`` of the data set.
    """

    def __init__(self, sqlite_path: EPath) -> None:
        self.sqlite_path = sqlite_path
        if sqlite_path.parent.name != MAIN_FOLDER:
            raise DatasetError(f"{sqlite_path}: the key database of a data set lies in its folder {MAIN_FOLDER}")
        self._index = KeyIndex(str(sqlite_path.parent.parent))

    def db_has_sample_parts(self) -> bool:
        """Whether the parts of samples are in it; they are not in old ones."""
        return self._index.has_table("sample_parts")

    def db_has_media_metadata(self) -> bool:
        """Whether media metadata are in it."""
        return self._index.has_table("media_metadata")

    def list_all_samples(self) -> Iterator[ListedEntry]:
        """All samples: key, bytes, number of the shard."""
        return self._index.samples()

    def list_all_sample_parts(self) -> Iterator[ListedEntry]:
        """All parts: full name, bytes, number of the shard."""
        return self._index.parts()

    def list_sample_parts(self, sample_key: str) -> Iterator[ListedEntry]:
        """The parts of a sample: name of the part, bytes, number of the shard."""
        return (part._replace(name=part.name[len(sample_key) + 1 :]) for part in self._index.parts(sample_key))

    def get_total_size(self) -> int:
        """Bytes of all samples, with headers."""
        return self._index.total_bytes()

    def get_sample_count(self) -> int:
        """Number of samples."""
        return self._index.count()

    def get_sample_pointer_by_key(self, key: str) -> ITarSamplePointer:
        """Where a sample lies. Raises MissingKeyError."""
        shard, start, size = self._one(self._index.spans(key), key)
        return ITarSamplePointer(tar_file_id=shard, byte_offset=start, byte_size=size)

    def get_sample_part(self, key: str, part_name: str) -> ITarRawSamplePartPointer:
        """Where the content of a part lies. Raises MissingKeyError."""
        shard, start, size = self._one(self._index.part_spans(key, part_name), f"{key}.{part_name}")
        return ITarRawSamplePartPointer(tar_file_id=shard, raw_byte_offset=start, raw_byte_size=size)

    def get_media_metadata(self, entry_key: str) -> tuple[str, str] | None:
        """Type and JSON of what is known of a medium; ``None``: nothing."""
        return self._index.media_entry(entry_key)

    def close(self) -> None:
        """Close the database; the next question opens it again."""
        self._index.close()

    def __enter__(self) -> SqliteIndexReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _one(self, found: list[Place], name: str) -> Place:
        if len(found) != 1:
            told = "ambiguous: it is there more than once" if found else "not there"
            raise MissingKeyError(f"{self.sqlite_path}: {name!r} is {told}", reason="missing-key")
        return found[0]


class JoinIndexReader:
    """The rows of the index of a join: for each data set the number of the shard, first byte and length; -1: nothing.

    Args:
        join_index_path: the file.
        column: read only one data set's places.
    """

    def __init__(self, join_index_path: EPath, column: int | None = None) -> None:
        self.join_index_path, self.column = join_index_path, column
        data = join_index_path.read_bytes()
        if data[: len(MAGIC)] != MAGIC or len(data) < len(MAGIC) + 8:
            raise DatasetError(f"{join_index_path}: no index of a join: {data[:8]!r} found, {MAGIC!r} expected")
        numbers = np.frombuffer(data, "<i8", offset=len(MAGIC))
        self.num_columns = int(numbers[0])
        self._rows = numbers[1:].reshape(-1, self.num_columns, 3)

    def get_as_tensor(self) -> Any:
        """All rows, int64 (rows, data sets, 3)."""
        import torch  # noqa: PLC0415

        return torch.from_numpy(self._rows.astype(np.int64))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, idx: int) -> list[Place]:
        if not 0 <= idx < len(self):
            raise IndexError(f"{self.join_index_path}: there is no row {idx}; it has {len(self)}")
        row = self._rows[idx] if self.column is None else self._rows[idx, self.column : self.column + 1]
        return [tuple(place) for place in row.tolist()]

    def __iter__(self) -> Iterator[list[Place]]:
        return (self[row] for row in range(len(self)))

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> JoinIndexReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class JoinIndexWriter:
    """Writes the index of a join.

    Args:
        join_index_path: the file; it is complete when it is closed.
    """

    def __init__(self, join_index_path: EPath) -> None:
        self.join_index_path = join_index_path
        self._rows: list[tuple[Place, ...]] = []

    def append(self, *columns: Place) -> None:
        """Add a row: the place of each data set. Raises DatasetError where there are more or fewer than before."""
        if self._rows and len(columns) != len(self._rows[0]):
            raise DatasetError(
                f"{self.join_index_path}: a row of {len(columns)} places after rows of {len(self._rows[0])}"
            )
        self._rows.append(columns)

    def close(self) -> None:
        """Write the file."""
        width = len(self._rows[0]) if self._rows else 0
        numbers = np.array([width, *chain.from_iterable(chain.from_iterable(self._rows))], "<i8")
        self.join_index_path.write_bytes(MAGIC + numbers.tobytes())

    def __enter__(self) -> JoinIndexWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DuplicateSampleKeyError(DatasetError):
    """A sample's key is there more than once.

    Args:
        sample_key: the key.
    """

    def __init__(self, sample_key: str) -> None:
        super().__init__(f"the key {sample_key!r} is there more than once: make keys unique with --fix-duplicates")
        self.sample_key = sample_key
