"""Energon's helpers for those who write code around user functions; numbers are Energon's own."""

import dataclasses
import json

import pytest
import torch
from omniloom.energon.dataset_config import load_config
from omniloom.energon.errors import ErrorContext, handle_restore_errors
from omniloom.energon.flavors import WebdatasetMeta
from omniloom.energon.flavors.base_dataset import add_sample_restore_key, legacy_handler, set_sample_restore_key
from omniloom.energon.flavors.jsonl.ijsonl import IJsonlIndexReader, IJsonlIndexWriter
from omniloom.energon.flavors.webdataset.structs import WebdatasetInfo, WebdatasetSplits
from omniloom.energon.rng import WorkerRng

import omniloom
from omniloom import energon


def sample(number=3):
    return energon.TextSample(__key__=str(number), __restore_key__=("Webdataset", number), text="x")


def test_an_error_context_counts_failures_in_a_row():
    seen = []
    context = ErrorContext("mapping", lambda error, sample, sources: seen.append((str(error), sample.__key__)), 3)

    def fail(error):
        with context.handle_errors(sample()):
            raise error

    fail(ValueError("a"))
    fail(ValueError("b"))
    fail(energon.SkipSample())
    assert repr(context) == "ErrorContext(name='mapping', tolerance=3, count=2)"
    with context.handle_errors(sample()):
        pass
    fail(ValueError("c"))
    fail(ValueError("d"))
    with pytest.raises(energon.FatalSampleError, match="mapping failed 3 times in a row"):
        fail(ValueError("e"))
    context.reset()
    with pytest.raises(energon.FatalSampleError, match="the program is at fault"):
        fail(NameError("f"))
    assert seen == [(name, "3") for name in "abcde"]


def test_errors_in_making_a_sample_again_are_told():
    seen = []
    for error in (ValueError("a"), energon.SkipSample()):
        with handle_restore_errors(lambda error, *_: seen.append(type(error).__name__), sample()):
            raise error
    assert seen == ["ValueError", "ValueError"]
    with pytest.raises(KeyError), handle_restore_errors(energon.reraise_exception, sample()):
        raise KeyError
    legacy_handler(lambda error, sample: seen.append(sample))(ValueError(), 5, None)
    assert seen[-1] == 5
    assert legacy_handler(energon.log_exception) is energon.log_exception


def test_restore_keys_name_what_they_went_through():
    class Doubled:
        pass

    assert add_sample_restore_key(sample(), 4, src=Doubled()).__restore_key__ == ("Doubled", 4, "Webdataset", 3)
    assert set_sample_restore_key({"__restore_key__": (1,)}, 4, src=Doubled())["__restore_key__"] == ("Doubled", 4)
    assert add_sample_restore_key(7, 4, src=Doubled()) == 7
    with pytest.raises(RuntimeError, match="int has no restore key"):
        add_sample_restore_key(7, src=Doubled(), fail_otherwise=True)


def test_a_workers_random_numbers_are_energons():
    config = energon.WorkerConfig(rank=1, world_size=4, num_workers=0)
    numbers = WorkerRng(config)
    assert [numbers.randbelow(1000) for _ in range(3)] == [209, 116, 956]
    assert numbers.choice_idx(torch.tensor([1.0, 2.0, 3.0])) == 2
    assert numbers.shuffle(list(range(6))) == [0, 4, 1, 2, 5, 3]
    state = numbers.save_state()
    values = ["a", "b", "c"]
    drawn = [numbers.choice(values), numbers.rand_pop(values)]
    assert sorted([*values, drawn[1]]) == ["a", "b", "c"]
    again = WorkerRng(config)
    again.restore_state(state)
    values = ["a", "b", "c"]
    assert [again.choice(values), again.rand_pop(values)] == drawn


def test_what_is_known_of_a_part_and_objects_of_a_file(tmp_path, monkeypatch):
    for shard in range(3):
        with omniloom.TarWriter(tmp_path / f"{shard}.tar") as writer:
            writer.add(f"{shard}.txt", b"x")
    omniloom.prepare_dataset(tmp_path, split_parts=["train:[01].tar", "val:2.tar"], num_workers=1)
    split = tmp_path / ".nv-meta" / "split.yaml"
    split.write_text(json.dumps({"split_parts": {"train": ["{0..1}.tar"], "val": ["2.tar"]}, "exclude": ["0.tar/0"]}))
    known = WebdatasetMeta.from_config(tmp_path, split_part="train")
    assert known.sample_excludes == {"0"}
    assert [(one.name, one.count) for one in known.shards] == [("0.tar", 1), ("1.tar", 1)]
    assert known.split_part_files == ["0.tar", "1.tar"]
    assert known.info_shard_files == ["0.tar", "1.tar", "2.tar"]
    file = tmp_path / "decoder.yaml"
    file.write_text("__module__: megatron.energon\n__class__: SampleDecoder\nimage_decode: pil\n")
    assert load_config(energon.EPath(file), default_type=None).image_decode == "pil"
    made = load_config({"image_decode": "rgb"}, default_type=energon.SampleDecoder, default_kwargs={"av_decode": "raw"})
    assert (made.image_decode, made.av_decode) == ("rgb", "raw")
    monkeypatch.setenv("OMNILOOM_TRUST", "0")
    with pytest.raises(omniloom.ConfigError, match="OMNILOOM_TRUST=0 forbids"):
        load_config(energon.EPath(file), default_type=None)


def test_the_index_of_jsonl_is_read_and_written(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": 22}\n')
    with IJsonlIndexWriter(energon.EPath(path)) as writer:
        for offset in (0, 9, 19):
            writer.append(offset)
    written = (tmp_path / "a.jsonl.idx").read_bytes()
    energon.CrudeJsonlDatasetFactory.prepare_dataset(path)
    assert (tmp_path / "a.jsonl.idx").read_bytes() == written
    with IJsonlIndexReader(path) as reader:
        assert (list(reader), len(reader), reader[1]) == ([0, 9, 19], 3, 9)
    assert (IJsonlIndexReader.count_samples(path), IJsonlIndexReader.size(path)) == (2, 19)
    with pytest.raises(KeyError), IJsonlIndexWriter(tmp_path / "b.jsonl"):
        raise KeyError
    assert not (tmp_path / "b.jsonl.idx").exists()


def test_the_content_of_info_and_split_files():
    splits = WebdatasetSplits(split_parts={"train": ["a.tar"]})
    assert dataclasses.asdict(splits) == {"split_parts": {"train": ["a.tar"]}, "exclude": []}
    assert WebdatasetInfo(shard_counts={"a.tar": 3}).energon_version is None
