"""Training in one process: the loss of a global batch, freezing, schedules, checkpoints, resuming, stopping."""

from __future__ import annotations

import json
import logging
import math
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from omniloom.errors import ConfigError, StateError
from omniloom.train.batches import PackedMicroBatch
from omniloom.train.checkpoint import CheckpointConfig, Checkpoints, complete_checkpoints
from omniloom.train.hooks import after_each_step
from omniloom.train.left_out import LeftOut
from omniloom.train.loop import LoopConfig, Run, TrainingError, train
from omniloom.train.metrics import STEPS_FILE, LogConfig
from omniloom.train.optimizer import OptimizerConfig, gradient_norm, make_optimizer, set_learning_rate
from omniloom.train.parts import PartConfig, counts, freeze, parameter_groups
from omniloom.train.schedule import ScheduleConfig, learning_rate
from omniloom.train.step import mean_loss, train_step
from tests.contract.tiny_llava import SETS, TinyLoader, packed_batch, tiny_llava

CPU = torch.device("cpu")
# One thread: the tensors are tiny, and threads that wait for each other spin.
torch.set_num_threads(1)
PARTS = {"vision_tower": PartConfig(train=False)}


def make_run(folder: Path, *, steps: int = 6, loader: Any = None, checkpoint: Any = None, **loop: Any) -> Run:
    model = tiny_llava()
    freeze(model, PARTS)
    return Run(
        model=model,
        optimizer=make_optimizer(model, PARTS, OptimizerConfig(weight_decay=0.1)),
        loader=loader or TinyLoader(),
        checkpoints=Checkpoints(folder, checkpoint or CheckpointConfig(every_steps=2, asynchronous=False)),
        loop=LoopConfig(steps=steps, micro_batches=2, **loop),
        schedule=ScheduleConfig(peak=1e-2, warmup_steps=2),
        log=LogConfig(every_steps=1),
        folder=folder,
    )


def steps_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / STEPS_FILE).read_text().splitlines()]


def losses(folder: Path) -> list[tuple[float, float]]:
    return [(line["loss"], line["gradient_norm"]) for line in steps_of(folder)]


# One step


def one_step(batches: list[Any]) -> tuple[float, dict[str, torch.Tensor]]:
    model = tiny_llava()
    optimizer = make_optimizer(model, {}, OptimizerConfig())
    set_learning_rate(optimizer, 1e-3)
    result = train_step(model, optimizer, [PackedMicroBatch.of(one, CPU) for one in batches], clip_norm=1.0)
    return result.loss, {name: value.detach() for name, value in model.named_parameters()}


def joined(batches: list[Any]) -> Any:
    whole = packed_batch(0)
    for name in ("input_ids", "labels", "document_lengths", "images"):
        setattr(whole, name, torch.cat([getattr(one, name) for one in batches]))
    whole.shown_tiles = torch.arange(len(whole.images))
    whole.image_positions = (whole.input_ids == 63).nonzero()[:, 0]
    return whole


def test_neither_loss_nor_step_hangs_on_how_the_batch_was_cut() -> None:
    batches = [packed_batch(n) for n in range(1, 5)]
    apart, together = one_step(batches), one_step([joined(batches)])
    halves = one_step([joined(batches[:1]), joined(batches[1:])])
    for other in (together, halves):
        assert other[0] == pytest.approx(apart[0], rel=1e-6)
        for name, value in apart[1].items():
            torch.testing.assert_close(other[1][name], value, rtol=1e-4, atol=1e-6, msg=name)


def test_the_loss_is_the_mean_over_learned_tokens_of_torchs_own() -> None:
    model, batch = tiny_llava(), PackedMicroBatch.of(packed_batch(1), CPU)
    logits = model(batch.input_ids, documents=batch.documents, images=batch.images)
    expected = torch.nn.functional.cross_entropy(logits, batch.labels, ignore_index=-100)
    loss, tokens = mean_loss(model, [batch])
    assert loss == pytest.approx(float(expected.detach()), rel=1e-6)
    assert tokens == batch.learned_tokens == int((batch.labels != -100).sum())


