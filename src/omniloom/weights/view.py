"""A table laid over a source: their tensors seen as ours, or ours as theirs, changed when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from omniloom.errors import WeightsError
from omniloom.weights.changes import Range
from omniloom.weights.source import Source, TensorInfo
from omniloom.weights.table import Row, Table

_LISTED = 40


class OursView(Source):
    """Somebody's tensors under our names and in our layout.

    Args:
        source: their tensors.
        table: what they call ours.
        fresh: prefixes of our names that may be missing because they start anew; what of them is there is read.

    Attributes:
        absent: our names that are missing and start anew.

    Raises:
        WeightsError: names of either side are left over, or shapes do not fit; all of them are listed.
    """

    def __init__(self, source: Source, table: Table, *, fresh: Iterable[str] = ()) -> None:
        self.where = source.where
        self._source = source
        self._table = table
        self._last: tuple[str, tuple[Tensor, ...]] | None = None
        unknown, missing = table.left_over(source.tensors)
        fresh = tuple(fresh)
        new_rows = {theirs for theirs in missing if _all_start_with(table.by_theirs[theirs].our_names, fresh)}
        misfits: list[str] = []
        self.absent = tuple(name for theirs in sorted(new_rows) for name in table.by_theirs[theirs].our_names)
        self.tensors = _ours_of(source, table, misfits)
        complain(
            source.where,
            {
                "without a place in this model": unknown,
                "missing, though this model needs them": [name for name in missing if name not in new_rows],
                "of another shape": misfits,
            },
        )

    def read(self, name: str) -> Tensor:
        """Read their tensor and take ours out of it."""
        self.info(name)
        row, part = self._table.by_ours[name]
        if self._last is None or self._last[0] != row.theirs:
            self._last = (row.theirs, row.change.undo(self._whole(row.theirs)))
        parts = self._last[1]
        if part == len(parts) - 1:
            self._last = None  # all of a row's parts are mostly read in order; none is kept longer than needed
        return parts[part]

    def read_range(self, name: str, wanted: Range) -> Tensor:
        """Read only the range of their tensor, where it is one range there."""
        self.info(name)
        row, part = self._table.by_ours[name]
        found = row.change.locate(part, wanted, whole=self._source.info(row.theirs).shape)
        if found is None:
            return super().read_range(name, wanted)
        return self._source.read_range(row.theirs, found)

    def identity(self) -> str:
        """That of the source."""
        return self._source.identity()

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def _whole(self, theirs: str) -> Tensor:
        whole = self._source.read(theirs)
        for copy, original in self._table.copies.items():
            if original == theirs and copy in self._source.tensors and not _same(whole, self._source.read(copy)):
                raise WeightsError(
                    f"{self.where}: {copy!r} should be tied to {theirs!r}, but holds other numbers. "
                    "Set tie_word_embeddings to false in config.json if the head is a weight of its own."
                )
        return whole


class TheirsView(Source):
    """Our tensors under somebody's names and in their layout.

    Args:
        source: our tensors.
        table: what they call ours.

    Attributes:
        unplaced: our names for which their form has no tensor.

    Raises:
        WeightsError: names of either side are left over, or shapes do not fit; all of them are listed.
    """

    def __init__(self, source: Source, table: Table) -> None:
        self.where = source.where
        self._source = source
        self._table = table
        self.unplaced = tuple(name for name in table.unplaced if name in source.tensors)
        there = source.tensors.keys()
        misfits: list[str] = []
        self.tensors = _theirs_of(source, table, misfits)
        complain(
            source.where,
            {
                "without a place in the other form": sorted(there - table.by_ours.keys() - set(table.unplaced)),
                "missing, though the other form needs them": sorted(table.by_ours.keys() - there),
                "of another shape": misfits,
            },
        )

    def read(self, name: str) -> Tensor:
        """Read ours and make theirs out of them."""
        self.info(name)
        row = self._table.by_theirs[name]
        return row.change.apply(*(self._source.read(ours) for ours in row.our_names))

    def identity(self) -> str:
        """That of the source."""
        return self._source.identity()

    def close(self) -> None:
        """Close the source."""
        self._source.close()


def complain(where: str, findings: Mapping[str, list[str]]) -> None:
    """Raise one error that lists everything that does not fit.

    Args:
        where: what was read.
        findings: for each kind of fault, the names.

    Raises:
        WeightsError: at least one fault is there.
    """
    parts = []
    for kind, names in findings.items():
        if names:
            shown = ", ".join(repr(name) if " " not in name else name for name in names[:_LISTED])
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            parts.append(f"tensors {kind} ({len(names)}): {shown}{more}")
    if parts:
        raise WeightsError(
            f"{where}: " + "; ".join(parts) + ". Check that config and weights are of one model; name what is to start "
            "anew with `--init NAME=fresh`."
        )


def check_shapes(source: Source, expected: Mapping[str, tuple[int, ...]], *, fresh: Iterable[str] = ()) -> None:
    """Compare a source in our names with the parameters of a model.

    Args:
        source: tensors under our names.
        expected: shape of each parameter of the model.
        fresh: prefixes of names that may be missing.

    Raises:
        WeightsError: names are left over on either side or shapes differ; all of them are listed.
    """
    there, needed = source.tensors.keys(), expected.keys()
    absent = [name for name in sorted(needed - there) if not name.startswith(tuple(fresh))]
    shapes = [
        f"{name!r} ({list(source.tensors[name].shape)}, the model has {list(expected[name])})"
        for name in sorted(there & needed)
        if source.tensors[name].shape != tuple(expected[name])
    ]
    complain(
        source.where,
        {
            "without a place in this model": sorted(there - needed),
            "missing, though this model needs them": absent,
            "of another shape": shapes,
        },
    )


def _ours_of(source: Source, table: Table, misfits: list[str]) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for row in table.rows:
        info = source.tensors.get(row.theirs)
        if info is None:
            continue
        try:
            parts = row.change.undo(info.meta())
        except (WeightsError, RuntimeError, ValueError) as error:
            misfits.append(f"{row.theirs!r} ({error})")
            continue
        tensors.update(
            {name: TensorInfo(tuple(p.shape), p.dtype) for name, p in zip(row.our_names, parts, strict=True)}
        )
    return tensors


def _theirs_of(source: Source, table: Table, misfits: list[str]) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for row in table.rows:
        if all(name in source.tensors for name in row.our_names):
            try:
                whole = row.change.apply(*(source.tensors[name].meta() for name in row.our_names))
            except (WeightsError, RuntimeError, ValueError) as error:
                misfits.append(f"{_named(row)} ({error})")
                continue
            tensors[row.theirs] = TensorInfo(tuple(whole.shape), whole.dtype)
    return tensors


def _named(row: Row) -> str:
    return " + ".join(repr(name) for name in row.our_names)


def _all_start_with(names: Iterable[str], prefixes: tuple[str, ...]) -> bool:
    return bool(prefixes) and all(name.startswith(prefixes) for name in names)


def _same(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and left.dtype == right.dtype and torch.equal(left, right)
