"""Loading prepared data sets of real files, as a user would: typed and crude, blended, dirty, stale, resumed."""

from __future__ import annotations

import io
import json
import logging
import random
import shutil
import tarfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import omniloom as ol
from omniloom import WorkerConfig, get_loader, get_savable_loader, get_train_dataset, get_val_dataset
from omniloom.data.pipeline.faults import reason_of

torch = pytest.importorskip("torch")


def picture(number: int, size: tuple[int, int] = (40, 24), kind: str = "JPEG") -> bytes:
    x, y = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    pixels = np.stack([x * 5 + number, y * 9, (x + y) * 3], axis=-1).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def make_dataset(
    root: Path,
    samples: dict[str, dict[str, bytes]],
    *,
    per_shard: int = 10,
    split: dict[str, float] | None = None,
    config: dict[str, Any] | None = None,
) -> Path:
    root.mkdir(parents=True)
    names = list(samples)
    for shard, start in enumerate(range(0, len(names), per_shard)):
        with ol.TarWriter(root / f"s{shard:03d}.tar") as tar:
            for name in names[start : start + per_shard]:
                for part, data in samples[name].items():
                    tar.add(f"{name}.{part}", data)
    ol.prepare_dataset(root, split_ratio=split or {"train": 1.0}, num_workers=1)
    described = config or {"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}
    (root / ".nv-meta" / "dataset.yaml").write_text(json.dumps(described))
    return root


def typed(name: str, **fields: str) -> dict[str, Any]:
    return {"sample_type": {"__module__": "megatron.energon", "__class__": name}, "field_map": fields}


CAPTIONS = {f"{n:03d}": {"jpg": picture(n), "txt": f"picture {n}".encode()} for n in range(25)}
TEXTS = {f"t{n:03d}": {"txt": f"text {n}".encode()} for n in range(37)}
NO_WORKERS = {"rank": 0, "world_size": 1, "num_workers": 0}


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    return make_dataset(tmp_path / "captions", CAPTIONS, config=typed("CaptioningSample", image="jpg", caption="txt"))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return make_dataset(tmp_path / "texts", TEXTS, config=typed("TextSample", text="txt"))


def config(**settings: Any) -> WorkerConfig:
    return WorkerConfig(**(NO_WORKERS | settings))


@pytest.mark.parametrize("workers", [0, 2])
def test_images_and_captions_arrive_as_uint8_tensors_equal_to_pillows_pixels(captions: Path, workers: int) -> None:
    dataset = get_train_dataset(captions, worker_config=config(num_workers=workers), batch_size=4, repeat=False)
    seen = {}
    with get_loader(dataset) as loader:
        for batch in loader:
            assert isinstance(batch, ol.CaptioningSample)
            assert batch.image.dtype == torch.uint8
            assert batch["image"] is batch.image
            assert batch.image.shape[1:] == (3, 24, 40)
            for key, image, caption in zip(batch.__key__, batch.image, batch.caption, strict=True):
                seen[key] = caption
                expected = np.asarray(Image.open(io.BytesIO(CAPTIONS[key]["jpg"])))
                assert np.abs(image.permute(1, 2, 0).numpy().astype(int) - expected).max() <= 1
    assert seen == {key: parts["txt"].decode() for key, parts in CAPTIONS.items()}


def test_base_fields_tell_where_a_sample_came_from_and_it_can_be_made_again(captions: Path) -> None:
    dataset = get_train_dataset(captions, worker_config=config(), batch_size=None, shuffle_buffer_size=10)
    loader = get_savable_loader(dataset)
    for sample in islice(loader, 30):
        (source,) = sample.__sources__
        assert source.dataset_path == str(captions)
        assert source.file_names == (f"{sample.__key__}.jpg", f"{sample.__key__}.txt")
        assert source.shard_name == f"s{int(sample.__key__) // 10:03d}.tar"
        again = loader.restore_sample(sample.__restore_key__)
        assert again.caption == sample.caption
        assert torch.equal(again.image, sample.image)


def test_images_of_different_sizes_are_padded_with_zeros(tmp_path: Path) -> None:
    samples = {f"{n}": {"png": picture(n, (10 + n, 20 - n), "PNG")} for n in range(4)}
    root = make_dataset(tmp_path / "d", samples, config=typed("ImageSample", image="png"))
    batch = next(iter(get_val_dataset(root, split_part="train", worker_config=config(), batch_size=4)))
    assert batch.image.shape == (4, 3, 20, 13)
    assert batch.image[3, :, 17:].sum() == 0
    assert batch.image[0, :, :, 10:].sum() == 0


def test_field_maps_reach_into_json_and_try_alternatives(tmp_path: Path) -> None:
    entry = [{"from": "human", "value": "What?"}, {"from": "gpt", "value": "A cat."}]
    samples = {f"{n}": {("jpg" if n % 2 else "png"): picture(n), "json": json.dumps(entry).encode()} for n in range(6)}
    fields = {"image": "jpg,png", "context": "json[0][value]", "answers": "json[1][value]"}
    root = make_dataset(tmp_path / "d", samples, config=typed("VQASample", **fields))
    for batch in get_val_dataset(root, split_part="train", worker_config=config(), batch_size=6):
        assert batch.context == ["What?"] * 6
        assert batch.answers == ["A cat."] * 6
        assert batch.image.shape[0] == 6


def test_crude_samples_are_dicts_of_decoded_parts(tmp_path: Path) -> None:
    samples = {f"{n}": {"jpg": picture(n), "cls": b"7", "json": b'{"a": [1]}', "bin": b"\x00\xff"} for n in range(3)}
    root = make_dataset(tmp_path / "d", samples)
    loader = get_loader(get_val_dataset(root, split_part="train", worker_config=config(), batch_size=None))
    first = next(iter(loader))
    assert (first["__key__"], first["cls"], first["json"], first["bin"]) == ("0", 7, {"a": [1]}, b"\x00\xff")
    assert first["jpg"].shape == (3, 24, 40)


def test_evaluation_keeps_the_order_of_the_split_and_every_sample_once_on_any_ranks(texts: Path) -> None:
    for world_size in (1, 2, 3):
        by_rank = []
        for rank in range(world_size):
            settings = config(rank=rank, world_size=world_size)
            dataset = get_val_dataset(texts, split_part="train", worker_config=settings, batch_size=5)
            by_rank.append([list(batch.text) for batch in get_loader(dataset)])
        batches = [by_rank[b % world_size][b // world_size] for b in range(8)]
        assert [text for batch in batches for text in batch] == [f"text {n}" for n in range(37)]
        assert sum(map(len, by_rank)) == 8
    limited = get_val_dataset(texts, split_part="train", worker_config=config(), batch_size=5, limit=3)
    assert [len(batch.text) for batch in limited] == [5, 5, 5]
    assert len(limited) == 3


class Augment(ol.TaskEncoder[Any, Any, Any, Any]):
    """Mirrors, crops and drops by chance; all that is drawn is part of the batch."""

    def encode_sample(self, sample: Any) -> Any:
        if random.random() < 0.1:
            raise ol.SkipSample
        image = sample.image.flip(-1) if torch.rand(()) < 0.5 else sample.image
        return {"name": sample.__key__, "image": image, "draw": float(np.random.rand())}

    def encode_batch(self, batch: Any) -> Any:
        batch["noise"] = torch.rand(2)
        return batch


def told(batch: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(batch["name"]), tuple(batch["draw"]), batch["image"].numpy().tobytes(), tuple(batch["noise"].tolist())


def augmented(root: Path, **settings: Any) -> Any:
    dataset = get_train_dataset(
        root, worker_config=config(lanes=12, **settings), batch_size=3, shuffle_buffer_size=20, task_encoder=Augment()
    )
    return get_savable_loader(dataset)


def test_augmented_batches_are_the_same_on_any_workers_and_after_any_restart(captions: Path) -> None:
    job = [told(batch) for batch in islice(augmented(captions), 40)]
    for workers in (1, 3):
        with augmented(captions, num_workers=workers) as loader:
            assert [told(batch) for batch in islice(loader, 13)] == job[:13]
            state = json.loads(json.dumps(loader.save_state_rank()))
        resumed = augmented(captions)
        resumed.restore_state_rank(state)
        assert [told(batch) for batch in islice(resumed, 27)] == job[13:]
    ranks = []
    for rank in range(4):
        loader = augmented(captions, rank=rank, world_size=4)
        ranks.append([told(batch) for batch in islice(loader, 10)])
    assert [ranks[g % 4][g // 4] for g in range(40)] == job


def test_a_moved_data_set_goes_on_from_a_saved_state(captions: Path, tmp_path: Path) -> None:
    job = [told(batch) for batch in islice(augmented(captions), 20)]
    loader = augmented(captions)
    list(islice(loader, 9))
    state = loader.save_state_rank()
    moved = tmp_path / "elsewhere" / "captions"
    shutil.copytree(captions, moved)
    shutil.rmtree(captions)
    loader = augmented(moved)
    loader.restore_state_rank(state)
    assert [told(batch) for batch in islice(loader, 11)] == job[9:]


class Packing(ol.DefaultTaskEncoder):
    """Packs texts into rows of at most 40 characters."""

    def select_samples_to_pack(self, samples: list[Any]) -> list[list[Any]]:
        groups: list[list[Any]] = [[]]
        for sample in samples:
            if sum(len(one.text) for one in groups[-1]) + len(sample.text) > 40:
                groups.append([])
            groups[-1].append(sample)
        return groups

    def pack_selected_samples(self, samples: list[Any]) -> Any:
        return {"text": "|".join(sample.text for sample in samples), "draw": random.random()}


def test_packing_through_the_task_encoder_is_exact(texts: Path) -> None:
    def packed() -> Any:
        dataset = get_train_dataset(
            texts, worker_config=config(lanes=4), batch_size=2, packing_buffer_size=40, task_encoder=Packing()
        )
        return get_savable_loader(dataset)

    whole = [(batch["text"], batch["draw"]) for batch in islice(packed(), 30)]
    loader = packed()
    for step in range(30):
        resumed = packed()
        resumed.restore_state_rank(loader.save_state_rank())
        assert [(b["text"], b["draw"]) for b in islice(resumed, 3)] == whole[step : step + 3] or step > 27
        next(iter(loader))
    assert all(len(text.replace("|", "")) <= 40 for batch, _ in whole for text in batch)


def test_packing_without_saying_how_is_refused_at_once(texts: Path) -> None:
    with pytest.raises(ol.ConfigError, match="DefaultTaskEncoder has no select_samples_to_pack and no pack_selected"):
        get_train_dataset(texts, worker_config=config(), packing_buffer_size=10)


def test_packing_goes_on_with_another_number_of_workers_and_so_of_default_lanes(
    texts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def packed(workers: int) -> Any:
        settings = WorkerConfig(rank=0, world_size=1, num_workers=workers)
        dataset = get_train_dataset(
            texts, worker_config=settings, batch_size=2, packing_buffer_size=60, task_encoder=Packing()
        )
        return get_savable_loader(dataset)

    with packed(2) as two, packed(5) as five:
        list(islice(two, 7))
        five.restore_state_rank(two.save_state_rank())
        expected = [(batch["text"], batch["draw"]) for batch in islice(two, 20)]
        assert [(batch["text"], batch["draw"]) for batch in islice(five, 20)] == expected
    assert "packing goes on with windows of 5 samples a lane" in caplog.text


def test_blends_by_weight_and_a_path_that_comes_twice_is_one_data_set(
    captions: Path, texts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    more = make_dataset(
        tmp_path / "more", {f"m{n}": {"txt": b"m"} for n in range(9)}, config=typed("TextSample", text="txt")
    )
    missing = tmp_path / "not-there"
    mix = ol.Blender([(texts, 0.7), (more, 0.3), (missing, 0)])  # weight 0: never opened
    dataset = get_train_dataset(mix, worker_config=config(lanes=1), batch_size=8)
    kinds = Counter(key[0] for batch in islice(get_loader(dataset), 320) for key in batch.__key__)
    assert abs(kinds["t"] - 0.7 * 2_560) <= 1
    twice = get_train_dataset(
        ol.Blender([(texts, 0.5), (texts / ".." / "texts", 0.5)]), worker_config=config(lanes=1), batch_size=None
    )
    assert len({sample.__key__ for sample in islice(get_loader(twice), 37)}) == 37
    assert "comes twice in the mix" in caplog.text
    with pytest.raises(ol.ConfigError, match="all weights are 0"):
        get_train_dataset(ol.Blender([(texts, 0)]), worker_config=config())
    with pytest.raises(ol.ConfigError, match=r"weight nan of"):
        ol.Blender([(texts, float("nan"))])
    with pytest.raises(ol.ConfigError, match="no data sets given"):
        ol.Blender([])
    with pytest.raises(ol.DatasetError, match="not-there"):
        get_train_dataset(missing, worker_config=config())


# Dirty and changed data


def dirty(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    samples = {f"{n:03d}": {"jpg": picture(n), "txt": b"fine"} for n in range(30)}
    samples["003"]["jpg"] = b""
    samples["007"]["jpg"] = picture(7)[:300]
    samples["011"]["jpg"] = b"<html>not found</html>"
    samples["019"]["txt"] = b"\xff\xfe caption"
    del samples["023"]["txt"]
    reasons = {
        "003": "empty-member",
        "007": "truncated-image",
        "011": "html",
        "019": "encoding",
        "023": "missing-part",
    }
    return make_dataset(
        tmp_path / "dirty", samples, config=typed("CaptioningSample", image="jpg", caption="txt")
    ), reasons


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_samples_are_left_out_counted_and_quarantined(tmp_path: Path, workers: int) -> None:
    root, reasons = dirty(tmp_path)
    path = tmp_path / "bad.jsonl"
    policy = ol.FaultPolicy("quarantine", quarantine_path=str(path))
    dataset = get_train_dataset(
        root, worker_config=config(num_workers=workers, faults=policy), batch_size=3, repeat=False
    )
    with get_loader(dataset) as loader:
        keys = [key for batch in loader for key in batch.__key__]
        stats = loader.stats()["datasets"]["dirty"]
    assert sorted(keys) == sorted(f"{n:03d}" for n in range(30) if f"{n:03d}" not in reasons)
    assert stats["skipped"] == dict(Counter(reasons.values()))
    assert (stats["yielded"], stats["yielded"] + sum(stats["skipped"].values())) == (25, 30)
    records = {record["row"]: record for record in map(json.loads, path.read_text().splitlines())}
    assert {f"{row:03d}": record["reason"] for row, record in records.items()} == reasons
    for row, record in records.items():
        assert record["shard"] == f"s{row // 10:03d}.tar"
        start, stop = record["bytes"]
        assert f"{row:03d}.".encode() in (root / record["shard"]).read_bytes()[start:stop]


def test_the_first_bad_sample_can_be_an_error_with_its_place(tmp_path: Path) -> None:
    root, _ = dirty(tmp_path)
    dataset = get_val_dataset(
        root, split_part="train", worker_config=config(faults=ol.FaultPolicy("raise")), batch_size=3
    )
    with pytest.raises(
        ol.SampleError,
        match=r"loading failed: SampleError: the image has no bytes; .*\n  at data set 'dirty', s000.tar",
    ):
        list(get_loader(dataset))


def test_handlers_are_told(tmp_path: Path) -> None:
    root, reasons = dirty(tmp_path)
    told_of: list[str] = []
    settings = config(global_error_handler=lambda error, sample, sources: told_of.append(reason_of(error)))
    list(get_loader(get_train_dataset(root, worker_config=settings, repeat=False)))
    assert Counter(told_of) == Counter(reasons.values())


def rewrite(root: Path, *, swap: bool) -> None:
    parts = [(key, part, data) for key in list(CAPTIONS)[:10] for part, data in CAPTIONS[key].items()]
    parts = parts[2:4] + parts[:2] + parts[4:] if swap else [(k, p, d + b"!!" * 300) for k, p, d in parts]
    with ol.TarWriter(root / "s000.tar") as tar:
        for key, part, data in parts:
            tar.add(f"{key}.{part}", data)


@pytest.mark.parametrize("swap", [False, True])
def test_a_shard_that_changed_after_it_was_indexed_gives_nothing(captions: Path, swap: bool) -> None:
    size = (captions / "s000.tar").stat().st_size
    rewrite(captions, swap=swap)
    assert ((captions / "s000.tar").stat().st_size == size) == swap
    strict = get_val_dataset(captions, split_part="train", worker_config=config(faults=ol.FaultPolicy("raise")))
    with pytest.raises(ol.SampleError, match=r"ShardError: s000.tar: the shard does not fit its index") as caught:
        next(iter(get_loader(strict)))
    assert caught.value.reason == "index-stale"
    tolerant = get_loader(get_train_dataset(captions, worker_config=config(), batch_size=1, repeat=False))
    keys = [key for batch in tolerant for key in batch.__key__]
    assert sorted(keys) == [f"{n:03d}" for n in range(10, 25)]
    assert tolerant.stats()["datasets"]["captions"]["skipped"] == {"index-stale": 10}


def test_a_shard_that_disappears_is_named(captions: Path) -> None:
    dataset = get_val_dataset(captions, split_part="train", worker_config=config(faults=ol.FaultPolicy("raise")))
    (captions / "s000.tar").unlink()
    with pytest.raises(ol.SampleError, match=r"s000\.tar"):
        next(iter(get_loader(dataset)))
    with pytest.raises(ol.DatasetError, match=r"s000\.tar"):
        get_val_dataset(captions, split_part="train", worker_config=config())


def test_excluded_samples_and_shards_stay_out(captions: Path) -> None:
    split = captions / ".nv-meta" / "split.yaml"
    split.write_text("split_parts: {train: ['s{000..002}.tar']}\nexclude: ['s000.tar', 's001.tar/013']\n")
    loader = get_loader(get_train_dataset(captions, worker_config=config(), batch_size=1, repeat=False))
    assert sorted(key for batch in loader for key in batch.__key__) == [f"{n:03d}" for n in range(10, 25) if n != 13]
    assert loader.stats()["datasets"]["captions"]["skipped"] == {"excluded": 1}


def test_unknown_and_empty_parts_and_unprepared_folders_say_what_there_is(captions: Path, tmp_path: Path) -> None:
    with pytest.raises(ol.DatasetError, match="train"):
        get_train_dataset(captions, split_part="valid", worker_config=config())
    (tmp_path / "raw").mkdir()
    with pytest.raises(ol.DatasetError, match="omniloom prepare"):
        get_train_dataset(tmp_path / "raw", worker_config=config())


def test_one_good_shard_among_empty_ones_is_shared_by_all_ranks_and_workers(tmp_path: Path) -> None:  # C13
    root = tmp_path / "mixed"
    root.mkdir()
    (root / "a.tar").write_bytes(bytes(10_240))
    with ol.TarWriter(root / "b.tar") as tar:
        for n in range(40):
            tar.add(f"{n:02d}.txt", b"x")
    ol.prepare_dataset(root, num_workers=1)
    (root / ".nv-meta" / "dataset.yaml").write_text(json.dumps(typed("TextSample", text="txt")))
    keys: list[str] = []
    for rank in range(2):
        settings = config(rank=rank, world_size=2, num_workers=2)
        with get_loader(get_train_dataset(root, worker_config=settings, batch_size=2, repeat=False)) as loader:
            keys += [key for batch in loader for key in batch.__key__]
    assert sorted(keys) == [f"{n:02d}" for n in range(40)]


def test_the_same_key_in_two_shards_is_two_samples(tmp_path: Path) -> None:  # C14 c
    root = tmp_path / "same"
    root.mkdir()
    for shard in range(2):
        with ol.TarWriter(root / f"{shard}.tar") as tar:
            tar.add("a.txt", f"from {shard}".encode())
    ol.prepare_dataset(root, num_workers=1)
    (root / ".nv-meta" / "dataset.yaml").write_text(json.dumps(typed("TextSample", text="txt")))
    samples = list(get_loader(get_train_dataset(root, worker_config=config(), batch_size=None, repeat=False)))
    assert sorted(sample.text for sample in samples) == ["from 0", "from 1"]
    assert len({sample.__restore_key__ for sample in samples}) == 2
    assert {sample.__sources__[0].shard_name for sample in samples} == {"0.tar", "1.tar"}


def test_interleaved_parts_and_hard_links_are_whole_samples(tmp_path: Path) -> None:  # C15, C04
    root = tmp_path / "odd"
    root.mkdir()
    with tarfile.open(root / "s.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in (("a.jpg", picture(1)), ("b.jpg", picture(2)), ("a.txt", b"A"), ("b.txt", b"B")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("c.jpg")
        link.type, link.linkname = tarfile.LNKTYPE, "a.jpg"
        tar.addfile(link)
        info = tarfile.TarInfo("c.txt")
        info.size = 1
        tar.addfile(info, io.BytesIO(b"C"))
    ol.prepare_dataset(root, num_workers=1)
    fields = typed("CaptioningSample", image="jpg", caption="txt")
    (root / ".nv-meta" / "dataset.yaml").write_text(json.dumps(fields))
    samples = list(get_loader(get_train_dataset(root, worker_config=config(), batch_size=None, repeat=False)))
    images = {sample.caption: sample.image for sample in samples}
    assert set(images) == {"A", "B", "C"}
    assert torch.equal(images["A"], images["C"])
    assert not torch.equal(images["A"], images["B"])


def test_the_guides_names_and_defaults_work(captions: Path) -> None:
    settings = WorkerConfig(num_workers=1, prefetch_factor=2, persistent_workers=True)
    assert (settings.rank, settings.world_size) == (0, 1)
    dataset = get_train_dataset(captions, batch_size=2, shuffle_buffer_size=100, worker_config=settings)
    with get_loader(dataset) as loader:
        batch = next(iter(loader))
    assert batch["image"].shape[0] == 2
    assert WorkerConfig.default_worker_config(num_workers=0).num_workers == 0
    assert len(get_train_dataset(captions, batch_size=2, worker_config=config())) == 12
    pairs = ol.get_val_datasets(captions, split_part="train", worker_config=config(), batch_size=2)
    assert [leaf.path for _, leaf in pairs] == [str(captions)]


@pytest.mark.parametrize(
    "spec",
    ["l8", "rgb8", "rgba8", "l", "rgb", "torchrgb8", "torchl8", "torchrgb", "torch", "pil", "pill", "raw", "uint8"],
)
def test_every_image_spec(spec: str) -> None:
    data = picture(3, kind="PNG")
    value = ol.SampleDecoder(image_decode=spec).decode("a.png", data)
    if spec == "raw":
        assert value == data
        return
    gray = "l" in spec.removeprefix("torch").removeprefix("pil").removesuffix("8")
    mode = "RGBA" if "a" in spec else "L" if gray else "RGB"
    expected = np.asarray(Image.open(io.BytesIO(data)).convert(mode))
    if spec.startswith("torch") or spec == "uint8":
        assert isinstance(value, torch.Tensor)
        value = value.numpy() if gray else value.permute(1, 2, 0).numpy()
    value = np.asarray(value)
    if value.dtype == np.float32:
        assert value.max() <= 1.0
        value = np.round(value * 255)
    assert np.array_equal(value, expected)
    with pytest.raises(ol.ConfigError, match="image_decode='jpeg' found"):
        ol.SampleDecoder(image_decode="jpeg")


def test_resized_images_are_close_to_pillows() -> None:
    pixels = ol.decode_image(picture(5, (200, 150)))
    resized = ol.resize_image(torch.from_numpy(pixels.transpose(2, 0, 1).copy()), (60, 80))
    expected = np.asarray(Image.fromarray(pixels).resize((80, 60), Image.Resampling.BICUBIC))
    assert np.abs(resized.permute(1, 2, 0).numpy().astype(int) - expected).max() <= 1


def test_real_photographs_decode_like_pillow() -> None:
    folder = Path(__file__).resolve().parents[2] / "../shared/data/photos"
    if not folder.is_dir():
        pytest.skip("the shared photographs are not here")
    files = sorted(folder.glob("*.jpg"))
    assert files
    for file in files:
        data = file.read_bytes()
        expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        assert np.abs(ol.decode_image(data).astype(int) - expected).max() <= 1
        assert ol.image_size(data) == Image.open(io.BytesIO(data)).size


def several(sample: Any) -> Iterator[Any]:
    for part in range(3):
        yield {"name": sample.__key__, "part": part, "draw": random.random()}


class Several(ol.DefaultTaskEncoder):
    """Three of one."""

    def encode_sample(self, sample: Any) -> Any:
        yield from several(sample)


def test_generator_encoders_give_several_samples_exactly(texts: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    def loader() -> Any:
        dataset = get_train_dataset(texts, worker_config=config(lanes=3), batch_size=4, task_encoder=Several())
        return get_savable_loader(dataset)

    whole = [tuple(zip(b["name"], b["part"], b["draw"], strict=True)) for b in islice(loader(), 20)]
    running = loader()
    for step in range(17):
        resumed = loader()
        resumed.restore_state_rank(json.loads(json.dumps(running.save_state_rank())))
        again = [tuple(zip(b["name"], b["part"], b["draw"], strict=True)) for b in islice(resumed, 3)]
        assert again == whole[step : step + 3]
        next(iter(running))
    with pytest.raises(TypeError, match="no length"):
        len(loader())
