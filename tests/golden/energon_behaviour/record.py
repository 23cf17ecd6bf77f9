"""Tells what becomes of faults, cookers, ranges and wrapper datasets: `python record.py FOLDER`, in a new FOLDER.

Run by a Python that has megatron-energon, it tells what that does; with `compat/` on the path, what omniloom does. All
is told in the order of an evaluation, which both have.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import megatron.energon as energon
from megatron.energon import DefaultTaskEncoder, TextSample, basic_sample_keys, stateless
from megatron.energon.epathlib import EPath
from megatron.energon.flavors import BaseWebdatasetFactory

warnings.simplefilter("ignore")
logging.disable()
stdout, sys.stdout = sys.stdout, sys.stderr  # Energon prints
ROOT = Path(sys.argv[1])
ROWS, SHARDS = 23, 3
CONFIG = energon.WorkerConfig(rank=0, world_size=1, num_workers=0)
TYPED = {"sample_type": {"__module__": "megatron.energon", "__class__": "TextSample"}, "field_map": {"text": "txt"}}
CRUDE = {"__module__": "megatron.energon", "__class__": "CrudeWebdataset", "subflavors": {"kind": "crude"}}
found: dict[str, Any] = {}


def make_set(name: str, description: dict[str, Any]) -> Path:
    """A data set whose row 7 has the text ``NAME 7`` and a reference to ``007.txt``."""
    folder = ROOT / name
    folder.mkdir(parents=True)
    per_shard = -(-ROWS // SHARDS)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for row in range(shard * per_shard, min(ROWS, (shard + 1) * per_shard)):
                record = json.dumps({"row": row, "other": f"{row:03d}.txt"})
                for part, text in (("txt", f"{name} {row}"), ("json", record)):
                    member = tarfile.TarInfo(f"{row:03d}.{part}")
                    member.size = len(text)
                    tar.addfile(member, io.BytesIO(text.encode()))
    names = [f"{shard}.tar" for shard in range(SHARDS)]
    ratio = [("train", 1.0)]
    BaseWebdatasetFactory.prepare_dataset(EPath(folder), names, split_parts_ratio=ratio, shuffle_seed=None, workers=1)
    (folder / ".nv-meta" / "dataset.yaml").write_text(json.dumps(description))
    return folder


def mix(**train: Any) -> Path:
    """A metadataset with this part."""
    path = ROOT / "mix.yaml"
    content = {"__module__": "megatron.energon", "__class__": "MetadatasetV2", "splits": {"train": train}}
    path.write_text(json.dumps(content))
    return path


def evaluation(path: Path, encoder: Any = None, **settings: Any) -> Any:
    asked = {"split_part": "train", "worker_config": CONFIG, "batch_size": 1, **settings}
    return energon.get_val_dataset(path, task_encoder=encoder or DefaultTaskEncoder(), **asked)


def texts(dataset: Any, **loader: Any) -> list[str]:
    """All texts that it gives."""
    given = energon.get_loader(dataset, **loader)
    return [text for one in given for text in ([one.text] if isinstance(one.text, str) else one.text)]


def tell(name: str, function: Callable[[], Any]) -> None:
    """What a function gives, or the kind of its error."""
    try:
        found[name] = function()
    except energon.errors.FatalSampleError:
        found[name] = "FatalSampleError"
    except ValueError:
        found[name] = "ValueError"


def failing(rows: set[int], error: BaseException, **mark: Any) -> Any:
    """A task encoder that fails in these rows."""

    class Failing(DefaultTaskEncoder):
        @stateless(**mark)
        def encode_sample(self, sample):
            if int(sample.text.split()[1]) in rows:
                raise error
            return sample

    return Failing()


def tell_of_faults(plain: Path) -> None:
    kinds = (ValueError, energon.SkipSample, OSError, KeyError, AssertionError, RuntimeError, MemoryError, NameError)
    for kind in (*kinds, ImportError, NotImplementedError):
        tell(f"three {kind.__name__}", lambda kind=kind: texts(evaluation(plain, failing({3, 4, 5}, kind()))))
    for tolerance, rows in ((3, {3, 4, 5}), (4, {3, 4, 5}), (0, set(range(ROWS)))):
        encoder = failing(rows, ValueError(), failure_tolerance=tolerance)
        tell(f"tolerance {tolerance}", lambda encoder=encoder: texts(evaluation(plain, encoder)))
    seen: list[Any] = []

    def handler(error, sample, sources):
        seen.append([type(error).__name__, sample.__key__, [list(one.file_names) for one in sources]])

    for name, function in {"told": handler, "raised": energon.reraise_exception}.items():
        config = energon.WorkerConfig(rank=0, world_size=1, num_workers=0, global_error_handler=function)
        encoder = failing({3, 7}, ValueError())
        tell(name, lambda encoder=encoder, config=config: texts(evaluation(plain, encoder, worker_config=config)))
    found["what the handler was told"] = seen


class FailingBatch(DefaultTaskEncoder):
    def batch(self, samples):
        if any(sample.text.endswith("4") for sample in samples):
            raise ValueError
        return super().batch(samples)


class SkippingBatch(DefaultTaskEncoder):
    def encode_batch(self, batch):
        if any(text.endswith("4") for text in batch.text):
            raise energon.SkipSample
        return batch


class SeveralBatches(DefaultTaskEncoder):
    def batch(self, samples):
        yield super().batch(samples)
        yield super().batch(samples[:1])


@stateless
def with_others(sample, others, files):
    parts = [sample["txt"], others.get(sample["json"]["other"], sample), files.get(sample["json"]["other"], sample)]
    return TextSample(**basic_sample_keys(sample), text="|".join(map(str, parts)))


@stateless
@energon.cooker(need_primary=True)
def with_primary(sample, primary):
    return TextSample(**basic_sample_keys(sample), text=f"{primary.get('.json')['row']} {primary.get('005.txt')}")


def cooking(cook: Any, **wanted: Any) -> Any:
    return type("Cooking", (DefaultTaskEncoder,), {"cookers": (energon.Cooker(cook, has_subflavors=wanted or None),)})()


def tell_of_cookers() -> None:
    (ROOT / "files").mkdir()
    for row in range(ROWS):
        (ROOT / "files" / f"{row:03d}.txt").write_text(f"file {row}")
    aux = {"others": "other", "files": "filesystem://files"}
    path = mix(path="crude", aux=aux, subflavors={"of": "mix"})
    encoder = cooking(with_others, kind="crude", of="mix")
    tell("stores", lambda: texts(evaluation(path, encoder)))
    sample = next(iter(energon.get_loader(evaluation(path, encoder, batch_size=None))))
    found["sources"] = [
        [Path(str(one.dataset_path)).name, one.index, Path(one.shard_name).name, list(one.file_names)]
        for one in sample.__sources__
    ]
    found["subflavors"] = sample.__subflavors__
    tell("primary", lambda: texts(evaluation(ROOT / "crude", cooking(with_primary))))
    tell("no cooker", lambda: texts(evaluation(path, cooking(with_others, kind="another"))))


def tell_of_ranges_and_lengths(plain: Path) -> None:
    for name, given in {"rows": [2, 5], "to the end": [5, "end"], "shares": ["33%", "66.5%"], "none": [3, 3]}.items():
        tell(name, lambda given=given: texts(evaluation(mix(path="plain", subset={"range": given}))))
    blend = {"blend": [{"path": "plain", "weight": 2}, {"path": "other", "weight": 1}]}
    tell("a blend", lambda: texts(evaluation(mix(**blend), batch_size=5)))
    epochs = {"blend_epochized": [{"path": "plain", "repetitions": 2}, {"path": "other", "repetitions": 1}]}
    training = {"worker_config": CONFIG, "shuffle_buffer_size": None, "max_samples_per_sequence": None}
    whole = energon.get_train_dataset(mix(**epochs), batch_size=2, repeat=False, **training)
    tell("an epoch, sorted", lambda: sorted(texts(whole)))
    in_order = {"shuffle_over_epochs_multiplier": None, "parallel_shard_iters": 1}
    rows = energon.get_train_dataset(plain, batch_size=2, repeat=False, **training, **in_order)
    tell("training in order", lambda: texts(rows))
    found["lengths"] = [len(evaluation(path, batch_size=size)) for path in (plain, mix(**blend)) for size in (1, 2, 5)]
    found["lengths in training"] = [
        len(energon.get_train_dataset(mix(**epochs), batch_size=2, virtual_epoch_length=each, **training))
        for each in (0, 7)
    ]


def tell_of_wrappers(plain: Path, other: Path) -> None:
    rows = {"worker_config": CONFIG}

    def samples(path=plain):
        return evaluation(path, batch_size=None)

    def words(path=plain):
        return energon.MapDataset(samples(path), lambda sample: sample.text, **rows)

    def given(dataset):
        return list(energon.get_loader(dataset))

    def odd(sample):
        return int(sample.text.split()[1]) % 2

    def listed(values):
        return [value.text for value in values]

    made = {
        "map": words,
        "filter": lambda: energon.MapDataset(
            energon.FilterDataset(samples(), filter_fn=odd, **rows), lambda one: one.text, **rows
        ),
        "batch": lambda: energon.BatchDataset(words(), 4, list, **rows),
        "batch, the last dropped": lambda: energon.BatchDataset(words(), 4, list, drop_last=True, **rows),
        "concat": lambda: energon.ConcatDataset(words(), words(other), **rows),
        "limit": lambda: energon.LimitDataset(words(), 5, **rows),
        "repeat": lambda: energon.RepeatDataset(words(), repeats=2.5, **rows),
        "map of a stream": lambda: energon.IterMapDataset(
            words(), lambda words: (f"{one}+{two}" for one, two in zip(words, words, strict=False)), **rows
        ),
        "groups": lambda: energon.GroupBatchDataset(samples(), None, lambda one: (odd(one), 3), listed, **rows),
        "packs": lambda: energon.PackingDataset(
            samples(), 5, lambda window: [window[:3], window[3:]], listed, final_packer_stateless=True, **rows
        ),
    }
    for name, make in made.items():
        tell(name, lambda make=make: given(make()))
    for tolerance in (3, 4):
        for name, failing in tell_of_tolerance(samples, words, tolerance).items():
            tell(f"{name}, tolerance {tolerance}", lambda make=failing: given(make()))
    endless = energon.EpochizeDataset(energon.RepeatDataset(words(), **rows), length=9, **rows)
    loader = energon.get_loader(endless)
    found["passes of 9"] = [list(loader) for _ in range(3)]


def tell_of_tolerance(samples: Callable[[], Any], words: Callable[[], Any], tolerance: int) -> dict[str, Any]:
    """Wrapper datasets whose functions fail three times in a row."""

    def failing(value):
        text = str(value)
        if any(f" {row}" in text for row in ("4", "5", "6")):
            raise ValueError
        return text

    def failing_packs(window):
        return failing([one.text for one in window])

    rows = {"worker_config": CONFIG}
    return {
        "map": lambda: energon.MapDataset(words(), failing, failure_tolerance=tolerance, **rows),
        "batch": lambda: energon.BatchDataset(words(), 1, failing, failure_tolerance=tolerance, **rows),
        "packs": lambda: energon.PackingDataset(
            samples(), 3, lambda window: [[one] for one in window], failing_packs,
            final_packer_failure_tolerance=tolerance, **rows
        ),
    }  # fmt: skip


def main() -> None:
    plain, other = make_set("plain", TYPED), make_set("other", TYPED)
    make_set("crude", CRUDE)
    tell_of_faults(plain)
    tell("a batch that fails", lambda: texts(evaluation(plain, FailingBatch(), batch_size=4)))
    tell("a batch that is skipped", lambda: texts(evaluation(plain, SkippingBatch(), batch_size=4)))
    tell("several batches of one", lambda: texts(evaluation(plain, SeveralBatches(), batch_size=4)))
    tell_of_cookers()
    tell_of_ranges_and_lengths(plain)
    tell_of_wrappers(plain, other)
    json.dump(found, stdout, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


if __name__ == "__main__":
    main()
