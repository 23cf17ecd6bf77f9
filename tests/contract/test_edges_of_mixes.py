"""Mixes of which nothing is left, keys that are no UTF-8, and values that samples must not share."""

from __future__ import annotations

import logging
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from omniloom import Cooker, TarWriter, WorkerConfig, get_loader, get_train_dataset, get_val_dataset
from omniloom.data.collate import batch_pad_stack, concat_pad
from omniloom.data.index.prepare import prepare_dataset
from omniloom.data.media.lazy import Lazy, LazyDict
from omniloom.data.mix.values import blend, join, source
from omniloom.data.task import TaskEncoder
from omniloom.errors import ConfigError, DatasetError

CONFIG = WorkerConfig(rank=0, world_size=1, num_workers=0, lanes=4)
TEXT = "sample_type: {__module__: megatron.energon, __class__: TextSample}\nfield_map: {text: txt}\n"
CRUDE = "sample_type: {__module__: megatron.energon, __class__: CrudeWebdataset}\n"


def made(root: Path, keys: list[str], *, described: str = TEXT, **settings: Any) -> Path:
    root.mkdir()
    with TarWriter(root / "shard.tar") as tar:
        for number, key in enumerate(keys):
            tar.add(f"{key}.txt", f"{root.name}{number}".encode())
    prepare_dataset(root, num_workers=1, **settings)
    (root / ".nv-meta/dataset.yaml").write_text(described)
    return root


def texts(dataset: Any, batches: int = 20) -> set[str]:
    return {text for batch in islice(get_loader(dataset), batches) for text in batch.text}


def test_a_mix_of_which_no_row_is_left_is_refused_in_training_and_told_of_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ten, other = made(tmp_path / "ten", [f"{n}" for n in range(10)]), made(tmp_path / "other", ["x", "y"])
    nothing = source(ten, subset=("0%", "5%"))  # 5 % of 10 rows: half of one
    partnerless = join([ten, (other, "skip")], joiner=lambda one, _: one)
    for empty in (nothing, partnerless, blend([(nothing, 1.0)])):
        with pytest.raises(DatasetError, match=f"no sample can be drawn: no row is left of {ten}"):
            get_train_dataset(empty, worker_config=CONFIG)
        caplog.clear()
        assert texts(get_val_dataset(empty, split_part="train", worker_config=CONFIG)) == set()  # as Energon's pass
        assert f"{ten}: no row is left of it" in caplog.text
    with caplog.at_level(logging.WARNING, "omniloom"):
        mixed = get_train_dataset(blend([(nothing, 0.5), (other, 0.5)]), worker_config=CONFIG)
    assert f"{ten}: no row is left of it" in caplog.text
    assert texts(mixed) == {"other0", "other1"}


def test_counts_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "a", ["x"])
    for name in ("shuffle_buffer_size", "max_samples_per_sequence", "parallel_shard_iters", "virtual_epoch_length"):
        with pytest.raises(ConfigError, match=f"{name}=-1 found; a whole number of at least 0 expected"):
            get_train_dataset(path, worker_config=CONFIG, **{name: -1})
    for multiplier in (0, -5):
        with pytest.raises(ConfigError, match=f"shuffle_over_epochs_multiplier={multiplier} found"):
            get_train_dataset(path, worker_config=CONFIG, shuffle_over_epochs_multiplier=multiplier)
    with pytest.raises(ConfigError, match=r"a number from 0 to 1e\+100 expected"):
        get_train_dataset(blend([(path, 1e308), (path, 1e308)]), worker_config=CONFIG)


@pytest.mark.parametrize("sqlite", [True, False])
def test_keys_that_are_no_utf_8_are_joined(sqlite: bool, tmp_path: Path) -> None:
    one = made(tmp_path / "one", ["caf\udce9", "tea", "milk"], sqlite=sqlite)
    (tmp_path / "one/.nv-meta/split.yaml").write_text("split_parts: {train: [shard.tar]}\nexclude: [shard.tar/milk]\n")
    other = made(tmp_path / "other", ["tea", "caf\udce9"], sqlite=sqlite)
    pairs = join([one, other], joiner=lambda left, right: {"text": [left.text, right.text], "__key__": left.__key__})
    dataset = get_train_dataset(pairs, worker_config=CONFIG, batch_size=None, repeat=False)
    found = {sample["__key__"]: sample["text"] for sample in get_loader(dataset)}
    assert found == {"caf\udce9": ["one0", "other1"], "tea": ["one1", "other0"]}


class Marking(TaskEncoder[Any, Any, Any, Any]):
    """Writes into what it is given."""

    cookers = (Cooker(lambda sample: sample),)

    def encode_sample(self, sample: Any) -> Any:
        marks = list(sample["__subflavors__"])
        sample["__subflavors__"][sample["__key__"]] = True
        return {"text": sample["txt"], "marks": marks, "__key__": sample["__key__"]}


def test_what_user_code_writes_into_subflavors_is_not_seen_by_other_samples(tmp_path: Path) -> None:
    path = made(tmp_path / "a", ["x", "y", "z"], described=CRUDE)
    flavored = source(path, subflavors={"kind": "drink"})
    dataset = get_train_dataset(flavored, worker_config=CONFIG, batch_size=None, task_encoder=Marking())
    assert [sample["marks"] for sample in islice(get_loader(dataset), 9)] == [["kind"]] * 9


def test_values_of_several_dtypes_are_not_cut_to_that_of_the_first() -> None:
    whole, halves = np.array([1, 2]), np.array([0.5, 1.5])
    for put_together in (batch_pad_stack, concat_pad):
        with pytest.raises(DatasetError, match="values of float64, int64 cannot become one"):
            put_together([whole, halves])


def test_the_widest_of_one_kind_holds_all_values() -> None:
    large = 2**40
    for put_together in (batch_pad_stack, concat_pad):
        whole = put_together([np.array([1], np.int32), np.array([large], np.int64)])
        assert whole.dtype == np.int64
        assert whole.ravel().tolist() == [1, large]
        halves = put_together([torch.tensor([0.5], dtype=torch.bfloat16), torch.tensor([0.1], dtype=torch.float32)])
        assert halves.dtype == torch.float32
        assert halves.ravel().tolist() == [0.5, pytest.approx(0.1, abs=1e-8)]
    with pytest.raises(DatasetError, match="values of int64, uint64 cannot become one"):
        batch_pad_stack([np.array([1], np.int64), np.array([2**63], np.uint64)])  # numpy would make floats of them


def test_a_plain_dict_with_a_lazy_one_has_its_values() -> None:
    lazy = LazyDict({"jpg": Lazy(b"7", int)})
    assert {"a": 1} | lazy == {"a": 1, "jpg": 7}
    assert type({"a": 1} | lazy) is dict
