"""Task encoders over real files, as Energon's users write them: every step, every mark, every way to make again."""

from __future__ import annotations

import io
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import omniloom as ol
from omniloom import (
    AugmentTaskEncoder,
    BestFitPacker,
    Cooker,
    DefaultTaskEncoder,
    LengthBuckets,
    SkipSample,
    TaskEncoder,
    WorkerConfig,
    basic_sample_keys,
    cooker,
    edataclass,
    get_savable_loader,
    get_train_dataset,
    get_val_dataset,
    stateless,
)
from omniloom.data.pipeline.batch import Map
from omniloom.data.side import FileStoreCachePool
from omniloom.errors import ConfigError, FatalSampleError, StateError

torch = pytest.importorskip("torch")

NAMES = [f"{number:03d}" for number in range(40)]


def picture(number: int) -> bytes:
    """A PNG of 8 + n columns and 10 rows."""
    buffer = io.BytesIO()
    Image.new("RGB", (8 + number, 10), (number, 2, 3)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def crude(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "crude"
    root.mkdir()
    for shard in range(4):
        with ol.TarWriter(root / f"s{shard}.tar") as tar:
            for name in NAMES[shard * 10 : shard * 10 + 10]:
                tar.add(f"{name}.png", picture(int(name)))
                tar.add(f"{name}.txt", ("word " * (1 + int(name) % 9)).encode())
                tar.add(f"{name}.json", json.dumps({"bad": name.endswith("7")}).encode())
    ol.prepare_dataset(root, split_ratio={"train": 1.0}, num_workers=1)
    described = {
        "__module__": "megatron.energon",
        "__class__": "CrudeWebdataset",
        "subflavors": {"kind": "caption", "lang": "en"},
    }
    (root / ".nv-meta" / "dataset.yaml").write_text(json.dumps(described))
    return root


def config(**settings: Any) -> WorkerConfig:
    usual = {"rank": 0, "world_size": 1, "num_workers": 0, "lanes": 4, "start_method": "fork"}
    return WorkerConfig(**(usual | settings))


def loader_of(root: Path, encoder: Any, **settings: Any) -> Any:
    worker = {name: settings.pop(name) for name in ("num_workers", "faults") if name in settings}
    return get_savable_loader(get_train_dataset(root, worker_config=config(**worker), task_encoder=encoder, **settings))


# Cooking


@edataclass
class Caption(ol.Sample):
    image: Any
    tokens: list[int]
    drawn: float = 0.0


@stateless
def cook_caption(sample: dict[str, Any]) -> Caption:
    return Caption(
        **basic_sample_keys(sample),
        image=sample.peek("png"),
        tokens=list(range(len(sample["txt"].split()))),
        drawn=random.random(),
    )


@stateless(failure_tolerance=3)
@cooker(need_primary=True, need_cache=True)
def cook_with_stores(sample: dict[str, Any], *, primary: Any, cache: Any) -> Caption:
    lazy = cache.get_lazy(primary, ".txt")
    tokens = [len(lazy.get(sample))]
    return Caption(**basic_sample_keys(sample), image=sample["png"].shape, tokens=tokens)


class Captions(TaskEncoder[Any, Any, Any, Any]):
    cookers = (
        Cooker(cook_with_stores, has_subflavors={"kind": "vqa"}),
        Cooker(cook_caption, has_subflavors={"kind": "caption"}),
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_the_first_cooker_that_matches_makes_the_samples(crude: Path, workers: int) -> None:
    with loader_of(crude, Captions(), batch_size=None, repeat=False, num_workers=workers) as loader:
        samples = {sample.__key__: sample for sample in loader}
        assert sorted(samples) == NAMES
        for name, sample in samples.items():
            assert isinstance(sample, Caption)
            assert sample.__subflavors__ == {"kind": "caption", "lang": "en"}
            assert len(sample.tokens) == 1 + int(name) % 9
            assert loader.restore_sample(sample.__restore_key__).drawn == sample.drawn
    assert len({sample.drawn for sample in samples.values()}) == 40  # random numbers are the sample's own


def test_cookers_are_handed_the_data_set_itself_and_the_cache(crude: Path) -> None:
    class Stores(Captions):
        cookers = (Cooker(cook_with_stores),)

    for settings in ({}, {"cache_pool": FileStoreCachePool(num_workers=1)}):
        dataset = get_train_dataset(crude, worker_config=config(), task_encoder=Stores(), batch_size=None, repeat=False)
        with get_savable_loader(dataset, **settings) as loader:
            samples = {sample.__key__: sample for sample in loader}
        assert {name: s.tokens for name, s in samples.items()} == {n: [5 * (1 + int(n) % 9)] for n in NAMES}
        for name, sample in samples.items():
            first, fetched = sample.__sources__
            assert first.file_names == (f"{name}.png", f"{name}.txt", f"{name}.json")
            assert fetched.file_names == (f"{name}.txt",)


def test_a_cook_step_can_be_overridden_and_no_cooker_is_an_error_that_lists_them(crude: Path) -> None:
    class Overridden(Captions):
        def cook_crude_sample(self, sample: Any, cooker: Any, aux: dict[str, Any]) -> Any:
            cooked = super().cook_crude_sample(sample, cooker, aux)
            cooked.tokens = [7]
            return cooked

    assert next(iter(loader_of(crude, Overridden(), batch_size=None))).tokens == [7]

    class NoneFits(TaskEncoder[Any, Any, Any, Any]):
        cookers = (Cooker(cook_with_stores, has_subflavors={"kind": "vqa"}),)

    with pytest.raises(ConfigError, match=r"no cooker is for subflavors .*'caption'.*\n  cook_with_stores: .*'vqa'"):
        loader_of(crude, NoneFits(), batch_size=None)


# Encoding


def test_generators_skips_and_restore_keys(crude: Path) -> None:
    class Words(Captions):
        def encode_sample(self, sample: Caption) -> Iterator[Caption]:
            if sample.__key__.endswith("3"):
                raise SkipSample
            for token in sample.tokens:
                yield Caption.derive_from(sample, image=None, tokens=[token], drawn=random.random())

    loader = loader_of(crude, Words(), batch_size=None, repeat=False)
    samples = list(loader)
    expected = sum(1 + int(name) % 9 for name in NAMES if not name.endswith("3"))
    assert len(samples) == expected
    assert len({sample.__restore_key__ for sample in samples}) == expected
    for sample in samples[::7]:
        again = loader.restore_sample(sample.__restore_key__)
        assert (again.tokens, again.drawn) == (sample.tokens, sample.drawn)
    assert loader.stats()["datasets"]["crude"]["skipped"] == {"SkipSample": 4}
    with pytest.raises(SkipSample):
        loader.restore_sample((0, 0, next(s for s in range(40) if NAMES[s].endswith("3"))))


def test_a_step_has_its_own_tolerance(crude: Path) -> None:
    class Fails(Captions):
        @stateless(restore_seeds=True, failure_tolerance=4)
        def encode_sample(self, sample: Caption) -> Caption:
            raise ValueError(sample.__key__)

    with pytest.raises(FatalSampleError, match="4 samples failed in a row"):
        next(iter(loader_of(crude, Fails(), batch_size=None)))

    class ClassWide(Captions):
        __default_failure_tolerance__ = 2

        def encode_sample(self, sample: Caption) -> Caption:
            raise ValueError(sample.__key__)

    with pytest.raises(FatalSampleError, match="2 samples failed in a row"):
        next(iter(loader_of(crude, ClassWide(), batch_size=None)))


def test_indices_in_user_code_are_those_of_the_job(crude: Path) -> None:
    class Indices(Captions):
        def encode_sample(self, sample: Caption) -> Any:
            return {"sample": self.current_sample_index, "batch": self.current_batch_index, "key": sample.__key__}

    jobs = []
    for workers in (0, 2):
        with loader_of(crude, Indices(), batch_size=2, num_workers=workers) as loader:
            batches = list(islice(loader, 12))
            state = loader.save_state_rank()
        jobs.append([(batch["sample"], batch["batch"]) for batch in batches])
        for number, batch in enumerate(batches):
            assert batch["batch"] == [number] * 2
            assert batch["sample"] == [int(key) for key in batch["key"]]  # epoch 0: the row, which is the name here
        again = loader_of(crude, Indices(), batch_size=2)
        again.restore_state_rank(state)
        assert next(iter(again))["batch"] == [12, 12]
    assert jobs[0] == jobs[1]
    last = again.restore_sample([(0, 0, row, 0) for row in batches[-1]["sample"]], batch_index=11)
    assert last == batches[-1]
    with pytest.raises(StateError, match="known only while a loader makes a batch"):
        again.restore_sample((0, 0, 3))

    class Restored(Captions):
        def encode_sample(self, sample: Caption) -> Caption:
            sample.drawn = self.current_sample_index
            return sample

    assert loader_of(crude, Restored(), batch_size=None).restore_sample((0, 2, 5)).drawn == 2 * 40 + 5
    with pytest.raises(StateError, match=r"\(0, 0, 40\) names row 40 of a data set that has 40 rows"):
        loader_of(crude, Restored(), batch_size=None).restore_sample((0, 0, 40))
    with pytest.raises(StateError, match=r"names a pack, and this data set makes none"):
        loader_of(crude, Restored(), batch_size=None).restore_sample(("pack", 0, (0, 0, 1)))
    with pytest.raises(StateError, match="current_sample_index is known only while"):
        Restored().current_sample_index  # noqa: B018 - the property raises


def test_what_does_not_go_together_is_refused(crude: Path) -> None:
    class Both(Captions):
        def encode_sample(self, sample: Any) -> Any:
            return sample

        def preencode_sample(self, sample: Any) -> Any:
            return sample

    with pytest.raises(ConfigError, match="Both has both encode_sample and preencode_sample"):
        loader_of(crude, Both(), batch_size=None)

    class Many(Captions):
        def postencode_sample(self, sample: Any) -> Iterator[Any]:
            yield sample

    with pytest.raises(ConfigError, match="postencode_sample is a generator function"):
        loader_of(crude, Many(), batch_size=None)
    with pytest.raises(ConfigError, match=r"Captions has no select_samples_to_pack and no pack_selected_samples"):
        loader_of(crude, Captions(), batch_size=None, packing_buffer_size=8)


# Packing


DECODED: list[str] = []


def decode_counted(sample: Caption) -> Any:
    DECODED.append(sample.__key__)
    return sample.image.get()


@edataclass
class Packed(ol.Sample):
    keys: list[str]
    widths: list[int]
    tokens: int
    drawn: float


class PackedCaptions(Captions):
    """Costs from the image's header; pixels only for what is packed."""

    packer = BestFitPacker({"tokens": 40, "images": 5})

    def preencode_sample(self, sample: Caption) -> Caption:
        return sample

    def packing_cost(self, sample: Caption) -> dict[str, int]:
        width, height = sample.image.size()
        return {"tokens": width * height // 100 + len(sample.tokens), "images": 1}

    def postencode_sample(self, sample: Caption) -> Caption:
        sample.image = decode_counted(sample)
        return sample

    def pack_selected_samples(self, samples: list[Caption]) -> Packed:
        return Packed.derive_from(
            samples[0],
            keys=[sample.__key__ for sample in samples],
            widths=[sample.image.shape[-1] for sample in samples],
            tokens=sum(self.packing_cost_of(sample) for sample in samples),
            drawn=random.random(),
        )

    def packing_cost_of(self, sample: Caption) -> int:
        return sample.image.shape[-1] * sample.image.shape[-2] // 100 + len(sample.tokens)


def test_pixels_are_decoded_only_for_packs_that_are_made(crude: Path) -> None:
    DECODED.clear()
    loader = loader_of(crude, PackedCaptions(), batch_size=None, packing_buffer_size=80)
    packs = list(islice(loader, 6))
    assert Counter(DECODED) == Counter(key for pack in packs for key in pack.keys)
    for pack in packs:
        assert pack.tokens <= 40
        assert len(pack.keys) <= 5
        assert pack.widths == [8 + int(key) for key in pack.keys]
        again = loader.restore_sample(pack.__restore_key__)
        assert (again.keys, again.widths, again.drawn) == (pack.keys, pack.widths, pack.drawn)
        assert again.__restore_key__ == pack.__restore_key__


def test_every_sample_of_an_epoch_is_packed_once_and_oversize_is_counted(crude: Path) -> None:
    class Narrow(PackedCaptions):
        packer = BestFitPacker({"tokens": 10})

        def packing_cost(self, sample: Caption) -> dict[str, int]:  # type: ignore[override]
            return {"tokens": len(sample.tokens) + (5 if int(sample.__key__) > 35 else 0)}

    loader = loader_of(crude, Narrow(), batch_size=None, repeat=False, packing_buffer_size=12)
    keys = [key for pack in loader for key in pack.keys]
    # 36 to 39 have 1, 2, 3 and 4 words and 5 more each: all fit. None is lost, none comes twice.
    assert sorted(keys) == NAMES
    Narrow.packer = BestFitPacker({"tokens": 8})
    loader = loader_of(crude, Narrow(), batch_size=None, repeat=False, packing_buffer_size=12)
    keys = [key for pack in loader for key in pack.keys]
    too_long = [n for n in NAMES if 1 + int(n) % 9 + (5 if int(n) > 35 else 0) > 8]
    assert sorted(keys) == [name for name in NAMES if name not in too_long]
    assert loader.stats()["datasets"]["crude"]["skipped"] == {"oversize": len(too_long)}


@pytest.mark.parametrize("workers", [0, 2])
def test_packed_states_go_on_over_real_files(crude: Path, workers: int) -> None:
    def told(pack: Any) -> Any:
        return pack.keys, pack.drawn

    with loader_of(crude, PackedCaptions(), batch_size=None, packing_buffer_size=40, num_workers=workers) as loader:
        whole = [told(pack) for pack in islice(loader, 5)]
        state = json.loads(json.dumps(loader.save_state_rank()))
        whole += [told(pack) for pack in islice(loader, 15)]
    again = loader_of(crude, PackedCaptions(), batch_size=None, packing_buffer_size=40)
    again.restore_state_rank(state)
    assert [told(pack) for pack in islice(again, 15)] == whole[5:]


def test_threads_decode_what_is_packed_next_and_no_more(crude: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from omniloom.data.media import lazy as lazy_module  # noqa: PLC0415 - what is watched

    places: list[str] = []
    decoded = lazy_module.Lazy.get
    others = set(threading.enumerate()) - {threading.main_thread()}  # of loaders before this one

    def watched(self: Any, sample: Any = None) -> Any:
        if not self.is_decoded and threading.current_thread() not in others:
            places.append(threading.current_thread().name.split("_")[0])
        return decoded(self, sample)

    def run(threads: int, encoder: Any, **settings: Any) -> list[Any]:
        places.clear()
        dataset = get_train_dataset(
            crude, worker_config=config(decode_threads=threads), task_encoder=encoder, batch_size=None, **settings
        )
        with get_savable_loader(dataset) as loader:
            return list(islice(loader, 8))

    monkeypatch.setattr(lazy_module.Lazy, "get", watched)
    alone = [(pack.keys, pack.widths, pack.drawn) for pack in run(0, PackedCaptions(), packing_buffer_size=80)]
    assert set(places) == {"MainThread"}
    helped = [(pack.keys, pack.widths, pack.drawn) for pack in run(2, PackedCaptions(), packing_buffer_size=80)]
    assert helped == alone
    assert "omniloom" in places
    packed = sum(len(keys) for keys, _, _ in alone)
    assert packed <= len(places) <= 3 * packed  # of what waits in the windows nothing is decoded but the next packs

    class Look(TaskEncoder[Any, Any, Any, Any]):
        def encode_sample(self, sample: Any) -> Any:
            return sample["png"].shape

    run(2, Look())
    assert "omniloom" in places


def test_a_packer_alone_is_enough(crude: Path) -> None:
    class Words(Captions):
        packer = BestFitPacker({"tokens": 16, "images": 4})

        def encode_sample(self, sample: Caption) -> Any:
            tokens = torch.tensor([int(sample.__key__)] * len(sample.tokens))
            return {"__key__": sample.__key__, "__restore_key__": None, "tokens": tokens, "images": [sample.__key__]}

    loader = loader_of(crude, Words(), batch_size=None, packing_buffer_size=40)
    for pack in islice(loader, 10):
        borders = pack["cu_lengths"].tolist()
        assert borders[-1] == len(pack["tokens"]) <= 16
        assert pack["max_length"] == max(stop - start for start, stop in pairwise(borders))
        assert pack["images"] == pack["__key__"]
        for key, start, stop in zip(pack["__key__"], borders, borders[1:], strict=False):
            assert pack["tokens"][start:stop].tolist() == [int(key)] * (1 + int(key) % 9)
        assert torch.equal(loader.restore_sample(pack["__restore_key__"])["tokens"], pack["tokens"])


def test_evaluation_packs_every_sample_once(crude: Path) -> None:
    dataset = get_val_dataset(
        crude,
        split_part="train",
        worker_config=config(),
        task_encoder=PackedCaptions(),
        batch_size=None,
        packing_buffer_size=16,
    )
    assert sorted(key for pack in get_savable_loader(dataset) for key in pack.keys) == NAMES


# Grouping


class Grouped(Captions):
    buckets = LengthBuckets((3, 6, 9), per_batch=18)

    def encode_sample(self, sample: Caption) -> Any:
        return {"__key__": sample.__key__, "__restore_key__": sample.__restore_key__, "tokens": sample.tokens}

    def batch_group_criterion(self, sample: Any) -> Any:
        return self.buckets(len(sample["tokens"]))

    def batch(self, samples: list[Any]) -> Any:
        return {name: [sample[name] for sample in samples] for name in samples[0]} | {"drawn": random.random()}


def test_batches_of_like_lengths_by_a_ready_bucketer(crude: Path) -> None:
    loader = loader_of(crude, Grouped(), batch_size=None)
    for batch in islice(loader, 30):
        lengths = [len(tokens) for tokens in batch["tokens"]]
        bound = next(bound for bound in (3, 6, 9) if max(lengths) <= bound)
        assert min(lengths) > bound - 3
        assert len(lengths) == 18 // bound
        assert loader.restore_sample(batch["__restore_key__"]) == batch  # a list of keys is a batch
    with pytest.raises(TypeError, match="packs or groups samples"):
        len(loader)


def test_evaluation_in_groups_gives_every_sample_once(crude: Path) -> None:
    for drop_last in (False, True):
        dataset = get_val_dataset(
            crude,
            split_part="train",
            worker_config=config(),
            task_encoder=Grouped(),
            batch_size=None,
            batch_drop_last=drop_last,
        )
        loader = get_savable_loader(dataset)
        batches = list(loader)
        keys = [key for batch in batches for key in batch["__key__"]]
        assert len(keys) == len(set(keys))
        dropped = loader.stats()["datasets"]["crude"]["skipped"].get("drop-last", 0)
        assert len(keys) + dropped == 40
        assert bool(dropped) == drop_last


# Batches


def test_generators_of_batches(crude: Path) -> None:
    class Halves(Grouped):
        batch_group_criterion = TaskEncoder.batch_group_criterion

        def batch(self, samples: list[Any]) -> Iterator[Any]:  # type: ignore[override]
            for half in (samples[:2], samples[2:]):
                yield {"keys": [s["__key__"] for s in half], "__restore_key__": None}

        def encode_batch(self, batch: Any) -> Iterator[Any]:
            for copy in range(2):
                yield {**batch, "copy": copy, "drawn": random.random()}

    loader = loader_of(crude, Halves(), batch_size=4)
    batches = list(islice(loader, 24))
    assert len({tuple(batch["keys"]) for batch in batches}) == 12  # each half twice
    assert all(loader.restore_sample(batch["__restore_key__"]) == batch for batch in batches)
    again = loader_of(crude, Halves(), batch_size=4)
    again.restore_state_rank(json.loads(json.dumps(loader.save_state_rank())))
    assert list(islice(again, 10)) == list(islice(loader, 10))


def test_a_stage_of_ones_own_can_be_added(crude: Path) -> None:
    class Counted(Captions):
        def encode_sample(self, sample: Caption) -> Any:
            return sample.__key__

        def build_batch(self, dataset: Any, **settings: Any) -> Any:
            return Map(super().build_batch(dataset, **settings), ("count", 0, len))

    loader = loader_of(crude, Counted(), batch_size=3)
    assert list(islice(loader, 5)) == [3] * 5
    assert str(loader.dataset).splitlines()[-1] == "Map(call=('count', 0, <built-in function len>))"


# Augmenting


def test_an_augmented_encoder_keeps_everything_that_it_does_not_change(crude: Path) -> None:
    class Wider(AugmentTaskEncoder):
        def postencode_sample(self, sample: Any) -> Any:
            sample = super().postencode_sample(sample)
            sample.tokens = [*sample.tokens, 99]
            return sample

    plain = loader_of(crude, PackedCaptions(), batch_size=None, packing_buffer_size=80)
    wider = loader_of(crude, Wider(PackedCaptions()), batch_size=None, packing_buffer_size=80)
    for one, other in zip(islice(plain, 5), wider, strict=False):
        assert other.keys == one.keys
        assert other.tokens == one.tokens + len(one.keys)

    class OwnPacker(AugmentTaskEncoder):
        packer = BestFitPacker({"tokens": 1_000, "images": 1})

    assert all(
        len(pack.keys) == 1
        for pack in islice(loader_of(crude, OwnPacker(PackedCaptions()), batch_size=None, packing_buffer_size=80), 8)
    )

    class Words(Captions):
        def encode_sample(self, sample: Caption) -> Iterator[Any]:
            yield from sample.tokens

    assert list(islice(loader_of(crude, AugmentTaskEncoder(Words()), batch_size=None), 40)) == list(
        islice(loader_of(crude, Words(), batch_size=None), 40)
    )
    assert AugmentTaskEncoder(DefaultTaskEncoder()).overrides("encode_sample") is False
