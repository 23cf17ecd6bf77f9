"""How a run ends and goes on where something went wrong: full disks, failing data, what kills left behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from omniloom.data.convert.llava import convert_llava
from omniloom.data.loader.config import WorkerConfig
from omniloom.errors import ConfigError, DatasetError, StateError, StorageError
from omniloom.train.checkpoint import CheckpointConfig, complete_checkpoints
from omniloom.train.data import DataConfig, task_encoder
from omniloom.train.fault_counts import FaultCounts
from omniloom.train.hang_watch import HangConfig
from omniloom.train.hooks import Hook, before_first_step
from omniloom.train.in_training import EvaluationConfig, HeldOutLoss
from omniloom.train.loop import LoopConfig, TrainingError, train
from omniloom.train.metrics import STEPS_FILE, LogConfig
from omniloom.train.model_files import ModelConfig, model_config
from omniloom.train.optimizer import OptimizerConfig, make_optimizer
from omniloom.train.parts import freeze
from omniloom.train.profiling import ProfileConfig, Profiler
from tests.contract.test_training import Poisoned, losses, make_run
from tests.contract.tiny_llava import TinyLoader, tiny_llava

EACH_STEP = CheckpointConfig(every_steps=1, asynchronous=True)


def test_what_was_being_written_is_whole_where_the_run_fails_later(tmp_path: Path) -> None:
    with pytest.raises(TrainingError):
        train(make_run(tmp_path, steps=9, loader=Poisoned(), most_skips=1, checkpoint=EACH_STEP))
    assert max(complete_checkpoints(tmp_path)) == 2  # the third step was the one that failed


class Failing(TinyLoader):
    """Cannot load the fourth step's batches."""

    def __next__(self) -> Any:
        if self.taken == 6:
            raise DatasetError("the disk is gone")
        return super().__next__()


