"""Pads: flagged batches that give every rank equally many steps, so that no collective waits for ever."""

from __future__ import annotations

from typing import Any

from omniloom.data.loader.dataset import Dataset
from omniloom.data.loader.runner import EmptyUnit, LaneRunner
from omniloom.data.pipeline.faults import FaultPolicy
from omniloom.data.pipeline.seeding import caller_random_state
from omniloom.data.plan.lane import Lane
from omniloom.errors import DatasetError


class PadMaker:
    """Makes the first batch of the data again: every rank can, also one that has no data of its own.

    A pad carries ``__pad__``: True where its type has room for it; `Loader.is_pad` tells in any case.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def make(self, lanes: int) -> Any:
        """A pad. Raises DatasetError when the data has no batch at all."""
        with caller_random_state():
            runner = LaneRunner(self._dataset.pipeline, FaultPolicy(in_a_row=0))
            for index in range(lanes):
                runner.open(Lane(index, lanes), None)
                while (produced := runner.next(index)).batch is EmptyUnit:
                    pass
                if not produced.ended:
                    break
            else:
                raise DatasetError("no batch can be made of this data set: all its samples are left out")
        batch = produced.batch if self._dataset.finish is None else self._dataset.finish(produced.batch)
        if isinstance(batch, dict):
            return {**batch, "__pad__": True}
        if hasattr(batch, "__pad__"):
            batch.__pad__ = True
        return batch
