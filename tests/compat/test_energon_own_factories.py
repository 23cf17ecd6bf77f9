"""Classes of users that a dataset.yaml names, and joins, where a task encoder puts data sets together itself."""

import json
from pathlib import Path

import own_factories
import pytest

import omniloom
from omniloom import energon

NO_WORKERS = energon.WorkerConfig(rank=0, world_size=1, num_workers=0)
ROWS = 6


def make_set(folder, mark):
    folder.mkdir()
    with omniloom.TarWriter(folder / "a.tar") as writer:
        for row in range(ROWS):
            writer.add(f"{row:02d}.txt", f"{mark} {row}".encode())
            writer.add(f"{row:02d}.json", b"{}")
    energon.BaseWebdatasetFactory.prepare_dataset(folder, ["a.tar"], split_parts_ratio=[("train", 1.0)], workers=1)
    describe(
        folder, sample_type={"__module__": "megatron.energon", "__class__": "TextSample"}, field_map={"text": "txt"}
    )
    return folder


def describe(folder, **content):
    (folder / ".nv-meta" / "dataset.yaml").write_text(json.dumps(content))


@pytest.fixture
def texts(tmp_path):
    return make_set(tmp_path / "texts", "text")


def shouted(**more):
    return {
        "__module__": own_factories.__name__,
        "__class__": "ShoutedWebdataset",
        "field_map": {"text": "txt"},
        "subflavors": {"from": "yaml"},
        **more,
    }


def evaluated(path, **settings):
    return list(
        energon.get_loader(
            energon.get_val_dataset(path, split_part="train", batch_size=None, worker_config=NO_WORKERS, **settings)
        )
    )


def test_a_factory_of_the_users_own_makes_the_samples(texts):
    describe(texts, **shouted(loud=7))
    samples = evaluated(texts)
    assert [type(one) for one in samples] == [own_factories.Shouted] * ROWS
    assert [(one.__key__, one.text, one.loud) for one in samples] == [(f"0{n}", f"TEXT {n}", 7) for n in range(ROWS)]
    assert samples[0].__subflavors__ == {"from": "yaml"}
    assert samples[3].__sources__[0].file_names == ("03.txt",)


def test_a_factory_over_undecoded_parts_filters_parts_and_samples(texts):
    describe(texts, __module__=own_factories.__name__, __class__="BytesWebdataset", only="3")
    assert [(one.__key__, one.text) for one in evaluated(texts)] == [("03", "6 bytes of txt")]


