"""Checkpoints: one folder a step, whole or not there.

A step is written to ``step-00000500.partial`` and renamed when every rank has written its share, so a folder with the
final name is complete whatever was killed when; in a store a list of its files is written last (see
`checkpoint_places`). Tensors are a distributed checkpoint (DCP), which any other number of
ranks reads; all else is plain JSON.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors
from torch.distributed.checkpoint.state_dict_saver import async_save as begin_saving_tensors
from torch.distributed.checkpoint.state_dict_saver import save as save_tensors

from omniloom.errors import ConfigError, StateError, StorageError
from omniloom.storage.urls import redacted
from omniloom.train.checkpoint_places import (
    LOADER,
    Address,
    DiskPlace,
    loader_states,
    place_of_checkpoints,
    read_json,
    tensor_reader,
)
from omniloom.train.checkpoint_places import TRAINER as TRAINER  # noqa: PLC0414 - others import it from here
from omniloom.train.sound_reading import SoundPlanner

FORMAT = 2
# Flat: each entry stands under a parameter's name, so stages that hold other parameters can read one another's.
_OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True, strict=True)

_ALONE_WARNING = "torch.distributed is disabled"


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When to save.

    Attributes:
        every_steps: a checkpoint each so many steps, and at the end; 0: at the end alone.
        keep_last: older ones are removed beyond so many; 0: none is.
        keep_every_steps: those of each so many steps are never removed; 0: none.
        asynchronous: write while training goes on.
        place: folder for the checkpoints, a path or URL; empty: that of the run.
    """

    every_steps: int = 500
    keep_last: int = 3
    keep_every_steps: int = 0
    asynchronous: bool = True
    place: str = ""

    def __post_init__(self) -> None:
        if min(self.every_steps, self.keep_last, self.keep_every_steps) < 0:
            raise ConfigError("checkpoint: every_steps, keep_last and keep_every_steps cannot be below 0.")


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a run goes on.

    Attributes:
        step: steps that were taken.
        trainer: what the trainer saved of itself.
        loader: the loader states of all ranks that saved.
    """

    step: int
    trainer: Mapping[str, Any]
    loader: list[dict[str, Any]]


class Checkpoints:
    """The checkpoints of a run.

    Args:
        folder: of the run; steps lie in it, where the configuration names no other place.
        config: when to save, and what to keep.
    """

    def __init__(self, folder: Path, config: CheckpointConfig) -> None:
        self.folder: Address = config.place or folder
        self.config = config
        self._place = place_of_checkpoints(self.folder)
        self._writing: tuple[Future[Any] | None, int] | None = None
        # Its own group: on the default one, writing in the background would mix with the training's collectives.
        ranks = distributed.get_world_size() if distributed.is_initialized() else 1
        self._group = distributed.new_group(backend="gloo") if ranks > 1 else None

    def due(self, step: int, *, last: bool) -> bool:
        """Whether a checkpoint is to be saved after so many steps."""
        return last or bool(self.config.every_steps and step % self.config.every_steps == 0)

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        trainer: Mapping[str, Any],
        loader: Mapping[str, Any],
    ) -> None:
        """Save; the one before is completed first. All ranks call it.

        Args:
            step: steps that were taken.
            model: whose parameters are saved.
            optimizer: whose states are saved.
            trainer: plain values, from the first rank.
            loader: this rank's loader state.

        Raises:
            StorageError: it, or the one before, could not be written.
        """
        self.finish()
        if _rank() == 0:
            self._place.begin(step)
            self._place.write(step, TRAINER, json.dumps({"format": FORMAT, "step": step, **trainer}, indent=1))
        self._wait_for_all()
        self._place.write(step, f"{LOADER}/rank-{_rank():05d}.json", json.dumps(loader))
        state = _tensors(model, optimizer)
        writer = self._place.writer(step)
        if self.config.asynchronous:  # its thread warns after this call has returned, so the filter has to stay
            warnings.filterwarnings("ignore", message=_ALONE_WARNING)
        with _quiet(), self._told_if_not_written(step):
            if self.config.asynchronous:
                future = begin_saving_tensors(state, storage_writer=writer, process_group=self._group)
                self._writing = future, step  # type: ignore[assignment]
                return
            save_tensors(state, storage_writer=writer, process_group=self._group, no_dist=_alone())
        self._writing = None, step
        self.finish()

    def finish(self) -> None:
        """Wait for what is being written, and give it its final name. All ranks call it.

        Raises:
            StorageError: it could not be written.
        """
        if self._writing is None:
            return
        future, step = self._writing
        self._writing = None
        if future is not None:
            with self._told_if_not_written(step):
                future.result()
        self._wait_for_all()
        if _rank() == 0:
            self._place.complete(step)
            self._remove_old()
        self._wait_for_all()

    def restore(self, path: Address, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> Resumed:
        """Fill a model, and an optimizer, from a checkpoint of any number of ranks. All ranks call it.

        Raises:
            StateError: the folder is no complete checkpoint, or its tensors do not fit the model.
        """
        trainer = self.trainer(path)
        state = _tensors(model, optimizer)
        try:
            with _quiet():
                load_tensors(
                    state,
                    storage_reader=tensor_reader(path),
                    planner=SoundPlanner(),
                    process_group=self._group,
                    no_dist=_alone(),
                )
        except StateError:
            raise
        except (RuntimeError, ValueError, KeyError, CheckpointException) as error:
            raise StateError(_misfit(path, error)) from error
        _fill(model, optimizer, state)
        return Resumed(int(trainer["step"]), trainer, loader_states(path))

    def trainer(self, path: Address) -> Mapping[str, Any]:
        """What the trainer saved of itself in a checkpoint.

        Raises:
            StateError: the folder is no complete checkpoint, or one of another format.
        """
        trainer = read_json(path, TRAINER)
        if trainer.get("format") != FORMAT:
            raise StateError(f"{path}: checkpoint format {trainer.get('format')} found, {FORMAT} expected.")
        return trainer

    def latest(self) -> Address | None:
        """The complete checkpoint of the most steps; ``None`` where there is none."""
        found = self._place.found()
        return found[max(found)] if found else None

    @contextmanager
    def _told_if_not_written(self, step: int) -> Iterator[None]:
        """Errors of torch's writers, which are about a disk as a rule, as ours: with what is left to go on from."""
        try:
            yield
        except (OSError, RuntimeError, CheckpointException) as error:
            if _rank() == 0:
                with suppress(StorageError):
                    self._place.abandon(step)
            found = self._place.found()
            left = f"a run goes on from step {max(found)}" if found else "there is no other one yet"
            raise StorageError(
                f"{redacted(str(self.folder))}: the checkpoint of step {step} could not be written: "
                f"{_cause(error)}. Make room, or see who may write there, and give the same command again: "
                f"{left}."
            ) from error

    def _remove_old(self) -> None:
        found = self._place.found()
        kept = self.config.keep_every_steps
        old = [step for step in sorted(found) if not (kept and step % kept == 0)]
        for step in old[: -self.config.keep_last] if self.config.keep_last else []:
            self._place.remove(step)

    def _wait_for_all(self) -> None:
        if self._group is not None:
            distributed.barrier(group=self._group)


