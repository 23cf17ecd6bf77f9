"""TensorBoard, and Weights & Biases without a network: what a run writes is what their own readers read."""

from __future__ import annotations

from pathlib import Path

import pytest

from omniloom.train.metrics import LogConfig, StepLog


def write(folder: Path, config: LogConfig, steps: range, *, first_step: int) -> None:
    log = StepLog(folder, config, steps=10, first_step=first_step, writing=True)
    for step in steps:
        log.step(step, {"loss": 10.0 / step, "learning_rate": 0.5, "told": None})
    log.close()


def test_tensorboard_has_each_step_once_after_a_resume(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = LogConfig(every_steps=100, tensorboard=True)
    write(tmp_path, config, range(1, 5), first_step=0)
    write(tmp_path, config, range(3, 6), first_step=2)  # steps 3 and 4 come again
    read = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    assert set(read.Tags()["scalars"]) == {"loss", "learning_rate"}
    events = read.Scalars("loss")
    assert [event.step for event in events] == [1, 2, 3, 4, 5]
    assert [event.value for event in events] == pytest.approx([10, 5, 10 / 3, 2.5, 2])


@pytest.mark.slow
def test_wandb_goes_on_with_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    config = LogConfig(every_steps=100, wandb_project="omniloom-tests")
    write(tmp_path, config, range(1, 3), first_step=0)
    name = (tmp_path / "wandb-run-id").read_text()
    write(tmp_path, config, range(3, 5), first_step=2)
    assert (tmp_path / "wandb-run-id").read_text() == name
    runs = list((tmp_path / "wandb").glob("offline-run-*"))
    assert runs
    assert all(run.name.endswith(name) for run in runs)
    assert any(path.stat().st_size > 0 for run in runs for path in run.glob("*.wandb"))