def test_it_trains_with_workers_and_samples_are_made_again(texts, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    describe(texts, **shouted())
    config = energon.WorkerConfig(rank=0, world_size=1, num_workers=1)
    dataset = energon.get_train_dataset(texts, batch_size=3, worker_config=config, shuffle_buffer_size=4)
    loader = energon.get_savable_loader(dataset)
    batches = [batch for _, batch in zip(range(2), loader, strict=False)]
    assert sorted(text for batch in batches for text in batch.text) == [f"TEXT {n}" for n in range(ROWS)]
    assert loader.restore_sample(batches[0].__restore_key__).text == batches[0].text
    loader.close()


def test_it_is_told_of_what_does_not_fit_and_of_trust(texts, monkeypatch):
    describe(texts, **shouted(lout=7))
    with pytest.raises(omniloom.ConfigError, match=r"dataset\.yaml: ShoutedWebdataset cannot be made .*lout"):
        evaluated(texts)
    describe(texts, **shouted())
    with pytest.raises(omniloom.ConfigError, match=r"ShoutedWebdataset is not one of omniloom's"):
        omniloom.get_val_dataset(texts, split_part="train")
    assert len(list(omniloom.get_val_dataset(texts, split_part="train", trust=True, batch_size=3))) == 2
    monkeypatch.setenv("OMNILOOM_TRUST", "0")
    with pytest.raises(omniloom.ConfigError, match=r"ShoutedWebdataset is not one of omniloom's"):
        evaluated(texts)


def test_factories_made_by_hand_take_classes_and_functions_of_a_caller(texts):
    @energon.edataclass
    class Own(energon.Sample):
        number: int

    factory = energon.StandardWebdatasetFactory(
        texts,
        sample_type=Own,
        sample_loader=lambda raw: {"number": int(raw["txt"].split()[1])},
        part_filter=["txt"],
        split_part="train",
        worker_config=NO_WORKERS,
    )
    assert [one.number for one in energon.get_loader(factory.build())] == list(range(ROWS))


# Joins


@pytest.fixture
def joined(tmp_path, texts):
    make_set(tmp_path / "labels", "label")
    path = tmp_path / "mix.yaml"
    path.write_text(
        "__module__: megatron.energon\n__class__: MetadatasetV2\nsplits:\n  train:\n    blend:\n"
        "      - weight: 3\n        path: texts\n"
        "      - weight: 1\n        join: {one: {path: texts}, two: {path: labels}}\n"
        "        subset: {range: [50%, 100%]}\n"
        f"        joiner: {{__module__: {__name__}, __function__: together}}\n"
    )
    energon.prepare_metadataset(path)
    return path


def together(one, two):
    return energon.TextSample.derive_from(one, text=f"{one.text} + {two.text}")


class Own(energon.DefaultTaskEncoder):
    """Blends as the engine does, in a method of its own, which says what it was given."""

    seen: list = []  # noqa: RUF012 - written by the test

    def build_train_datasets(self, *, datasets, **settings):
        Own.seen = [(type(one.dataset).__name__, one.weight) for one in datasets]
        return super().build_train_datasets(datasets=datasets, **settings)


def test_build_train_datasets_is_given_joins(joined):
    dataset = energon.get_train_dataset(joined, batch_size=1, worker_config=NO_WORKERS, task_encoder=Own())
    assert Own.seen == [("BaseWebdatasetFactory", 0.75), ("JoinedWebdatasetFactory", 0.25)]
    texts = [batch.text[0] for _, batch in zip(range(400), energon.get_loader(dataset), strict=False)]
    found = {text for text in texts if "+" in text}
    assert found == {f"text {n} + label {n}" for n in range(3, 6)}  # the second half of its rows
    assert 80 <= sum("+" in text for text in texts) <= 120


def test_a_join_is_one_of_the_data_sets_that_load_dataset_gives(joined):
    found = energon.load_dataset(joined).get_datasets(training=False, split_part="train", worker_config=NO_WORKERS)
    join = found.datasets[1].dataset
    assert isinstance(join, energon.JoinedWebdatasetFactory)
    assert len(join) == 3
    assert [one.text for one in energon.get_loader(join.build())] == [f"text {n} + label {n}" for n in range(3, 6)]


def test_a_join_made_by_hand(joined):
    root = joined.parent
    columns = {
        name: energon.get_dataset_from_config(root / name, split_part="train", worker_config=NO_WORKERS)
        for name in ("texts", "labels")
    }
    join = energon.JoinedWebdatasetFactory(
        {"one": columns["texts"], "two": columns["labels"]}, worker_config=NO_WORKERS, joiner=together
    )
    assert [one.text for one in energon.get_loader(join.build())][:2] == ["text 0 + label 0", "text 1 + label 1"]


# Loaders of mixes


def test_a_loader_of_the_users_own_tells_the_data_sets(tmp_path, monkeypatch):
    (tmp_path / "sets").mkdir()
    for name in "ab":
        make_set(tmp_path / "sets" / name, name)
    path = tmp_path / "mix.yaml"
    path.write_text(f"__module__: {own_factories.__name__}\n__class__: ByFolder\nfolder: sets\n")
    dataset = energon.get_train_dataset(path, batch_size=10, worker_config=NO_WORKERS)
    texts = [text for _, batch in zip(range(60), energon.get_loader(dataset), strict=False) for text in batch.text]
    assert 380 <= sum(text.startswith("b") for text in texts) <= 420
    val = energon.get_val_dataset(path, split_part="train", batch_size=12, worker_config=NO_WORKERS)
    (batch,) = energon.get_loader(val)
    assert batch.text == [f"{name} {n}" for name in "ab" for n in range(ROWS)]
    each = energon.get_val_datasets(path, split_part="train", batch_size=12, worker_config=NO_WORKERS)
    assert [next(iter(dataset)).text[0] for dataset, _ in each] == ["a 0", "b 0"]
    path.write_text(f"__module__: {own_factories.__name__}\n__class__: ByFolder\nfoulder: sets\n")
    with pytest.raises(omniloom.ConfigError, match=r"mix\.yaml: ByFolder cannot be made .*foulder"):
        energon.get_train_dataset(path, batch_size=1, worker_config=NO_WORKERS)
    monkeypatch.setenv("OMNILOOM_TRUST", "0")
    with pytest.raises(omniloom.ConfigError, match=r"class 'ByFolder' found; .* OMNILOOM_TRUST=0 forbids it"):
        energon.get_train_dataset(path, batch_size=1, worker_config=NO_WORKERS)


def counting(folder, **more):
    (folder / ".nv-meta").mkdir(parents=True)
    (folder / ".nv-meta" / ".info.json").write_text('{"shard_counts": {}}')
    (folder / ".nv-meta" / "split.yaml").write_text("split_parts: {train: []}\nexclude: []\n")
    describe(folder, __module__=own_factories.__name__, __class__="CountdownFactory", **more)
    return folder


class Loud(energon.DefaultTaskEncoder):
    def encode_sample(self, sample):
        sample.text = sample.text.upper()
        return sample


class Twice(energon.DefaultTaskEncoder):
    def encode_sample(self, sample):
        yield sample
        yield sample


def test_a_factory_with_a_build_of_its_own(tmp_path):
    folder = counting(tmp_path / "down", numbers=4, subflavors={"mark": "own"})
    assert [one.text for one in evaluated(folder)] == [f"own {n}" for n in (3, 2, 1, 0)]
    assert [one.text for one in evaluated(folder, task_encoder=Loud())] == [f"OWN {n}" for n in (3, 2, 1, 0)]
    assert [one.text for one in evaluated(folder, task_encoder=Twice())][:3] == ["own 3", "own 3", "own 2"]

    def loader(**settings):
        dataset = energon.get_train_dataset(folder, batch_size=3, worker_config=NO_WORKERS, **settings)
        return energon.get_savable_loader(dataset)

    first = loader(task_encoder=Loud())
    batches = [batch.text for _, batch in zip(range(3), first, strict=False)]
    assert batches == [["OWN 3", "OWN 2", "OWN 1"], ["OWN 0", "OWN 3", "OWN 2"], ["OWN 1", "OWN 0", "OWN 3"]]
    second = loader(task_encoder=Loud())
    second.restore_state_rank(first.save_state_rank())
    assert next(iter(second)).text == ["OWN 2", "OWN 1", "OWN 0"]
    assert [len(batch.text) for batch in loader(repeat=False)] == [3, 1]


def test_its_data_set_may_lie_in_a_store(tmp_path, monkeypatch):
    monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
    url = counting(tmp_path / "down", numbers=4, subflavors={"mark": "far"}).as_uri()
    assert [one.text for one in evaluated(url)] == [f"far {n}" for n in (3, 2, 1, 0)]
    mix = {"splits": {"train": {"blend": [{"path": url}, {"path": str(counting(tmp_path / "near"))}]}}}
    mix |= {"__module__": "megatron.energon", "__class__": "MetadatasetV2"}
    batches = energon.get_loader(energon.get_train_dataset(mix, batch_size=4, worker_config=NO_WORKERS))
    words = [text.split()[0] for _, batch in zip(range(5), batches, strict=False) for text in batch.text]
    assert (words.count("far"), words.count("none")) == (10, 10)


def test_it_is_blended_with_others(tmp_path, texts):
    counting(tmp_path / "down")
    mix = tmp_path / "mix.yaml"
    mix.write_text(
        "__module__: megatron.energon\n__class__: MetadatasetV2\nsplits:\n  train:\n    blend:\n"
        "      - {path: texts, weight: 1}\n      - {path: down, weight: 3, subflavors: {mark: mixed}}\n"
    )
    dataset = energon.get_train_dataset(mix, batch_size=4, worker_config=NO_WORKERS)
    loader = energon.get_savable_loader(dataset)
    words = [text.split()[0] for _, batch in zip(range(10), loader, strict=False) for text in batch.text]
    assert (words.count("mixed"), words.count("text")) == (30, 10)
    state = loader.save_state_rank()
    expected = [batch.text for _, batch in zip(range(5), loader, strict=False)]
    again = energon.get_savable_loader(dataset)
    again.restore_state_rank(state)
    assert [batch.text for _, batch in zip(range(5), again, strict=False)] == expected


def test_it_is_not_run_where_code_is_not_trusted(tmp_path, monkeypatch):
    folder = counting(tmp_path / "down")
    monkeypatch.setenv("OMNILOOM_TRUST", "0")
    with pytest.raises(omniloom.OmniloomError):
        evaluated(folder)