def test_the_loss_of_each_data_set_is_torchs_own_of_its_documents(tmp_path: Path) -> None:
    model, batches = tiny_llava(), [packed_batch(number, documents=5) for number in (0, 1)]
    terms, sets = [], []
    for batch in batches:
        made = PackedMicroBatch.of(batch, CPU)
        logits = model(made.input_ids, documents=made.documents, images=made.images)
        terms.append(torch.nn.functional.cross_entropy(logits, made.labels, reduction="none").detach())
        of_documents = [number % SETS for number in range(5)]
        sets += [
            which for which, length in zip(of_documents, batch.document_lengths, strict=True) for _ in range(length)
        ]
    every, of_tokens = torch.cat(terms), torch.tensor(sets)
    learned = torch.cat([batch.labels for batch in batches]) != -100

    run = make_run(tmp_path, steps=1, loader=TinyLoader(documents=5))
    run.data_sets = ("coco", "mine", "vqa", "not drawn")
    train(run)
    (line,) = steps_of(tmp_path)
    for number, name in enumerate(("coco", "mine", "vqa")):
        own = (of_tokens == number) & learned
        assert line[f"learned_tokens/{name}"] == int(own.sum())
        assert line[f"loss/{name}"] == pytest.approx(float(every[own].mean()), rel=1e-5)
    assert "loss/not drawn" not in line
    assert line["loss"] == pytest.approx(float(every[learned].mean()), rel=1e-5)


def test_clipping_is_torchs() -> None:
    model = tiny_llava()
    batch = PackedMicroBatch.of(packed_batch(1), CPU)
    (batch.loss(model).total / batch.learned_tokens).backward()
    parameters = list(model.parameters())
    norm = float(gradient_norm(parameters))
    assert norm == pytest.approx(float(torch.nn.utils.clip_grad_norm_(parameters, 0.1)), rel=1e-6)
    clipped = tiny_llava()
    optimizer = torch.optim.SGD([{"params": list(clipped.parameters()), "rate": 1.0}], lr=1.0)
    before = [value.detach().clone() for value in clipped.parameters()]
    train_step(clipped, optimizer, [batch], clip_norm=0.1)
    for old, new, other in zip(before, clipped.parameters(), parameters, strict=True):
        torch.testing.assert_close(old - new, other.grad if other.grad is not None else 0 * old, rtol=1e-3, atol=1e-6)


# Parts


def test_frozen_parts_stay_and_have_no_optimizer_state(tmp_path: Path) -> None:
    run = make_run(tmp_path, steps=2)
    before = {name: value.detach().clone() for name, value in run.model.named_parameters()}
    train(run)
    changed = {name.partition(".")[0] for name, value in run.model.named_parameters() if not value.equal(before[name])}
    assert changed == {"projector", "language_model"}
    assert len(run.optimizer.state) == sum(value.requires_grad for value in run.model.parameters())
    trained, frozen = counts(run.model)["vision_tower"]
    assert (trained, frozen) == (0, sum(value.numel() for value in run.model.vision_tower.parameters()))


