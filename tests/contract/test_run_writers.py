"""TensorBoard, and Weights & Biases without a network: what a run writes is what their own readers read."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from omniloom.train.answer_pages import Answer, write_answers
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


def test_tensorboard_shows_pictures_and_answers(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (tmp_path / "samples").mkdir()
    Image.new("RGB", (6, 4), (10, 200, 30)).save(tmp_path / "samples/set-0.png")
    both = [
        Answer(step=2, sample="set-0", picture="set-0.png", prompt="What?", expected="Green.", answer="Red."),
        Answer(step=2, sample="set-1", picture=None, prompt="Why?", expected="So.", answer="No."),
    ]
    write_answers(tmp_path, both)
    write(tmp_path, LogConfig(every_steps=100, tensorboard=True), range(1, 4), first_step=0)
    read = accumulator.EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"images": 0, "tensors": 0})
    read.Reload()
    (shown,) = read.Images("answers/set-0")
    assert shown.step == 2
    assert Image.open(io.BytesIO(shown.encoded_image_string)).getpixel((5, 3)) == (10, 200, 30)
    (told,) = read.Tensors("answers/set-1/text_summary")
    assert "**No.**" in told.tensor_proto.string_val[0].decode()
    assert set(read.Tags()["images"]) == {"answers/set-0"}


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
