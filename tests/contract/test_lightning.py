"""The data module under a real Lightning trainer: stopped anywhere, it goes on with the batch that would have come."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import omniloom
from omniloom.errors import ConfigError

pytest.importorskip("lightning", reason="lightning is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lightning.pytorch import Callback, LightningModule, Trainer

    from omniloom.integrations.lightning import OmniloomDataModule

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:lightning", "ignore::FutureWarning")
ROWS, BATCH = 40, 3


class Encoder(omniloom.TaskEncoder):
    """Samples with a number drawn at random for each."""

    def encode_sample(self, sample: Any) -> Any:
        return {"row": sample["json"]["row"], "noise": torch.rand(())}


class Packing(Encoder):
    packer = omniloom.BestFitPacker(20)

    def packing_cost(self, sample: Any) -> int:
        return 1 + int(sample["row"]) % 11

    def pack_selected_samples(self, samples: list[Any]) -> Any:
        rows = [sample["row"] for sample in samples]
        return {"row": "+".join(map(str, rows)), "noise": torch.stack([sample["noise"] for sample in samples]).sum()}


class Model(LightningModule):
    """One weight; remembers what it was trained and evaluated on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[Any] = []
        self.evaluated: list[Any] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen.append((list(map(str, batch["row"])), batch["noise"].tolist()))
        return (self.weight - batch["noise"].float().mean()) ** 2

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.evaluated.append([int(row) for row in batch["row"]])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class ByIterator(Model):
    """Draws its batches itself, two a step, as NeMo's modules do."""

    def training_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]
        return sum(super(ByIterator, self).training_step(next(dataloader_iter)[0], 0) for _ in range(2))


class SaveAt(Callback):
    """Saves a checkpoint after so many batches, where asked for by name."""

    def __init__(self, path: Path, batches: int, hook: str) -> None:
        self.path, self.batches, self.hook = path, batches, hook

    def _save(self, trainer: Any, hook: str) -> None:
        if hook == self.hook and trainer.fit_loop.epoch_loop.batch_progress.total.processed == self.batches:
            trainer.save_checkpoint(self.path)

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        self._save(trainer, "batch start")

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self._save(trainer, "batch end")

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        self._save(trainer, "epoch end")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"row": {row}}}\n' for row in range(ROWS)))
    return path


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def module(data: Path, *, packed: bool = False, workers: int = 0, **settings: Any) -> OmniloomDataModule:
    train = settings.pop("train", {}) | ({"packing_buffer_size": 200} if packed else {})
    return OmniloomDataModule(
        data, micro_batch_size=BATCH, num_workers=workers, task_encoder=Packing() if packed else Encoder(),
        train=train, worker_config=omniloom.WorkerConfig(rank=0, world_size=1, lanes=4), **settings,
    )  # fmt: skip


def fit(model: Any, data: Any, *callbacks: Any, resume: Path | None = None, **settings: Any) -> Any:
    trainer = Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, barebones=False,
        enable_model_summary=False, callbacks=list(callbacks), **settings,
    )  # fmt: skip
    trainer.fit(model, datamodule=data, ckpt_path=resume, weights_only=True)
    return model


@pytest.mark.parametrize(
    ("packed", "workers", "length", "saved", "hook"),
    [
        (False, 0, 0, 5, "batch end"),  # endless: Lightning draws a batch ahead
        pytest.param(False, 2, 0, 5, "batch end", marks=pytest.mark.slow),
        (False, 0, 4, 6, "batch end"),  # in the middle of the second pass of four
        (False, 0, 4, 8, "batch end"),  # at the last batch of a pass
        (False, 0, 4, 8, "epoch end"),
        (False, 0, 4, 6, "batch start"),
        (True, 0, 0, 5, "batch end"),
        pytest.param(True, 2, 4, 6, "batch end", marks=pytest.mark.slow),
        (True, 0, 4, 8, "epoch end"),
    ],
)
def test_a_checkpoint_goes_on_with_the_batch_that_would_have_come(
    packed: bool, workers: int, length: int, saved: int, hook: str, data: Path, tmp_path: Path
) -> None:
    settings = {"packed": packed, "train": {"virtual_epoch_length": length}}
    path = tmp_path / "checkpoint.ckpt"
    whole = fit(Model(), module(data, **settings), SaveAt(path, saved, hook), max_steps=13)
    assert len(whole.seen) == 13
    again = fit(Model(), module(data, workers=workers, **settings), max_steps=13, resume=path)
    assert again.seen == whole.seen[saved:]
    assert torch.equal(again.weight, whole.weight)


