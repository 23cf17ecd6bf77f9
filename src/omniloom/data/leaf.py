"""A leaf at work: a source whose rows are read and made samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from omniloom.data.media.decoder import IMAGE_EXTENSIONS
from omniloom.data.media.own_decoder import OwnDecoder
from omniloom.data.pipeline.faults import Origin
from omniloom.data.row_cook import RowCook
from omniloom.data.sample import RawSample, SampleKey, SourceInfo
from omniloom.data.shards.rows import Rows, first_row
from omniloom.data.side.store import SideStore
from omniloom.storage.urls import is_url, redacted


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
    _first_row: int = field(init=False, repr=False, compare=False)
    _shown_path: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._first_row = first_row(self.rows)
        self._shown_path = redacted(self.path) if is_url(self.path) else self.path

    @property
    def far_rows(self) -> Any:
        """The rows, where they lie in a store (see `read_ahead.FarRows`); else ``None``."""
        return self.rows if getattr(self.rows, "is_far", False) else None

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
        return self.cook_row(raw, key, SourceInfo(self._shown_path, key[2] + self._first_row, shard, files))

    def decodes_images(self) -> bool:
        """Whether making a sample takes decoding images; judged by the field map, or by the first row."""
        decoder = self.cook_row.decoder
        if decoder is None or decoder.image_decode == "raw":
            return False
        wanted = self.cook_row.wanted
        parts = wanted if isinstance(wanted, frozenset) else self.rows.parts_of_first_row()
        return any(part.rpartition(".")[2].lower() in IMAGE_EXTENSIONS for part in parts)

    def keeps_arrays(self) -> bool:
        """Whether an array in a sample may be one, and not stand for a tensor that the caller's process makes of it.

        Parts that become arrays are judged as for `decodes_images`; what a user's function makes is not known.
        """
        decoder, wanted = self.cook_row.decoder, self.cook_row.wanted
        if self.cook_row.calls_users or isinstance(decoder, OwnDecoder):
            return True
        if decoder is None or not decoder.late:
            return False
        parts = wanted if isinstance(wanted, frozenset) else self.rows.parts_of_first_row()
        return any(decoder.gives_array(part) for part in parts)

    def eager(self) -> Leaf:
        """The leaf with a decoder that makes tensors at once."""
        return replace(self, cook_row=self.cook_row.eager())

    def origin(self, row: int) -> Origin:
        """Where a row lies, for messages."""
        shard, byte_range = self.rows.origin(row)
        return Origin(self.name, None, shard, byte_range)
