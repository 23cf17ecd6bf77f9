"""Snippets of Energon's documentation that fail there, on data sets: what they promise is what is checked."""

import json
from pathlib import Path

import numpy as np
import pytest

import omniloom
from omniloom import energon

NO_WORKERS = energon.WorkerConfig(rank=0, world_size=1, num_workers=0)
CRUDE = '{"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}'


@pytest.fixture
def shards(tmp_path):
    """Three shards of two samples with parts txt and json, not yet prepared."""
    for shard in range(3):
        with omniloom.TarWriter(tmp_path / f"shard-{shard}.tar") as writer:
            for row in range(2):
                writer.add(f"{shard}-{row}.txt", f"Übung {shard}-{row}".encode())
                writer.add(f"{shard}-{row}.more.txt", b"more")
                writer.add(f"{shard}-{row}.json", b"{}")
    return tmp_path


def prepare(folder, **settings):
    return energon.BaseWebdatasetFactory.prepare_dataset(
        folder, [f"shard-{n}.tar" for n in range(3)], split_parts_ratio=[("train", 1.0)], workers=1, **settings
    )


def test_prepare_dataset_unpacks_to_parts_and_duplicates_and_is_the_set_of_parts(shards):
    found_types, duplicates = prepare(shards)
    assert found_types == {"txt", "more.txt", "json"}
    assert duplicates == []
    found = prepare(shards)
    assert found == {"txt", "more.txt", "json"}
    assert "json" in found
    assert "png" not in found
    assert len(found) == 3
    assert sorted(set(found)) == ["json", "more.txt", "txt"]
    assert found - {"json"} == {"txt", "more.txt"}


def test_the_wrapper_that_shows_progress_is_gone_through_once_a_shard(shards):
    seen = []

    def progress_fn(elements, length=None):
        for element in elements:
            seen.append((element, length))
            yield element
        seen.append("end")

    prepare(shards, progress_fn=progress_fn)
    assert seen == [(0, 3), (1, 3), (2, 3), "end"]


def cook_text(sample: dict, foo_bar_source: energon.FileStore) -> energon.TextSample:
    additional_text = foo_bar_source.get(sample["__key__"] + ".more.txt")
    return energon.TextSample(
        **energon.basic_sample_keys(sample), text=f"{sample['txt'].decode()} + {additional_text.decode()}"
    )


def test_text_of_crude_samples_and_stores_may_be_decoded(shards):
    prepare(shards)
    (shards / ".nv-meta" / "dataset.yaml").write_text(CRUDE)
    (Path(shards) / "mix.yaml").write_text(
        "__module__: megatron.energon\n__class__: MetadatasetV2\n"
        "splits: {val: {path: ., split_part: train, aux: {foo_bar_source: .}}}\n"
    )

    class Encoder(energon.DefaultTaskEncoder):
        cookers = (energon.Cooker(cook_text),)

    dataset = energon.get_val_dataset(
        shards / "mix.yaml", batch_size=6, worker_config=NO_WORKERS, task_encoder=Encoder()
    )
    (batch,) = energon.get_loader(dataset)
    assert sorted(batch.text) == [f"Übung {shard}-{row} + more" for shard in range(3) for row in range(2)]
    assert {type(text) for text in batch.text} == {str}


def test_decoded_text_is_text_whose_bytes_can_be_read_in_another_way():
    text = energon.SampleDecoder().decode("a.txt", "Ü".encode())
    assert text == "Ü"
    assert text.decode() == "Ü"
    assert text.decode("latin-1") == "Ã\x9c"


class Counting(energon.DefaultTaskEncoder):
    def encode_batch(self, batch):
        return self.current_batch_index


@pytest.mark.parametrize("encoder", [Counting(), energon.AugmentTaskEncoder(Counting())])
def test_each_rank_counts_its_own_batches(shards, encoder):  # so says the docstring of Energon's property
    prepare(shards)
    text = {"__module__": "megatron.energon", "__class__": "TextSample"}
    description = {"sample_type": text, "field_map": {"text": "txt"}}
    (shards / ".nv-meta" / "dataset.yaml").write_text(json.dumps(description))
    for rank in range(2):
        config = energon.WorkerConfig(rank=rank, world_size=2, num_workers=0, lanes=6)
        dataset = energon.get_train_dataset(shards, batch_size=1, worker_config=config, task_encoder=encoder)
        assert [index for _, index in zip(range(8), energon.get_loader(dataset), strict=False)] == list(range(8))


def test_small_functions_have_energons_signatures(shards):
    from omniloom.energon.flavors.webdataset.structs import DatasetSubset  # noqa: PLC0415

    from omniloom.energon import bracecollapse, eyaml  # noqa: PLC0415 - modules of the table

    file = shards / "a.yaml"
    file.write_bytes(b"a: [1, yes]\n")
    with file.open("rb") as stream:
        assert (
            eyaml.load_yaml(stream) == eyaml.load_yaml(b"a: [1, yes]") == eyaml.load_yaml_json(file) == {"a": [1, True]}
        )
    with pytest.raises(omniloom.ConfigError, match=r"\.yaml or \.json"):
        eyaml.load_yaml_json(shards / "a.toml")
    names = ["x001.tar", "x003.tar", "x002.tar", "y.tar"]
    assert bracecollapse.collapse(names) == ["x{001..003}.tar", "y.tar"]
    assert bracecollapse.collapse(names, keep_order=True) == names
    prepare(shards)
    (shards / ".nv-meta" / "dataset.yaml").write_text(CRUDE)
    half = DatasetSubset(range=(0.5, 1.0), absolute_range=(1, 5))  # rows 1 to 4, of these the second half
    assert half.compute_subset(6) == (3, 5)

    def keys(**settings):
        loader = energon.load_dataset(shards)
        dataset = loader.get_dataset(training=False, split_part="train", worker_config=NO_WORKERS, **settings)
        return [one["__key__"] for one in energon.get_loader(dataset.build())]

    assert keys(subset=half) == keys()[3:5]


def test_a_sample_in_one_line():
    sample = energon.TextSample(__key__="7", __restore_key__=("a", 7), text="x" * 60)
    line = energon.sample_utils.format_sample_compact(sample)
    assert line.startswith("TextSample(__key__='7', __restore_key__=('a', 7), ")
    assert f"text='{'x' * 50}...'" in line
    deep = {"a": {"b": {"c": {"d": 1}}}, "list": list(range(20)), "array": np.zeros((2, 3), np.uint8)}
    line = energon.sample_utils.format_sample_compact(deep)
    assert line == (
        "{a: {b: {c: {...}}}, list: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], array: np.ndarray(shape=(2, 3), dtype=uint8)}"
    )
    detailed = energon.sample_utils.format_sample_detailed({"six": np.arange(6), "seven": np.arange(7)})
    assert "values=[np.int64(0), np.int64(1), np.int64(2), np.int64(3), np.int64(4), np.int64(5)]" in detailed
    assert "np.int64(2), ..., np.int64(4)" in detailed