def test_groups_are_by_part_and_vectors_do_not_decay() -> None:
    model = tiny_llava()
    freeze(model, {})
    assert all(parameter.requires_grad for parameter in model.parameters())
    parts = {"projector": PartConfig(rate=10.0), "language_model": PartConfig(first_layer=1)}
    freeze(model, parts)
    groups = {group["name"]: group for group in parameter_groups(model, parts, weight_decay=0.1)}
    assert groups["projector.decay"]["rate"] == 10
    assert groups["projector.no_decay"]["weight_decay"] == 0
    assert all(value.dim() == 1 for value in groups["projector.no_decay"]["params"])
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    assert not any("language_model.layers.0" in name or "embed_tokens" in name for name in trained)
    assert any("language_model.layers.1" in name for name in trained)
    assert "language_model.head.weight" in trained
    freeze(model, {"projector": PartConfig(first_layer=1)})
    projector = {name: value.requires_grad for name, value in model.projector.named_parameters()}
    assert projector == {name: name.startswith("fc2") for name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")}
    with pytest.raises(ConfigError, match="'tower' found; one of vision_tower, projector, language_model"):
        freeze(model, {"tower": PartConfig()})
    with pytest.raises(ConfigError, match="every part is frozen"):
        freeze(model, {name: PartConfig(train=False) for name in ("vision_tower", "projector", "language_model")})


def test_states_that_are_made_at_once_are_those_that_torch_makes() -> None:
    ours, theirs = tiny_llava(), tiny_llava()
    optimizers = (
        make_optimizer(ours, {}, OptimizerConfig(weight_decay=0.1)),
        torch.optim.AdamW(
            parameter_groups(theirs, {}, weight_decay=0.1), lr=0.0, betas=(0.9, 0.95), eps=1e-8, foreach=True
        ),
    )
    for number in range(3):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            set_learning_rate(optimizer, 1e-2)
            train_step(model, optimizer, [PackedMicroBatch.of(packed_batch(number), CPU)], clip_norm=1.0)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)


# Schedules, by hand


def test_schedules() -> None:
    def rates(**settings: Any) -> list[float]:
        return [learning_rate(ScheduleConfig(peak=1.0, **settings), step, steps=10) for step in range(10)]

    assert rates(decay="constant", warmup_steps=4)[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates(decay="linear", end=0.0) == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
    cosine = rates(decay="cosine", end=0.2, warmup_share=0.2)
    assert cosine[1] == 1
    assert cosine[5] == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 2)) / 2)
    assert cosine[9] == pytest.approx(0.2)
    assert rates(decay="wsd", decay_steps=4) == pytest.approx([1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0])
    with pytest.raises(ConfigError, match="end 2 and peak 1"):
        ScheduleConfig(peak=1.0, end=2.0)


# Runs


def test_a_run_that_is_resumed_is_the_run_that_was_not_stopped(tmp_path: Path) -> None:
    assert train(make_run(tmp_path / "whole")) == 6
    assert train(make_run(tmp_path / "cut", steps=6, limit_seconds=1e-6)) == 1  # stops after its first step, and saves
    for _ in range(2):
        train(make_run(tmp_path / "cut", limit_seconds=1e-6))
    assert train(make_run(tmp_path / "cut")) == 6
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")  # to the last bit
    assert [line["step"] for line in steps_of(tmp_path / "cut")] == [1, 2, 3, 4, 5, 6]


def test_a_kill_at_any_instant_leaves_the_last_complete_checkpoint(tmp_path: Path) -> None:
    train(make_run(tmp_path / "whole"))
    train(make_run(tmp_path / "killed"))
    (tmp_path / "killed/step-00000006").rename(tmp_path / "killed/step-00000006.partial")
    lines = (tmp_path / "killed" / STEPS_FILE).read_text().splitlines(keepends=True)
    (tmp_path / "killed" / STEPS_FILE).write_text("".join(lines[:5]) + '{"step": 6, "los')
    (tmp_path / "killed/step-00000008").mkdir()  # a name alone is no checkpoint
    assert sorted(complete_checkpoints(tmp_path / "killed")) == [2, 4]
    assert train(make_run(tmp_path / "killed")) == 6
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")


def test_old_checkpoints_go_and_chosen_ones_stay(tmp_path: Path) -> None:
    config = CheckpointConfig(every_steps=1, keep_last=2, keep_every_steps=4, asynchronous=True)
    train(make_run(tmp_path, checkpoint=config))
    assert sorted(complete_checkpoints(tmp_path)) == [4, 5, 6]
    assert json.loads((tmp_path / "latest.json").read_text()) == {"step": 6, "folder": "step-00000006"}