def test_batches_of_limited_passes_are_neither_lost_nor_seen_twice(data: Path) -> None:
    limited = fit(Model(), module(data), max_epochs=5, limit_train_batches=2)
    assert limited.seen == fit(Model(), module(data), max_steps=10).seen


def test_finite_data_goes_round_in_whole_passes(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.ckpt"
    once = {"train": {"repeat": False}}
    whole = fit(Model(), module(data, **once), SaveAt(path, 16, "epoch end"), max_epochs=3)
    # 40 rows on four lanes: ten rows, four batches each
    for start in (0, 16, 32):
        rows = [int(row) for batch, _ in whole.seen[start : start + 16] for row in batch]
        assert sorted(rows) == list(range(ROWS))
    assert fit(Model(), module(data, **once), max_epochs=3, resume=path).seen == whole.seen[16:]


def test_a_module_goes_on_from_one_fit_to_the_next(data: Path) -> None:
    one = module(data)
    model, later = Model(), Model()
    fit(model, one, max_steps=4)
    fit(later, one, max_steps=4)
    assert model.seen + later.seen == fit(Model(), module(data), max_steps=8).seen


def test_steps_that_draw_by_themselves(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.ckpt"
    whole = fit(ByIterator(), module(data), SaveAt(path, 3, "batch end"), max_steps=6)
    assert fit(ByIterator(), module(data), max_steps=6, resume=path).seen == whole.seen[6:]


def test_evaluation_begins_anew_in_each_pass(data: Path) -> None:
    model = Model()
    settings = {"val": {"split_part": "train"}, "val_batch_size": 6, "train": {"virtual_epoch_length": 2}}
    fit(model, module(data, **settings), max_epochs=2, limit_val_batches=3, num_sanity_val_steps=1)
    rows = [list(range(start, start + 6)) for start in (0, 6, 12)]
    assert model.evaluated == [rows[0], *rows, *rows]


def test_global_batch_size_is_what_the_trainer_makes_of_it(data: Path) -> None:
    fit(Model(), module(data, global_batch_size=6), max_steps=2, accumulate_grad_batches=2)
    with pytest.raises(ConfigError, match=r"Trainer\(accumulate_grad_batches=4\)"):
        fit(Model(), module(data, global_batch_size=12), max_steps=2)
    with pytest.raises(ConfigError, match="global_batch_size=10 is no multiple of micro_batch_size=3 x 1 ranks"):
        fit(Model(), module(data, global_batch_size=10), max_steps=2)


def test_a_loader_may_be_given_to_the_trainer_as_it_is(data: Path, tmp_path: Path) -> None:
    def loader() -> Any:
        config = omniloom.WorkerConfig(rank=0, world_size=1, num_workers=0, lanes=4)
        dataset = omniloom.get_train_dataset(
            data, worker_config=config, batch_size=BATCH, task_encoder=Encoder(), virtual_epoch_length=5
        )
        return omniloom.get_loader(dataset)

    def trained(resume: Path | None = None) -> Any:
        model = Model()
        save = SaveAt(tmp_path / "checkpoint.ckpt", 7, "batch end")
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = Trainer(accelerator="cpu", enable_model_summary=False, callbacks=[save], max_steps=13, **quiet)
        trainer.fit(model, train_dataloaders=loader(), ckpt_path=resume, weights_only=True)
        return model

    whole = trained()
    assert whole.seen == fit(Model(), module(data), max_steps=13).seen
    assert trained(tmp_path / "checkpoint.ckpt").seen == whole.seen[7:]