def test_so_it_is_where_the_data_fails(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="the disk is gone"):
        train(make_run(tmp_path, steps=9, loader=Failing(), checkpoint=EACH_STEP))
    assert max(complete_checkpoints(tmp_path)) == 3


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_checkpoint_that_cannot_be_written_is_told_with_what_is_left(
    asynchronous: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.distributed.checkpoint import filesystem  # noqa: PLC0415

    config = CheckpointConfig(every_steps=2, asynchronous=asynchronous)
    train(make_run(tmp_path / "whole", checkpoint=config))
    train(make_run(tmp_path / "full", steps=2, checkpoint=config))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(filesystem, "_write_item", full)
        with pytest.raises(StorageError, match=r"step 4 could not be written: .*No space left.* goes on from step 2"):
            train(make_run(tmp_path / "full", checkpoint=config))
    assert sorted(complete_checkpoints(tmp_path / "full")) == [2]
    assert not list((tmp_path / "full").glob("*.partial"))  # it would take what room there is
    assert train(make_run(tmp_path / "full", checkpoint=config)) == 6
    assert losses(tmp_path / "full") == losses(tmp_path / "whole")
    assert not list((tmp_path / "full").glob("*.partial"))


def test_what_kills_left_behind_is_removed(tmp_path: Path) -> None:
    train(make_run(tmp_path, steps=2))
    for name in ("step-00000001.partial", "step-00000001.removed", "step-00000002.removed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "large").write_bytes(b"0" * 100)
    train(make_run(tmp_path, steps=4, checkpoint=CheckpointConfig(every_steps=1, keep_last=1)))
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-00000004"]


def test_a_misfit_is_told_in_a_line(tmp_path: Path) -> None:
    train(make_run(tmp_path, steps=2))
    other = make_run(tmp_path, steps=4)
    other.model = tiny_llava()
    freeze(other.model, {})  # what was frozen is trained now: it has no optimizer state in the checkpoint
    other.optimizer = make_optimizer(other.model, {}, OptimizerConfig())
    with pytest.raises(StateError, match="does not fit this model") as caught:
        train(other)
    assert "Traceback" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_data_that_gives_nothing_is_told(tmp_path: Path) -> None:
    class Empty(TinyLoader):
        def __next__(self) -> Any:
            raise StopIteration

    with pytest.raises(DatasetError, match="gives no batch"):
        train(make_run(tmp_path, loader=Empty()))


def test_the_history_of_steps_outlives_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(make_run(tmp_path, steps=2))
    before = (tmp_path / STEPS_FILE).read_text()

    def full(self: Path, *_: Any, **__: Any) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(StorageError, match="No space left"):
        train(make_run(tmp_path, steps=4))
    assert (tmp_path / STEPS_FILE).read_text() == before


def test_hooks_are_told_where_a_run_goes_on(tmp_path: Path) -> None:
    told: list[int] = []

    class Listening(Hook):
        def begins(self, step: int) -> None:
            told.append(step)

    for steps in (2, 4):
        run = make_run(tmp_path, steps=steps)
        run.begins = before_first_step([Listening()])
        train(run)
    assert told == [0, 2]


def test_a_window_of_the_profiler_counts_the_runs_steps(tmp_path: Path) -> None:
    """A window that lies behind is not taken again, and one ahead is not missed."""
    for first, wanted in ((2, []), (4, ["steps-00000004-00000004.rank-00000.txt"])):
        profiler = Profiler(ProfileConfig(first_step=first, steps=1), tmp_path, rank=0)
        profiler.begins(3)
        profiler.waiting()
        profiler.after_step(4)
        assert [path.name for path in sorted(tmp_path.glob("profile/*.txt"))] == wanted


def test_samples_left_out_are_told_with_each_step(caplog: pytest.LogCaptureFixture) -> None:
    class Loader:
        def stats(self) -> dict[str, Any]:
            one = {"yielded": 7, "skipped": {"no-target": 2}}
            return {"datasets": {"a": one, "b": {"yielded": 0, "skipped": {"no-target": 1, "bad-role": 5}}}}

    hook = FaultCounts(Loader())
    assert hook.after_step(1) == {"left_out_samples": 8, "left_out/bad-role": 5, "left_out/no-target": 3}
    hook.close()
    assert "8 of 15 samples were left out: 5 bad-role, 3 no-target" in caplog.text
    assert FaultCounts(None).after_step(1) == {}


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (LoopConfig, {"steps": 1, "clip_norm": -1.0}, "clip_norm -1"),
        (LoopConfig, {"steps": 1, "most_norm": -1.0}, "most_norm -1"),
        (LoopConfig, {"steps": 1, "limit_seconds": -5.0}, "limit_seconds -5"),
        (LoopConfig, {"steps": 1, "most_skips": 0}, "most_skips 0"),
        (LogConfig, {"every_steps": 0}, "every_steps 0"),
        (HangConfig, {"end": True}, "without hang.after_seconds"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(kind: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**settings)


def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        (tmp_path / "run").write_text("a file")  # root may write anywhere; a file in the folder's place is in the way
    else:
        (tmp_path / "run").mkdir(mode=0o500)
    with pytest.raises(StorageError, match=r"cannot write .*run"):
        train(make_run(tmp_path / "run", steps=2))


def test_settings_that_have_changed_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved = {"data": {"max_tokens": 2048, "system": None}, "parts": {}, "loop": {"steps": 2}}
    now = {"data": {"max_tokens": 1024, "system": "Hi"}, "parts": {"projector": {"rate": 2.0}}, "loop": {"steps": 2}}
    for facts in (saved, now):
        run = make_run(tmp_path, steps=2)
        run.facts = {"recipe": facts}
        with caplog.at_level("INFO"):
            train(run)
    told = "data.max_tokens: 2048 -> 1024; data.system: nothing -> Hi; parts.projector.rate: nothing -> 2.0"
    assert f"step-00000002 was saved with other settings: {told}" in caplog.text
    assert "all of its 2 steps have been taken" in caplog.text


def test_held_out_data_of_no_use_gives_no_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two samples whose placeholders have no image: a mean over nothing is no zero."""
    turns = [{"from": "human", "value": "<image>What?"}, {"from": "gpt", "value": "That."}]
    entries = [{"id": str(n), "conversations": turns} for n in range(2)]
    (tmp_path / "in.json").write_text(json.dumps(entries))
    convert_llava(tmp_path / "in.json", images=tmp_path, out=tmp_path / "set")
    tiny = Path(__file__).resolve().parents[2] / "recipes/models/tiny.json"
    settings = ModelConfig(config=str(tiny), tokenizer="bytes")
    data = DataConfig(train="", validation_split_part="train", max_tokens=200)
    loss = HeldOutLoss(
        tiny_llava(), str(tmp_path / "set"), data=data, settings=EvaluationConfig(every_steps=1, batches=2),
        encoder=task_encoder(data, settings, model_config(settings)),
        workers=WorkerConfig(rank=0, world_size=1, num_workers=0), device=torch.device("cpu"), steps=1,
    )  # fmt: skip
    assert loss.after_step(1) == {"validation_tokens": 0}
    assert "nothing of the first 2 held-out batches of set can be used" in caplog.text


def test_a_second_signal_does_not_cost_the_last_checkpoint(tmp_path: Path) -> None:
    """Schedulers send more than one: while the last checkpoint is written, they are still heard."""

    class Telling(TinyLoader):
        def __next__(self) -> Any:
            if self.taken == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().__next__()

    heard: list[bool] = []
    run = make_run(tmp_path, loader=Telling(), checkpoint=EACH_STEP)
    finish = run.checkpoints.finish

    def finishing() -> None:
        heard.append(signal.getsignal(signal.SIGTERM) != signal.SIG_DFL)
        finish()

    run.checkpoints.finish = finishing  # type: ignore[method-assign]
    assert train(run) == 2
    assert all(heard)
    assert sorted(complete_checkpoints(tmp_path)) == [1, 2]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