def complete_checkpoints(folder: Path) -> dict[int, Path]:
    """The complete checkpoints in a folder by their steps: by what is in them, never by name alone."""
    return DiskPlace(folder).found()


def read_weights(path: Address, tensors: Mapping[str, torch.Tensor]) -> None:
    """Fill whole tensors with parameters of a checkpoint, by their names in its model. This process reads alone.

    Raises:
        StateError: the checkpoint has no such parameter, or one of another shape.
    """
    try:
        with _quiet():
            load_tensors(
                {"model": dict(tensors)}, storage_reader=tensor_reader(path), planner=SoundPlanner(), no_dist=True
            )
    except StateError:
        raise
    except (RuntimeError, ValueError, KeyError, CheckpointException) as error:
        raise StateError(_misfit(path, error)) from error


def _misfit(path: Address, error: BaseException) -> str:
    return (
        f"{path}: does not fit this model: {_cause(error)}. Go on with the model and the parts that it was saved with; "
        f"or begin another run with its weights: another folder, and model.start: {path}."
    )


def _cause(error: BaseException) -> str:
    """What is wrong in a line, without the traceback that torch tells it with; of several ranks, by the first."""
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return next(iter(str(error).strip().splitlines()), type(error).__name__).removesuffix(".")


def _tensors(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    weights, states = get_state_dict(model, _of_something(optimizer), options=_OPTIONS)
    return {"model": weights, "optimizer": states} if optimizer is not None else {"model": weights}


def _fill(model: nn.Module, optimizer: torch.optim.Optimizer | None, state: dict[str, Any]) -> None:
    set_state_dict(
        model,
        _of_something(optimizer),
        model_state_dict=state["model"],
        optim_state_dict=state.get("optimizer", {}),
        options=_OPTIONS,
    )


def _of_something(optimizer: torch.optim.Optimizer | None) -> tuple[torch.optim.Optimizer, ...]:
    """The optimizer, unless it has no parameters: a stage of a pipeline may learn nothing."""
    return (optimizer,) if optimizer is not None and any(group["params"] for group in optimizer.param_groups) else ()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warning that there is one process: that is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_ALONE_WARNING)
        yield


def _rank() -> int:
    return distributed.get_rank() if distributed.is_initialized() else 0


def _alone() -> bool:
    return not distributed.is_initialized()
