"""Energon's names, and what its documentation and Megatron-LM's user guide promise about them (and fails there).

The names and snippets are facts of Energon 7.4 and of Megatron-LM's `megatron_energon.md`; what a snippet promises is
what it is checked against.
"""

import dataclasses
import importlib
import io
import json
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision_operators
from PIL import Image

import omniloom
from omniloom import energon
from omniloom.energon import names

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = 24


@pytest.fixture(scope="module")
def captions(tmp_path_factory):
    """A prepared data set of images of 4 x 6 pixels and captions, in two shards, parts train and val."""
    folder = tmp_path_factory.mktemp("captions")
    for shard in range(2):
        with omniloom.TarWriter(folder / f"shard-{shard}.tar") as writer:
            for row in range(SAMPLES // 2):
                number = shard * SAMPLES // 2 + row
                pixels = np.full((4, 6, 3), number * 10, np.uint8)
                writer.add(f"{number:03d}.png", png_of(pixels))
                writer.add(f"{number:03d}.txt", f"caption {number}".encode())
    energon.flavors.BaseWebdatasetFactory.prepare_dataset(
        folder, ["shard-{0..1}.tar"], split_parts_patterns=[("train", "shard-0.*"), ("val", "shard-1.*")], workers=1
    )
    describe(folder, "CaptioningSample", {"image": "png", "caption": "txt"})
    return folder


def png_of(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def describe(folder, sample_type, field_map):
    content = {
        "sample_type": {"__module__": "megatron.energon", "__class__": sample_type},
        "field_map": field_map,
    }
    (folder / ".nv-meta" / "dataset.yaml").write_text(json.dumps(content))


NO_WORKERS = energon.WorkerConfig(rank=0, world_size=1, num_workers=0)


# Names


def test_all_96_names_and_the_hidden_ones_are_there():
    assert len(names.EXPORTED) == 96
    for name in (*names.EXPORTED, *names.HIDDEN):
        assert getattr(energon, name) is not None


@pytest.mark.parametrize("module", sorted(names.MODULES))
def test_every_name_of_a_module_is_there(module):
    found = importlib.import_module(f"omniloom.energon.{module}")
    if module.startswith("transforms") and not torchvision_operators.importable():
        pytest.skip("torchvision is not here")
    for name in found.__all__:
        getattr(found, name)


def test_a_name_that_is_not_there_is_an_error_that_says_where_to_look():
    with pytest.raises(AttributeError, match=r"docs/energon\.md"):
        energon.NoSuchName  # noqa: B018
    with pytest.raises(ImportError):
        importlib.import_module("omniloom.energon.no_such_module")


def run(program, *paths):
    path = os.pathsep.join([*map(str, paths), str(ROOT / "src")])
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


CHECK = """
import pickle
import megatron.energon
import omniloom.energon
from megatron.energon import edataclass, CaptioningSample
from megatron.energon.edataclass import edataclass as the_same
from megatron.energon.flavors.captioning import CaptioningSample as sample
import megatron.energon.wrappers.limit_dataset as limit
assert megatron.energon is omniloom.energon
assert edataclass is the_same and CaptioningSample is sample is omniloom.CaptioningSample
assert limit is __import__('omniloom.energon.wrappers.limit_dataset', fromlist=['x'])
assert pickle.loads(pickle.dumps(CaptioningSample)) is CaptioningSample
"""


def test_install_gives_one_object_under_both_paths():
    done = run(f"import omniloom.energon; omniloom.energon.install(); omniloom.energon.install(){CHECK}")
    assert done.returncode == 0, done.stderr


def test_compat_gives_megatron_energon_by_import_beside_another_part_of_megatron(tmp_path):
    (tmp_path / "megatron" / "core").mkdir(parents=True)
    (tmp_path / "megatron" / "core" / "__init__.py").write_text("value = 7\n")
    done = run(f"{CHECK}\nimport megatron.core; assert megatron.core.value == 7", tmp_path, ROOT / "compat")
    assert done.returncode == 0, done.stderr
    assert not (ROOT / "compat" / "megatron" / "__init__.py").exists()


def test_install_leaves_room_for_a_megatron_that_is_added_later(tmp_path):
    (tmp_path / "megatron" / "core").mkdir(parents=True)
    (tmp_path / "megatron" / "core" / "__init__.py").write_text("")
    done = run(
        f"import sys, omniloom.energon as e; e.install(); sys.path.append({str(tmp_path)!r}); import megatron.core"
    )
    assert done.returncode == 0, done.stderr


def test_install_refuses_where_the_real_one_is_imported(tmp_path):
    (tmp_path / "megatron" / "energon").mkdir(parents=True)
    (tmp_path / "megatron" / "energon" / "__init__.py").write_text("")
    done = run("import megatron.energon, omniloom.energon; omniloom.energon.install()", tmp_path)
    assert "ConfigError: megatron.energon is imported already" in done.stderr


# What the documentation promises


def test_train_dataset_with_the_arguments_of_the_guide_only(captions):
    dataset = energon.get_train_dataset(str(captions), batch_size=4, shuffle_buffer_size=100, worker_config=NO_WORKERS)
    assert next(iter(energon.get_loader(dataset))).image.shape == (4, 3, 4, 6)
    dataset = energon.get_train_dataset(str(captions), batch_size=4)  # no worker_config either
    assert next(iter(dataset)).image.shape == (4, 3, 4, 6)


def test_worker_config_of_the_guide():
    config = energon.WorkerConfig(num_workers=8, prefetch_factor=2, persistent_workers=True)
    assert (config.rank, config.world_size, config.num_workers, config.prefetch_factor) == (0, 1, 8, 2)
    config = energon.WorkerConfig.default_worker_config(num_workers=2)
    assert type(config) is energon.WorkerConfig
    assert pickle.loads(pickle.dumps(config)) == config


def test_worker_seed_is_energons():  # the numbers are Energon's own
    seeds = [energon.WorkerConfig(rank=rank, world_size=4, num_workers=0).worker_seed() for rank in range(4)]
    assert seeds == [0x1048E045, 0xC1BEDE63, 0x878249ED, 0xCF475CF8]
    assert energon.WorkerConfig(rank=0, world_size=1, num_workers=0, seed_offset=42).worker_seed() == 0x67BF7261


def test_blender_and_fields_by_subscript(captions):
    blend = energon.Blender([(str(captions), 0.7), (str(captions), 0.3)])
    batch = next(iter(energon.get_loader(energon.get_train_dataset(blend, batch_size=4, worker_config=NO_WORKERS))))
    assert batch["image"] is batch.image
    assert batch["caption"] == batch.caption
    with pytest.raises(KeyError, match="its fields are"):
        batch["text"]


def test_for_batch_in_dataset(captions):
    dataset = energon.get_val_dataset(captions, batch_size=5, worker_config=NO_WORKERS)
    assert [len(batch.caption) for batch in dataset] == [5, 5, 2]


def test_images_are_floats_from_0_to_1_as_in_energon(captions):
    sample = next(iter(energon.get_val_dataset(captions, batch_size=None, worker_config=NO_WORKERS)))
    assert sample.image.dtype == torch.float32
    assert torch.allclose(sample.image, torch.full((3, 4, 6), SAMPLES // 2 * 10 / 255))


def test_old_arguments_of_the_decoder_are_heeded(captions):
    with pytest.warns(FutureWarning, match="image_decode"):
        dataset = energon.get_val_dataset(captions, batch_size=None, worker_config=NO_WORKERS, image_decode="pil")
    assert next(iter(dataset)).image.size == (6, 4)
    dataset = energon.get_val_dataset(captions, batch_size=None, worker_config=NO_WORKERS, auto_decode=False)
    assert next(iter(dataset)).caption == b"caption 12"
    own = energon.DefaultTaskEncoder()
    own.decoder = energon.SampleDecoder(image_decode="rgb8")
    settings = {"batch_size": None, "worker_config": NO_WORKERS, "task_encoder": own}
    with pytest.warns(FutureWarning), pytest.raises(omniloom.ConfigError, match="a decoder of its own"):
        energon.get_val_dataset(captions, image_decode="pil", **settings)
    with pytest.warns(FutureWarning):
        assert next(iter(energon.get_val_dataset(captions, image_decode="rgb8", **settings))).image.shape == (4, 6, 3)


def test_ignore_sample_leaves_a_sample_out(captions):
    class Encoder(energon.DefaultTaskEncoder):
        def encode_sample(self, sample):
            if sample.caption.endswith("13"):
                raise energon.IgnoreSample
            return sample

    dataset = energon.get_val_dataset(captions, batch_size=1, worker_config=NO_WORKERS, task_encoder=Encoder())
    assert len(list(energon.get_loader(dataset))) == SAMPLES // 2 - 1


def test_fatal_sample_error_is_at_the_top_and_ends_the_run(captions):
    class Encoder(energon.DefaultTaskEncoder):
        def encode_sample(self, sample):
            raise energon.FatalSampleError.from_sample(sample, "enough")

    dataset = energon.get_val_dataset(captions, batch_size=1, worker_config=NO_WORKERS, task_encoder=Encoder())
    with pytest.raises(energon.FatalSampleError, match="sample '012': enough"):
        next(iter(energon.get_loader(dataset)))


def test_states_under_both_keywords_and_plain(captions, tmp_path):
    def loader():
        return energon.get_savable_loader(
            energon.get_train_dataset(captions, batch_size=2, worker_config=NO_WORKERS), checkpoint_every_sec=0
        )

    first = loader()
    for _, _batch in zip(range(3), first, strict=False):
        pass
    states = first.save_state_global(dst_rank=0)
    assert states == first.save_state_global(global_dst_rank=0) == first.save_state(0)
    torch.save(states, tmp_path / "state.pt")
    expected = [batch.__key__ for _, batch in zip(range(4), first, strict=False)]
    second = loader()
    second.restore_state_global(torch.load(tmp_path / "state.pt"), src_rank=None)  # weights_only, as torch has it
    assert [batch.__key__ for _, batch in zip(range(4), second, strict=False)] == expected


def test_from_samples_pads_tensors():
    samples = [energon.ImageSample(__key__=str(n), __restore_key__=(), image=torch.ones(3, 2 + n, 2)) for n in range(2)]

    @energon.edataclass
    class Images(energon.Batch):
        image: torch.Tensor

    assert Images.from_samples(samples).image.shape == (2, 3, 3, 2)


def test_cooker_without_stateless(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": f"text {n}"}) + "\n" for n in range(5)))
    assert energon.CrudeJsonlDatasetFactory.prepare_dataset(tmp_path / "a.jsonl") == 5

    def cook(sample):
        return energon.TextSample(**energon.basic_sample_keys(sample), text=sample["json"]["text"])

    class Encoder(energon.DefaultTaskEncoder):
        cookers = (energon.Cooker(cook),)

    dataset = energon.get_val_dataset(
        tmp_path / "a.jsonl", batch_size=5, worker_config=NO_WORKERS, task_encoder=Encoder()
    )
    assert next(iter(dataset)).text == [f"text {n}" for n in range(5)]


def test_file_store_cache_pool_takes_a_text(tmp_path):
    energon.FileStoreCachePool(parent_cache_dir=str(tmp_path), num_workers=1).close()


# Wrappers


def keys(dataset, count=None):
    values = iter(energon.get_loader(dataset))
    taken = list(values) if count is None else [next(values) for _ in range(count)]
    return [key for one in taken for key in ([one.__key__] if isinstance(one.__key__, str) else one.__key__)]


@pytest.fixture
def samples(captions):
    """The 12 single samples of part val, in order."""
    return energon.get_dataset_from_config(captions, split_part="val", training=False, worker_config=NO_WORKERS).build()


def test_limit_of_repeat_as_megatron_does_it(captions):
    plain = energon.get_val_datasets(captions, batch_size=5, worker_config=NO_WORKERS)
    assert [source.paths[0].name for _, source in plain] == [captions.name]
    repeated = energon.RepeatDataset(plain[0][0], worker_config=NO_WORKERS)
    limited = energon.LimitDataset(repeated, length=7, worker_config=NO_WORKERS, reset_after_epoch=True)
    assert len(limited) == 7
    loader = energon.get_loader(limited)
    first, second = ([batch.__key__ for batch in loader] for _ in range(2))
    assert [len(one) for one in first] == [5, 5, 2, 5, 5, 2, 5]  # passes of 12 samples
    assert first == second
    assert first[0] == first[3]


def test_map_filter_batch_concat(samples):
    lengths = energon.MapDataset(samples, lambda sample: dataclasses.replace(sample, caption=len(sample.caption)))
    assert {one.caption for one in energon.get_loader(lengths)} == {len("caption 12")}
    odd = energon.FilterDataset(
        samples, filter_fn=lambda sample: int(sample.__key__) % 2 == 1, worker_config=NO_WORKERS
    )
    assert keys(odd) == [f"{n:03d}" for n in range(13, 24, 2)]
    batches = energon.BatchDataset(odd, batch_size=4, batcher=energon.generic_batch, worker_config=NO_WORKERS)
    assert sum(len(batch.__key__) for batch in energon.get_loader(batches)) == 6
    twice = energon.ConcatDataset(samples, samples, worker_config=NO_WORKERS)
    assert keys(twice) == keys(samples) * 2


def test_blend_keeps_each_data_sets_own_functions(captions):
    def marked(mark):
        dataset = energon.get_train_dataset(captions, batch_size=None, worker_config=NO_WORKERS)
        return energon.MapDataset(dataset, lambda sample: dataclasses.replace(sample, caption=mark))

    blend = energon.BlendDataset((marked("a"), 1), (marked("b"), 3), worker_config=NO_WORKERS)
    loader = energon.get_loader(blend)
    marks = [one.caption for _, one in zip(range(400), loader, strict=False)]
    assert 250 <= marks.count("b") <= 350
    state, expected = loader.save_state_rank(), [one.__key__ for _, one in zip(range(20), loader, strict=False)]
    again = energon.get_loader(blend)
    again.restore_state_rank(state)
    assert [one.__key__ for _, one in zip(range(20), again, strict=False)] == expected


def test_batches_of_other_sizes_are_blended_by_batch_and_their_place_is_saved(captions):
    def batched(size, mark):
        dataset = energon.get_train_dataset(captions, batch_size=size, worker_config=NO_WORKERS)
        return energon.MapDataset(dataset, lambda batch: (mark, batch.__key__))

    blend = energon.BlendDataset((batched(4, "a"), 1), (batched(6, "b"), 3), worker_config=NO_WORKERS)
    loader = energon.get_loader(blend)
    given = [batch for _, batch in zip(range(200), loader, strict=False)]
    assert {(mark, len(found)) for mark, found in given} == {("a", 4), ("b", 6)}
    assert 40 <= sum(mark == "a" for mark, _ in given) <= 60
    state, expected = loader.save_state_rank(), [batch for _, batch in zip(range(20), loader, strict=False)]
    again = energon.get_loader(blend)
    again.restore_state_rank(state)
    assert [batch for _, batch in zip(range(20), again, strict=False)] == expected


def test_wrappers_that_the_loader_makes_needless_give_the_data_set_itself(samples):
    assert energon.GcDataset(samples, worker_config=NO_WORKERS) is samples
    assert energon.LogSampleDataset(samples, mode="val", worker_config=NO_WORKERS) is samples
    assert energon.EpochizeDataset(samples, 3, NO_WORKERS).virtual_epoch_length == 3


# Trust


def test_code_of_a_data_set_is_run_and_told_of_once(captions, tmp_path, monkeypatch, caplog):
    meta = captions / ".nv-meta"
    (meta / "code.py").write_text(
        "def sample_loader(raw):\n    return {'text': raw['txt'].upper()}\n"
        "def part_filter(part):\n    return part == 'txt'\n"
    )
    (meta / "code.yaml").write_text(
        "sample_type: {__module__: megatron.energon, __class__: TextSample}\n"
        "sample_loader: code.py:sample_loader\npart_filter: code.py:part_filter\n"
    )
    settings = {"batch_size": 1, "worker_config": NO_WORKERS, "dataset_config": "code.yaml"}
    monkeypatch.setattr("omniloom.energon.adapters.trust._Trust.told", False)
    with caplog.at_level(logging.WARNING, "omniloom"):
        for _ in range(2):
            assert next(iter(energon.get_val_dataset(captions, **settings))).text == ["CAPTION 12"]
    assert sum("OMNILOOM_TRUST=0 forbids it" in record.message for record in caplog.records) == 1
    monkeypatch.setenv("OMNILOOM_TRUST", "0")
    with pytest.raises(omniloom.ConfigError, match="OMNILOOM_TRUST=0"):
        energon.get_val_dataset(captions, **settings)
