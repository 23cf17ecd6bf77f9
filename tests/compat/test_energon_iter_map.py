"""`IterMapDataset`: what comes of a stream, where it is saved, and what is made again; expected values by hand."""

import json

import pytest

from omniloom import energon
from omniloom.errors import ConfigError

ROWS = 24


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": str(n)}) + "\n" for n in range(ROWS)))
    return path


def cook(sample):
    return energon.TextSample(**energon.basic_sample_keys(sample), text=sample["json"]["text"])


class Encoder(energon.DefaultTaskEncoder):
    cookers = (energon.Cooker(cook),)


def evaluation(texts, **worker):
    config = energon.WorkerConfig(**{"rank": 0, "world_size": 1, "num_workers": 0, **worker})
    return energon.get_val_dataset(texts, batch_size=None, worker_config=config, task_encoder=Encoder())


def training(texts):
    config = energon.WorkerConfig(rank=0, world_size=1, num_workers=0)
    return energon.get_train_dataset(texts, batch_size=None, worker_config=config, task_encoder=Encoder())


def pairs(samples):
    """Two samples become one; a last one alone stays alone."""
    for first in samples:
        second = next(samples, None)
        first.text = first.text if second is None else f"{first.text}+{second.text}"
        yield first


def twice(samples):
    for sample in samples:
        for mark in "ab":
            yield energon.TextSample(
                __key__=sample.__key__, __restore_key__=sample.__restore_key__, text=f"{sample.text}{mark}"
            )


def only_every_fifth(samples):
    return (sample for sample in samples if int(sample.text) % 5 == 0)


def given(dataset, count=None):
    loader = energon.get_loader(dataset)
    return [one.text for _, one in zip(range(count or 10_000), loader, strict=False)]


def test_an_evaluation_is_one_stream_for_each_lane(texts):
    assert given(energon.IterMapDataset(evaluation(texts), pairs)) == [f"{n}+{n + 1}" for n in range(0, ROWS, 2)]
    assert given(energon.IterMapDataset(evaluation(texts), twice)) == [f"{n}{m}" for n in range(ROWS) for m in "ab"]
    ranks = [given(energon.IterMapDataset(evaluation(texts, rank=r, world_size=2), pairs)) for r in range(2)]
    assert ranks[0] == [f"{n}+{n + 1}" for n in range(0, 12, 2)]
    assert ranks[1] == [f"{n}+{n + 1}" for n in range(12, 24, 2)]


@pytest.mark.parametrize("function", [pairs, twice, only_every_fifth])
def test_training_goes_on_from_every_place(texts, function):
    dataset = energon.IterMapDataset(training(texts), function)
    loader = energon.get_loader(dataset)
    states, values = [], []
    for _, one in zip(range(30), loader, strict=False):
        values.append(one.text)
        states.append(json.loads(json.dumps(loader.save_state_rank())))
    for place in range(0, 29, 3):
        again = energon.get_loader(dataset)
        again.restore_state_rank(states[place])
        assert [one.text for _, one in zip(range(29 - place), again, strict=False)] == values[place + 1 :]


def test_results_are_made_again_by_their_key(texts):
    for function in (pairs, twice):
        dataset = energon.IterMapDataset(training(texts), function)
        loader = energon.get_loader(dataset)
        for _, one in zip(range(7), loader, strict=False):
            assert loader.restore_sample(one.__restore_key__).text == one.text


def test_results_are_mapped_and_batched(texts):
    def shout(sample):
        sample.text = f"{sample.text}!"
        return sample

    mapped = energon.MapDataset(energon.IterMapDataset(evaluation(texts), pairs), shout)
    batches = energon.BatchDataset(mapped, 5, energon.generic_batch)
    assert [batch.text for batch in energon.get_loader(batches)] == [
        [f"{n}+{n + 1}!" for n in range(0, 10, 2)],
        [f"{n}+{n + 1}!" for n in range(10, 20, 2)],
        ["20+21!", "22+23!"],
    ]


def test_a_function_that_fails_loses_what_it_had_in_hand_and_is_counted(texts):
    def fails_at_three(samples):
        for sample in samples:
            if sample.text == "3":
                raise ValueError("three")
            yield sample

    loader = energon.get_loader(energon.IterMapDataset(evaluation(texts), fails_at_three))
    assert [int(one.text) for one in loader] == [n for n in range(ROWS) if n != 3]


def test_batches_are_no_stream_of_samples(texts):
    batched = energon.get_val_dataset(
        texts, batch_size=4, worker_config=energon.WorkerConfig(num_workers=0), task_encoder=Encoder()
    )
    with pytest.raises(ConfigError, match="cannot be collected"):
        energon.IterMapDataset(batched, pairs)
