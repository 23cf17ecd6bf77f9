"""Task encoders that put data sets together in their own way; what is given is counted."""

import json
from collections import Counter

import pytest

from omniloom import energon

CONFIG = energon.WorkerConfig(rank=0, world_size=1, num_workers=0)
ROWS = 300


@pytest.fixture
def mix(tmp_path):
    """A blend of two JSONL files: ``a`` with weight 1, ``b`` with weight 3."""
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps({"text": f"{name}{row}"}) + "\n" for row in range(ROWS))
        )
    splits = {"blend": [{"path": "a.jsonl", "weight": 1}, {"path": "b.jsonl", "weight": 3}]}
    epochs = {"blend_epochized": [{"path": "a.jsonl", "repetitions": 2}, {"path": "b.jsonl"}]}
    for name, train in {"blend.yaml": splits, "epochs.yaml": epochs}.items():
        content = {"__module__": "megatron.energon", "__class__": "MetadatasetV2", "splits": {"train": train}}
        (tmp_path / name).write_text(json.dumps(content))
    return tmp_path


class Cooking(energon.DefaultTaskEncoder):
    cookers = (
        energon.Cooker(lambda raw: energon.TextSample(**energon.basic_sample_keys(raw), text=raw["json"]["text"])),
    )

    def encode_sample(self, sample):
        sample.text = f"{sample.text}!"
        return sample


class AsDocumented(Cooking):
    """What the page on custom blending shows: data sets and weights, blended, batched, epochized."""

    def build_train_datasets(
        self,
        *,
        datasets,
        worker_config,
        batch_size,
        batch_drop_last=False,
        packing_buffer_size=None,
        virtual_epoch_length=0,
        shuffle_buffer_size=None,
    ):
        dataset = energon.BlendDataset(*datasets, worker_config=worker_config)
        dataset = self.build_batch(
            dataset, batch_size=batch_size, batch_drop_last=batch_drop_last, worker_config=worker_config
        )
        if virtual_epoch_length > 0:
            dataset = energon.EpochizeDataset(dataset, length=virtual_epoch_length, worker_config=worker_config)
        return dataset


def test_the_documented_method_works(mix):
    dataset = energon.get_train_dataset(
        mix / "blend.yaml", batch_size=4, worker_config=CONFIG, task_encoder=AsDocumented(), virtual_epoch_length=64
    )
    batches = list(energon.get_loader(dataset))
    assert [len(batch.text) for batch in batches] == [4] * 64
    counts = Counter(text[0] for batch in batches for text in batch.text)
    assert 63 <= counts["a"] <= 65  # a block of 256 draws
    assert not any(text.endswith("!") for batch in batches for text in batch.text)  # the page's method encodes nothing


class OneDatasetABatch(Cooking):
    """Each batch holds samples of one data set only."""

    def build_train_datasets(self, *, datasets, worker_config, batch_size, **_more):
        parts = []
        for loaded in datasets:
            samples = energon.RepeatDataset(loaded.dataset.build(), worker_config=worker_config)
            encoded = self.build_encode_sample(samples, worker_config=worker_config)
            batches = self.build_batch(encoded, batch_size=batch_size, worker_config=worker_config)
            parts.append((batches, loaded.weight))
        return energon.BlendDataset(*parts, worker_config=worker_config)


def test_batches_of_one_data_set_each_keep_the_weights(mix):
    dataset = energon.get_train_dataset(
        mix / "blend.yaml", batch_size=5, worker_config=CONFIG, task_encoder=OneDatasetABatch()
    )
    loader = energon.get_savable_loader(dataset)
    batches = [batch.text for _, batch in zip(range(80), loader, strict=False)]
    kinds = [{text[0] for text in batch} for batch in batches]
    assert all(len(kind) == 1 for kind in kinds)
    assert 15 <= sum(kind == {"a"} for kind in kinds) <= 25
    assert all(text.endswith("!") for batch in batches for text in batch)
    state = loader.save_state_rank()
    expected = [batch.text for _, batch in zip(range(10), loader, strict=False)]
    again = energon.get_savable_loader(dataset)
    again.restore_state_rank(state)
    assert [batch.text for _, batch in zip(range(10), again, strict=False)] == expected


class OnTop(Cooking):
    """The ready-made method, with something on top."""

    def build_train_datasets(self, **settings):
        return energon.MapDataset(super().build_train_datasets(**settings), lambda batch: sorted(batch.text))

    def build_val_datasets(self, **settings):
        return energon.MapDataset(super().build_val_datasets(**settings), lambda batch: batch.text)


def test_the_ready_made_methods_do_what_the_getters_do(mix):
    dataset = energon.get_train_dataset(
        mix / "epochs.yaml", batch_size=10, worker_config=CONFIG, task_encoder=OnTop(), repeat=False
    )
    counts = Counter(text for batch in energon.get_loader(dataset) for text in batch)
    assert counts == {f"{name}{row}!": times for name, times in (("a", 2), ("b", 1)) for row in range(ROWS)}
    dataset = energon.get_val_dataset(
        mix / "blend.yaml", split_part="train", batch_size=8, worker_config=CONFIG, task_encoder=OnTop(), limit=3
    )
    assert list(energon.get_loader(dataset)) == [[f"a{row}!" for row in range(n, n + 8)] for n in (0, 8, 16)]


def test_an_overridden_method_is_heeded_for_each_evaluation_data_set(mix):
    found = energon.get_val_datasets(
        mix / "blend.yaml", split_part="train", batch_size=8, worker_config=CONFIG, task_encoder=OnTop(), limit=2
    )
    assert [source.paths[0].name for _, source in found] == ["a.jsonl", "b.jsonl"]
    assert found[0][1].name.endswith("a.jsonl")
    for (dataset, _), name in zip(found, "ab", strict=True):
        assert list(energon.get_loader(dataset)) == [[f"{name}{row}!" for row in range(n, n + 8)] for n in (0, 8)]


def test_cooked_samples_are_put_together_by_an_own_method(mix):
    class Own(Cooking):
        """Leaves every second sample of a data set out, and marks the rest with what it was told of the data set."""

        def build_cook_crude_sample(self, dataset, *, worker_config, subflavors, get_primary_aux, aux=None):
            assert worker_config == CONFIG
            assert aux is None
            assert len(get_primary_aux()) == ROWS
            kept = energon.FilterDataset(dataset, filter_fn=even, worker_config=worker_config)
            cooked = super().build_cook_crude_sample(
                kept, worker_config=worker_config, subflavors=subflavors, get_primary_aux=get_primary_aux, aux=aux
            )
            return energon.MapDataset(cooked, lambda sample: (sample.text, sorted(subflavors)), worker_config=CONFIG)

        def encode_sample(self, sample):
            return sample

        def batch(self, samples):
            return samples

    dataset = energon.get_val_dataset(
        mix / "blend.yaml", split_part="train", batch_size=4, worker_config=CONFIG, task_encoder=Own()
    )
    found = [tuple(one) for batch in energon.get_loader(dataset) for one in batch]
    plain = energon.get_val_dataset(
        mix / "blend.yaml", split_part="train", batch_size=4, worker_config=CONFIG, task_encoder=Cooking()
    )
    cooked = [text for batch in energon.get_loader(plain) for text in batch.text]
    assert [text for text, _ in found] == [f"{name}{row}" for name in "ab" for row in range(0, ROWS, 2)]
    assert [text.rstrip("!") for text in cooked] == [f"{name}{row}" for name in "ab" for row in range(ROWS)]


def even(sample):
    return int(sample["__key__"]) % 2 == 0
