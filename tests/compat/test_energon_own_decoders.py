"""Decoders of a user's own: named by a data set's description, or said by a task encoder."""

import json

import own_decoders
import pytest

import omniloom
from omniloom import energon

CONFIG = energon.WorkerConfig(num_workers=0)


@pytest.fixture
def texts(tmp_path):
    with omniloom.TarWriter(tmp_path / "a.tar") as writer:
        for number in range(4):
            writer.add(f"{number}.txt", f"text {number}".encode())
            writer.add(f"{number}.json", b'{"a": 1}')
    energon.BaseWebdatasetFactory.prepare_dataset(tmp_path, ["a.tar"], split_parts_ratio=[("train", 1)], workers=1)
    return tmp_path


def describe(folder, **said):
    kind = {"sample_type": {"__module__": "megatron.energon", "__class__": "TextSample"}, "field_map": {"text": "txt"}}
    (folder / ".nv-meta" / "dataset.yaml").write_text(json.dumps({**kind, **said}))


def first(folder, **settings):
    dataset = energon.get_val_dataset(folder, split_part="train", batch_size=None, worker_config=CONFIG, **settings)
    return next(iter(energon.get_loader(dataset)))


def test_a_description_names_a_decoder(texts, monkeypatch):
    own = {"__module__": "own_decoders", "__class__": "Reversing"}
    describe(texts, decoder=own)
    assert first(texts).text == "0 txet"
    describe(texts, decoder={**own, "times": 2})
    assert first(texts).text == "text 0"
    describe(texts, decoder={"__module__": "own_decoders", "__class__": "Counting"})
    assert first(texts).text == len("text 0")
    describe(texts, decoder={**own, "colour": "red"})
    with pytest.raises(omniloom.ConfigError, match=r"decoder own_decoders\.Reversing cannot be made so.*colour"):
        first(texts)
    monkeypatch.setenv("OMNILOOM_TRUST", "0")
    with pytest.raises(omniloom.ConfigError, match="OMNILOOM_TRUST=0"):
        first(texts)


def test_strict_names_run_no_decoder_of_a_description_unless_allowed(texts):
    describe(texts, decoder={"__module__": "own_decoders", "__class__": "Reversing"})
    settings = {"split_part": "train", "worker_config": omniloom.WorkerConfig(num_workers=0)}
    with pytest.raises(omniloom.ConfigError, match="trust"):
        omniloom.get_val_dataset(texts, **settings)
    (batch, *_) = omniloom.get_val_dataset(texts, trust=True, **settings)
    assert batch.text == ["0 txet"]


def test_a_task_encoder_says_a_decoder(texts):
    describe(texts)

    class Encoder(energon.DefaultTaskEncoder):
        decoder = own_decoders.Reversing()

    assert first(texts, task_encoder=Encoder()).text == "0 txet"
    crude = {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}
    (texts / ".nv-meta" / "dataset.yaml").write_text(json.dumps(crude))
    found = first(texts, task_encoder=Encoder())
    assert (found["txt"], found["json"]) == ("0 txet", {"a": 1})
    Encoder.decoder = own_decoders.Counting()
    assert first(texts, task_encoder=Encoder())["txt"] == len("text 0")