def test_a_signal_saves_and_stops(tmp_path: Path) -> None:
    class Telling(TinyLoader):
        def __next__(self) -> Any:
            if self.taken == 4:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().__next__()

    assert (
        train(make_run(tmp_path, loader=Telling(), checkpoint=CheckpointConfig(every_steps=0, asynchronous=False))) == 3
    )
    assert sorted(complete_checkpoints(tmp_path)) == [3]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


class Poisoned(TinyLoader):
    """Batches that give no finite loss from the third on."""

    def __next__(self) -> Any:
        batch = super().__next__()
        if self.taken > 4 and len(batch.images):
            batch.images = batch.images * float("nan")
        return batch


def test_steps_without_a_finite_loss_leave_the_weights_and_too_many_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TrainingError, match="step 5: 3 steps in a row had no finite loss"):
        train(make_run(tmp_path, steps=9, loader=Poisoned(), most_skips=3))
    assert [line["loss"] is None for line in steps_of(tmp_path)] == [False, False, True, True]
    assert "step 3 left out: loss nan" in caplog.text


def test_left_out_steps_tell_which_samples_they_had(tmp_path: Path) -> None:
    class Named(Poisoned):
        def __next__(self) -> Any:
            batch = super().__next__()
            batch.document_keys, batch.__restore_key__ = [f"photo-{self.taken}"], (0, 1, self.taken)
            return batch

    left_out = LeftOut(tmp_path, rank=3)
    run = make_run(tmp_path, steps=9, loader=left_out.watched(Named()), most_skips=3)
    run.left_out, run.after_step = left_out.write, after_each_step([left_out])
    with pytest.raises(TrainingError):
        train(run)
    files = sorted((tmp_path / "left-out").iterdir())
    assert [path.name for path in files] == [f"step-{step:08d}.rank-00003.json" for step in (3, 4, 5)]
    told = json.loads(files[0].read_text())
    # Two batches a step: those of the third are the fifth and the sixth.
    assert [batch["samples"] for batch in told["batches"]] == [["photo-5"], ["photo-6"]]
    assert told["batches"][1]["restore_key"] == [0, 1, 6]
    assert told["loss"] == "nan"


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    train(make_run(tmp_path, steps=2))
    other = make_run(tmp_path, steps=4)
    other.model.projector = torch.nn.Linear(3, 3)
    other.optimizer = make_optimizer(other.model, PARTS, OptimizerConfig())
    with pytest.raises(StateError, match="does not fit this model"):
        train(other)
    (tmp_path / "step-00000002/trainer.json").write_text('{"format": 99}')
    with pytest.raises(StateError, match="format 99 found, 2 expected"):
        train(make_run(tmp_path, steps=4))


class Bomb:
    """Calls a function when it is unpickled by the plain unpickler."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_checkpoint_with_code_in_it_is_refused_and_nothing_is_run(tmp_path: Path) -> None:
    train(make_run(tmp_path, steps=2))
    (tmp_path / "step-00000002/tensors/.metadata").write_bytes(pickle.dumps(Bomb(tmp_path / "went-off")))
    with pytest.raises(StateError, match=r"names .*, which no checkpoint needs"):
        train(make_run(tmp_path, steps=4))
    (tmp_path / "step-00000002/tensors/.metadata").write_bytes(b"\x80\x04cut")
    with pytest.raises(StateError, match="not the list of a checkpoint"):
        train(make_run(tmp_path, steps=4))
    assert not (tmp_path / "went-off").exists()


def test_lines_for_people(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="omniloom")
    train(make_run(tmp_path, steps=2))
    assert "step 2/2  loss " in caplog.text
    line = steps_of(tmp_path)[0]
    assert line["tokens_per_second"] > 0
    assert line["learned_tokens"] == sum(PackedMicroBatch.of(packed_batch(n), CPU).learned_tokens for n in (0, 1))
    assert line["learning_rate"] == 0.005
