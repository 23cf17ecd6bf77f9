"""Data sets with an iteration and a state of a user's own: in loaders, among other wrappers, saved and restored."""

import json
import random
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from omniloom.energon.rng import WorkerRng
from omniloom.energon.savable import Savable
from omniloom.energon.wrappers.base import BaseWrapperDataset, SampleIndex

import omniloom
from omniloom import energon

ROWS = 24


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A prepared data set of the texts "00" to "23", in two shards; part ``val`` is all of it."""
    folder = tmp_path_factory.mktemp("texts")
    for shard in range(2):
        with omniloom.TarWriter(folder / f"s{shard}.tar") as writer:
            for row in range(ROWS // 2):
                number = shard * ROWS // 2 + row
                writer.add(f"{number:02d}.txt", f"{number:02d}".encode())
    energon.BaseWebdatasetFactory.prepare_dataset(folder, ["s{0..1}.tar"], split_parts_ratio=[("train", 1)], workers=1)
    (folder / ".nv-meta" / "split.yaml").write_text(
        "split_parts: {train: [s0.tar, s1.tar], val: [s0.tar, s1.tar]}\nexclude: []\n"
    )
    (folder / ".nv-meta" / "dataset.yaml").write_text(
        "sample_type: {__module__: megatron.energon, __class__: TextSample}\nfield_map: {text: txt}\n"
    )
    return folder


def workers(number=0, rank=0, world_size=1):
    return energon.WorkerConfig(rank=rank, world_size=world_size, num_workers=number)


def samples_of(texts, config, *, training=False):
    part = "train" if training else "val"
    return energon.get_dataset_from_config(texts, split_part=part, training=training, worker_config=config).build()


class Pairs(BaseWrapperDataset):
    """Pairs of neighbours, numbered; a sample without a partner waits."""

    _savable_fields = ("waiting", "made", "rng", "index")

    def __init__(self, dataset, worker_config):
        super().__init__(dataset, worker_config=worker_config)
        self.waiting = []
        self.made = 0
        self.rng = WorkerRng(worker_config)
        self.index = SampleIndex(worker_config, src=self)

    def __iter__(self):
        for sample in self.dataset:
            self.waiting.append(sample.text)
            if len(self.waiting) == 2:
                pair, self.waiting = "+".join(self.waiting), []
                self.made += 1
                with self.index.ctx() as number:
                    yield self.made, pair, number, self.rng.randbelow(1000)

    def len_worker(self, worker_idx=None):
        return self.dataset.len_worker(worker_idx) // 2


class Count(energon.SavableDataset):
    """Numbers from the first one of its worker on, and no data set within."""

    _savable_fields = ("next_number",)

    def __init__(self, until, worker_config):
        super().__init__(worker_config=worker_config)
        self.until, self.next_number = until, 0

    def __iter__(self):
        begin = 1000 * self.worker_config.global_worker_id(self.worker_config.rank_worker_id())
        while self.next_number < self.until:
            self.next_number += 1
            yield begin + self.next_number - 1
        self.next_number = 0

    def len_worker(self, worker_idx=None):
        return self.until

    def worker_has_samples(self):
        return True


def take(loader, count):
    return list(islice(iter(loader), count))


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("training", [False, True])
def test_a_wrapper_goes_on_exactly_from_a_state_of_plain_values(texts, tmp_path, number, training):
    def loader():
        config = workers(number)
        source = samples_of(texts, config, training=training)
        return energon.get_savable_loader(
            Pairs(energon.RepeatDataset(source, worker_config=config) if training else source, config)
        )

    first = loader()
    assert len(first) == ROWS // 2
    before = take(first, 3)
    torch.save(first.save_state_rank(), tmp_path / "state.pt")
    expected = take(first, 5)
    second = loader()
    second.restore_state_rank(torch.load(tmp_path / "state.pt"))  # weights_only, as torch has it
    json.dumps(second.save_state_rank())
    assert take(second, 5) == expected
    if number == 0 and not training:  # by hand: the order of the split, in pairs
        assert [tuple(one[:3]) for one in before] == [(1, "00+01", 0), (2, "02+03", 1), (3, "04+05", 2)]
        assert tuple(expected[0][:2]) == (4, "06+07")
    for one in (first, second):
        one.close()


def test_a_wrappers_own_state_goes_on_from_pass_to_pass(texts):
    config = workers()
    loader = energon.get_savable_loader(Pairs(samples_of(texts, config), config))
    passes = [[one[0] for one in loader] for _ in range(2)]
    assert passes == [list(range(1, 13)), list(range(13, 25))]


def test_a_data_set_with_nothing_within(texts):
    for number in (0, 2):
        loader = energon.get_savable_loader(Count(3, workers(number)))
        assert sorted(loader) == sorted(1000 * one + value for one in range(max(1, number)) for value in range(3))
        assert len(loader) == 3 * max(1, number)
        loader.close()
    first = energon.get_savable_loader(Count(5, workers()))
    assert take(first, 2) == [0, 1]
    second = energon.get_savable_loader(Count(5, workers()))
    second.restore_state_rank(first.save_state_rank())
    assert list(second) == [2, 3, 4]
    assert list(second) == [0, 1, 2, 3, 4]


def test_own_data_sets_among_other_wrappers(texts):
    config = workers()
    pairs = Pairs(samples_of(texts, config), config)
    mapped = energon.MapDataset(pairs, lambda pair: pair[1], worker_config=config)
    batched = energon.BatchDataset(mapped, 5, list, worker_config=config)
    assert [len(batch) for batch in energon.get_loader(batched)] == [5, 5, 2]
    assert len(batched) == 3
    limited = energon.LimitDataset(mapped, 2, worker_config=config)
    loader = energon.get_loader(limited)
    assert [list(loader), list(loader)] == [["00+01", "02+03"]] * 2
    even = energon.FilterDataset(pairs, filter_fn=lambda pair: pair[0] % 2 == 0, worker_config=config)
    assert [one[0] for one in energon.get_loader(even)] == [2, 4, 6, 8, 10, 12]
    repeated = energon.RepeatDataset(pairs, repeats=3, worker_config=config)
    assert [one[0] for one in energon.get_loader(repeated)] == list(range(1, 37))
    twice = Pairs(energon.MapDataset(samples_of(texts, config), lambda one: one, worker_config=config), config)
    assert [one[1] for one in energon.get_loader(twice)][:2] == ["00+01", "02+03"]


def test_a_part_of_a_blend_that_has_ended_does_not_begin_anew_after_a_restart(texts):
    config = energon.WorkerConfig(rank=0, world_size=1, num_workers=0, lanes=2)

    def loader():
        packs = energon.GroupBatchDataset(samples_of(texts, config), 2, lambda sample: ("", None), words_of)
        singles = energon.MapDataset(samples_of(texts, config), lambda sample: [sample.text])
        return energon.get_savable_loader(energon.BlendDataset((packs, 0.7), (singles, 0.3), worker_config=config))

    whole, states = [], []
    first = loader()
    for _ in range(2):  # packs end long before the single samples
        for value in first:
            whole.append(value)
            states.append(json.loads(json.dumps(first.save_state_rank())))
        whole.append("end of a pass")
        states.append(json.loads(json.dumps(first.save_state_rank())))
    one_pass = whole[: whole.index("end of a pass")]
    assert sorted(text for value in one_pass for text in value) == sorted([f"{n:02d}" for n in range(ROWS)] * 2)
    for step in range(0, len(states), 3):
        restored, rest = loader(), []
        restored.restore_state_rank(states[step])
        while len(rest) < len(whole) - step - 1:
            rest += [*restored, "end of a pass"]
        assert rest == whole[step + 1 :]


def words_of(samples):
    return [sample.text for sample in samples]


class Drawing(BaseWrapperDataset):
    """Three values of each sample, each with something drawn."""

    _savable_fields = ("part", "text")

    def __init__(self, dataset, worker_config):
        super().__init__(dataset, worker_config=worker_config)
        self.part, self.text = 0, ""

    def __iter__(self):
        while True:
            if not self.part:
                sample = next(iter(self.dataset), None)
                if sample is None:
                    return
                self.text = sample.text
            self.part = (self.part + 1) % 3
            yield self.text, random.random(), float(np.random.rand())


def test_what_an_own_data_set_draws_is_drawn_again(texts):
    def loader():
        config = energon.WorkerConfig(rank=0, world_size=1, num_workers=0, lanes=2)
        pairs = energon.BatchDataset(
            Drawing(samples_of(texts, config), config), 2, lambda some: [*some, random.random()]
        )
        return energon.get_savable_loader(pairs)

    first, states, batches = loader(), [], []
    for batch in first:
        batches.append(batch)
        states.append(first.save_state_rank())
    assert len({value[1] for batch in batches for value in batch[:-1]}) == 3 * ROWS  # no number comes twice
    for step in range(0, len(states), 5):
        random.seed(step)  # what the caller draws makes no difference
        restored = loader()
        restored.restore_state_rank(states[step])
        assert list(restored) == batches[step + 1 :]


@pytest.mark.parametrize(("kind", "number"), [("over another", 0), ("repeated", 0), ("of its own", 0), ("repeated", 2)])
def test_values_of_an_own_data_set_are_shuffled_in_blocks(texts, kind, number):
    config = energon.WorkerConfig(rank=0, world_size=1, num_workers=number, start_method="fork")
    made = {
        "over another": lambda: energon.MapDataset(Pairs(samples_of(texts, config), config), lambda pair: pair[1]),
        "repeated": lambda: energon.RepeatDataset(Pairs(samples_of(texts, config), config), repeats=3),
        "of its own": lambda: Count(12, config),
    }[kind]

    def loader():
        return energon.get_savable_loader(energon.ShuffleBufferDataset(made(), 5, worker_config=config))

    plain, shuffled = energon.get_savable_loader(made()), loader()
    assert len(shuffled) == len(plain)
    in_order, states, values = list(plain), [shuffled.save_state_rank()], []
    for value in shuffled:
        values.append(value)
        states.append(json.loads(json.dumps(shuffled.save_state_rank())))
    assert sorted(values) == sorted(in_order)
    assert values != in_order
    if number == 0:  # blocks of five, the last one shorter
        blocks = [slice(start, start + 5) for start in range(0, len(values), 5)]
        assert [sorted(values[block]) for block in blocks] == [sorted(in_order[block]) for block in blocks]
    for step in range(0, len(states), 1 if number == 0 else 20):
        restored = loader()
        restored.restore_state_rank(states[step])
        assert list(restored) == values[step:]
        restored.close()
    assert sorted(shuffled) == sorted(plain)  # the next pass
    for one in (plain, shuffled):
        one.close()


class Alternating(BaseWrapperDataset):
    """Values of each data set within by turns."""

    _savable_fields = ("turn",)

    def __init__(self, datasets, worker_config):
        super().__init__(datasets, worker_config=worker_config)
        self.turn = 0

    def __iter__(self):
        sources = [iter(one) for one in self.datasets]
        while True:
            turn, self.turn = self.turn, (self.turn + 1) % len(sources)
            try:
                yield turn, next(sources[turn])
            except StopIteration:
                return


@pytest.mark.parametrize("number", [0, 2])
def test_a_wrapper_of_several_data_sets(texts, number):
    def loader():
        config = workers(number)
        sources = [energon.RepeatDataset(samples_of(texts, config, training=True)) for _ in range(2)]
        return energon.get_savable_loader(Alternating([sources[0], Pairs(sources[1], config)], config))

    first = loader()
    before = take(first, 7)
    assert {turn for turn, _ in before} == {0, 1}
    assert all(isinstance(one, energon.TextSample if turn == 0 else list) for turn, one in before)
    state = first.save_state_rank()
    expected = [repr(one) for one in take(first, 9)]
    second = loader()
    second.restore_state_rank(state)
    assert [repr(one) for one in take(second, 9)] == expected
    for one in (first, second):
        one.close()


def test_a_state_goes_to_other_numbers_of_ranks(texts):
    def loader(rank, world_size):
        config = workers(2 // world_size, rank, world_size)
        config.lanes = 2
        return energon.get_savable_loader(Pairs(samples_of(texts, config), config))

    one = loader(0, 1)
    take(one, 4)
    state = one.save_state_rank()
    expected = take(one, 4)
    halves = [loader(rank, 2) for rank in range(2)]
    for half in halves:
        half.restore_state_rank([state])
    found = [take(half, 2) for half in halves]
    assert [pair for step in zip(*found, strict=True) for pair in step] == expected
    for loader_ in (one, *halves):
        loader_.close()


class Shouting(BaseWrapperDataset):
    """Samples in capital letters, which can be made again."""

    def __iter__(self):
        for sample in self.dataset:
            yield self.loud(sample)

    def loud(self, sample):
        sample.text = f"{sample.text}!"
        return sample

    def restore_sample(self, restore_key):
        return self.loud(super().restore_sample(restore_key))

    def reset_state_own(self):
        pass


def test_samples_are_made_again_and_packed(texts):
    config = workers()
    loud = Shouting(samples_of(texts, config), worker_config=config)
    loader = energon.get_savable_loader(loud)
    sample = take(loader, 7)[-1]
    assert loader.can_restore_sample()
    assert loader.restore_sample(sample.__restore_key__).text == sample.text == "06!"
    assert not energon.get_savable_loader(Count(3, config)).can_restore_sample()

    def packed():
        own = Shouting(energon.RepeatDataset(samples_of(texts, config, training=True)), worker_config=config)
        return energon.PackingDataset(
            own,
            6,
            lambda samples: [samples[:3], samples[3:5]],
            lambda samples: [one.text for one in samples],
            worker_config=config,
        )

    first = energon.get_savable_loader(packed())
    take(first, 3)
    state, expected = first.save_state_rank(), take(first, 6)
    second = energon.get_savable_loader(packed())
    second.restore_state_rank(state)
    assert take(second, 6) == expected
    assert all(text.endswith("!") for pack in expected for text in pack)


def test_packs_are_blended(texts):
    config = workers()

    def packed(mark):
        source = energon.RepeatDataset(samples_of(texts, config, training=True))
        return energon.PackingDataset(
            source, 4, lambda samples: [samples], lambda samples: (mark, len(samples)), worker_config=config
        )

    def blend():
        return energon.get_savable_loader(
            energon.BlendDataset((packed("a"), 1), (packed("b"), 3), worker_config=config)
        )

    first = blend()
    given = take(first, 40)
    assert {size for _, size in given} == {4}
    assert [mark for mark, _ in given].count("b") == 30
    state, expected = first.save_state_rank(), take(first, 11)
    second = blend()
    second.restore_state_rank(state)
    assert take(second, 11) == expected


def test_what_a_state_cannot_hold_and_what_cannot_be_copied_is_told():
    class Odd(Count):
        _savable_fields = ("thing",)
        thing = range(3)

    loader = energon.get_savable_loader(Odd(3, workers()))
    with pytest.raises(omniloom.StateError, match=r"the state of Odd.thing is a builtins.range.*Savable"):
        take(loader, 1)

    own = Count(3, workers())
    own.file = open(__file__)  # noqa: SIM115, PTH123 - what is open cannot be copied
    with pytest.raises(omniloom.ConfigError, match="a Count cannot be copied, and each lane needs a copy"):
        energon.get_savable_loader(own)
    own.file.close()


def test_values_of_a_state_come_back_as_they_were():
    class Holder(Count):
        _savable_fields = ("next_number", "kept")

        def __init__(self, config):
            super().__init__(9, config)
            self.kept = {}

        def __iter__(self):
            for number in super().__iter__():
                self.kept = {
                    "tensor": torch.full((2,), number, dtype=torch.bfloat16),
                    "array": np.arange(number),
                    3: (b"raw", {1, 2}, np.float64(0.5)),
                }
                yield SimpleNamespace(kept=self.kept)

    class Given(Holder):
        def __iter__(self):
            yield SimpleNamespace(kept=self.kept)

    first = energon.get_savable_loader(Holder(workers()))
    kept = take(first, 4)[-1].kept
    second = energon.get_savable_loader(type("Holder", (Given,), {})(workers()))
    second.restore_state_rank(first.save_state_rank())
    found = take(second, 1)[0].kept
    assert torch.equal(found["tensor"], kept["tensor"])
    assert found["tensor"].dtype == torch.bfloat16
    assert found["array"].tolist() == [0, 1, 2]
    assert found[3] == (b"raw", {1, 2}, 0.5)
    assert isinstance(WorkerRng(workers()), Savable)


class Same(BaseWrapperDataset):
    """The values as they are."""

    def __init__(self, dataset, worker_config):
        super().__init__(dataset, worker_config=worker_config)

    def __iter__(self):
        yield from self.dataset


def test_values_that_a_saved_place_cannot_name_do_not_wait_for_others(texts):
    """A key is that of a sample or a pack: a batch, or a value of a shuffled block, would come back as another one."""
    config = workers()
    batches = Same(energon.BatchDataset(samples_of(texts, config), 2, list), config)
    shuffled = energon.ShuffleBufferDataset(Same(samples_of(texts, config), config), 4)
    for values in (batches, shuffled, Same(batches, config), energon.MapDataset(batches, list)):
        with pytest.raises(omniloom.ConfigError, match=r"GroupBatchDataset: .* cannot wait for others"):
            energon.GroupBatchDataset(values, 2, lambda value: (0, None), list)
        assert energon.BatchDataset(values, 2, list) is not None  # nothing waits in it
    with pytest.raises(omniloom.ConfigError, match=r"PackingDataset: .* cannot wait for others"):
        energon.PackingDataset(shuffled, 4, lambda samples: [samples], list)
    with pytest.raises(omniloom.ConfigError, match=r"IterMapDataset: .* cannot wait for others"):
        energon.IterMapDataset(shuffled, iter)
