"""Mixes of real data sets: whole epochs, exact states, the same order on any ranks and workers, in every mode."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import omniloom as ol
from omniloom import Cooker, TaskEncoder, WorkerConfig, get_loader, get_train_dataset, get_val_dataset
from omniloom.data.open import get_val_datasets
from omniloom.tools.main import run as run_command

NO_WORKERS = {"rank": 0, "world_size": 1, "num_workers": 0}
SIZES = {"a": 100, "b": 37, "c": 9, "parts": 60}


def config(**settings: Any) -> WorkerConfig:
    return WorkerConfig(**(NO_WORKERS | settings))


def make(root: Path, keys: list[str], described: dict[str, Any], *, suffix: str = "") -> None:
    root.mkdir(parents=True)
    for shard, start in enumerate(range(0, len(keys), 20)):
        with ol.TarWriter(root / f"s{shard}.tar") as tar:
            for key in keys[start : start + 20]:
                tar.add(f"{key}.txt", f"{root.name} {key}{suffix}".encode())
                tar.add(f"{key}.label.txt", f"label {key}".encode())
    ol.prepare_dataset(root, split_ratio={"train": 1.0}, num_workers=1)
    (root / ".nv-meta" / "dataset.yaml").write_text(json.dumps(described))


def typed(name: str, **fields: str) -> dict[str, Any]:
    return {"sample_type": {"__module__": "megatron.energon", "__class__": name}, "field_map": fields}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    for name, size in SIZES.items():
        make(root / name, [f"{name}{n:03d}" for n in range(size)], typed("TextSample", text="txt"))
    make(root / "crude", [f"k{n:02d}" for n in range(50)], {"__class__": "CrudeWebdataset"})
    # Partners of every third row of a, from the last to the first, and rows that nothing asks for.
    partners = [f"a{n:03d}" for n in range(99, -1, -3)]
    labels = typed("ImageClassificationSample", image="txt", label_name="label.txt")
    make(root / "labels", ["z0", *partners, "z1"], labels)
    return root


def read(dataset: ol.Dataset, count: int | None = None) -> list[Any]:
    return list(islice(get_loader(dataset), count))


def keys(samples: list[Any]) -> list[str]:
    return [sample.__key__ for sample in samples]


def batches(dataset: ol.Dataset, count: int) -> list[tuple[str, ...]]:
    return [tuple(batch.__key__) for batch in islice(get_loader(dataset), count)]


class Measured(TaskEncoder[Any, Any, Any, Any]):
    """Counts the letters of a text as its tokens, those of the set c a hundred times."""

    def token_count(self, sample: Any) -> int:
        return len(sample.text) * (100 if sample.__key__.startswith("c") else 1)


def joined_text(text: Any, label: Any) -> Any:
    text.text = f"{text.text} | {label.label_name if label is not None else None}"
    return text


MODES: dict[str, Callable[[Path], tuple[Any, dict[str, Any]]]] = {
    "weights": lambda d: (ol.blend([(d / "a", 3), (d / "b", 1)]), {}),
    "nested weights": lambda d: (
        ol.blend([(ol.blend([(d / "a", 1), (d / "b", 2)]), 1), (ol.concat([d / "c", d / "parts"]), 1)]), {},
    ),
    "epochs": lambda d: (ol.blend_epochized([(d / "a", 1.5), (d / "c", 3)]), {}),
    "epochs that end": lambda d: (ol.blend_epochized([(d / "a", 1.5), (d / "c", 3)]), {"repeat": False}),
    "concat": lambda d: (ol.concat([d / "a", d / "b", d / "c"]), {}),
    "join": lambda d: (ol.join([d / "a", (d / "labels", "skip")], joiner=joined_text), {}),
    "subset": lambda d: (ol.source(d / "a", subset=("10%", "60%")), {}),
    "multipliers": lambda d: (
        ol.blend([(ol.source(d / "a", shuffle_over_epochs_multiplier=3), 1),
                  (ol.source(d / "b", shuffle_over_epochs_multiplier=None), 1)]), {},
    ),
    "schedule": lambda d: (ol.blend([(d / "a", {0: 1, 600: 0}), (d / "b", {0: 0, 600: 1})]), {}),
    "tokens": lambda d: (
        ol.blend([(d / "a", 1), (d / "c", {"steps": {0: 1, 20_000: 3}})], weights_in="tokens", schedule_in="tokens"),
        {"task_encoder": Measured()},
    ),
    "several ways": lambda d: (
        ol.blend([(ol.source(d / "a", subflavors={"x": 1}), 1), (d / "c", 1), (ol.source(d / "a"), 2)]), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_order_and_states_hang_on_neither_ranks_nor_workers(mode: str, data: Path) -> None:
    mix, settings = MODES[mode](data)

    def dataset(**changes: Any) -> ol.Dataset:
        return get_train_dataset(
            mix, worker_config=config(lanes=12, **changes), batch_size=4, shuffle_buffer_size=10, **settings
        )

    whole = batches(dataset(), 36)
    shares = [batches(dataset(rank=rank, world_size=3), 12) for rank in range(3)]
    assert [shares[number % 3][number // 3] for number in range(len(whole))] == whole
    loader = get_loader(dataset())
    for _ in range(5):
        next(iter(loader))
    state = json.loads(json.dumps(loader.save_state_rank()))
    again = get_loader(dataset())
    again.restore_state_rank(state)
    assert [tuple(batch.__key__) for batch in islice(again, len(whole) - 5)] == whole[5:]
    # As tensors, dealt to other ranks.
    tensors = loader.state_dict()
    parts = [get_loader(dataset(rank=rank, world_size=2)) for rank in range(2)]
    for part in parts:
        part.load_state_dict(tensors)
    ours = [[tuple(batch.__key__) for batch in islice(part, 10)] for part in parts]
    # Five of the job's batches are gone: the lanes that are behind come first.
    assert sorted([*ours[0], *ours[1]]) == sorted(whole[5:25])


def test_workers_give_the_same_order(data: Path) -> None:
    joined, ways = MODES["join"](data)[0], MODES["several ways"](data)[0]
    settings: dict[str, Any] = {"task_encoder": Measured()}
    mix = ol.blend([(joined, 1), (ways, 1), (ol.source(data / "b", subset=(3, 9)), 1)], weights_in="tokens")
    expected = batches(get_train_dataset(mix, worker_config=config(lanes=12), batch_size=4, **settings), 30)
    dataset = get_train_dataset(mix, worker_config=config(lanes=12, num_workers=2), batch_size=4, **settings)
    with get_loader(dataset) as loader:
        assert [tuple(batch.__key__) for batch in islice(loader, 30)] == expected


# Weights


def test_weights_of_all_levels_are_multiplied_and_a_concat_shares_its_own_by_rows(data: Path) -> None:
    mix, _ = MODES["nested weights"](data)
    found = Counter(key.rstrip("0123456789") for key in keys(read(train(mix), 6_144)))
    # By hand: 1/2 * 1/3, 1/2 * 2/3, and 1/2 by 9 and 60 of 69 rows.
    for name, share in (("a", 1 / 6), ("b", 1 / 3), ("c", 9 / 138), ("parts", 60 / 138)):
        assert abs(found[name] - 6_144 * share) <= 2


def train(mix: Any, **settings: Any) -> ol.Dataset:
    return get_train_dataset(
        mix, **({"worker_config": config(lanes=1), "batch_size": None, "shuffle_buffer_size": 10} | settings)
    )


def test_shares_of_tokens(data: Path) -> None:
    mix = ol.blend([(data / "a", 1), (data / "c", 1)], weights_in="tokens")
    samples = read(train(mix, task_encoder=Measured()), 5_000)
    tokens = Counter()  # type: ignore[var-annotated]
    for sample in samples:
        tokens[sample.__key__[0]] += Measured().token_count(sample)
    assert tokens["a"] / sum(tokens.values()) == pytest.approx(
        0.5, abs=0.02
    )  # the first block's guess is not paid back
    # "a a000" has 6 letters, so has "c c000", which count a hundredfold.
    assert sum(key[0] == "c" for key in keys(samples)) == pytest.approx(5_000 / 101, abs=5)


# Epochs


def test_epochs_are_exact(data: Path) -> None:
    dataset = train(ol.blend_epochized([(data / "a", 1.5), (data / "c", 3)]), repeat=False)
    assert len(dataset) == 177  # 150 and 27
    loader = get_loader(dataset)
    first, second = ([sample.__key__ for sample in loader] for _ in range(2))
    counts = Counter(first)
    assert Counter(counts[f"a{n:03d}"] for n in range(100)) == {1: 50, 2: 50}
    assert {counts[f"c{n:03d}"] for n in range(9)} == {3}
    assert set(Counter(key for key in first + second if key[0] == "a").values()) == {3}  # two epochs make it whole
    endless = train(ol.blend_epochized([(data / "a", 1.5), (data / "c", 3)]))
    assert keys(read(endless, 354)) == first + second


def test_concat_gives_each_row_once_an_epoch_and_by_weight_there_is_no_end(data: Path) -> None:
    mix = ol.concat([data / "a", data / "b", data / "c"])
    assert Counter(keys(read(train(mix, repeat=False)))) == dict.fromkeys(
        [f"{name}{n:03d}" for name in "abc" for n in range(SIZES[name])], 1
    )
    assert max(Counter(keys(read(train(mix), 146))).values()) == 1
    with pytest.raises(ol.ConfigError, match="repeat=False does not go with weights"):
        train(ol.blend([(data / "a", 1)]), repeat=False)


# One data set on several ways


def test_a_data_set_on_two_ways_is_told_and_drawn_whole(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    link = tmp_path / "link"
    link.symlink_to(data / "a")
    inner = tmp_path / "inner.yaml"
    inner.write_text(f"splits: {{train: {{datasets: [{{path: {link}, subflavors: {{way: link}}}}]}}}}")
    mix = ol.blend([(ol.source(data / "a", subflavors={"way": "direct"}), 1), (inner, 3)])
    caplog.set_level(logging.WARNING)
    samples = read(train(mix), 1_000)
    assert "link comes twice in the mix, at" in caplog.text
    assert "whose samples get the subflavors of one way or the other" in caplog.text
    for start in range(0, 1_000, 100):
        assert len(set(keys(samples[start : start + 100]))) == 100
    ways = Counter(sample.__subflavors__["way"] for sample in samples)
    assert ways["direct"] == pytest.approx(250, abs=60)  # five standard deviations
    # The same key goes the same way, whatever came before.
    loader = get_loader(train(mix))
    for sample in samples[:5]:
        assert loader.restore_sample(sample.__restore_key__).__subflavors__ == sample.__subflavors__
    caplog.clear()
    assert len(read(get_val_dataset(mix, split_part="train", worker_config=config(), batch_size=10))) == 20
    assert "each of its samples is gone through twice" in caplog.text


def test_ranges_with_rows_in_common_are_told(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    halves = [ol.source(data / "a", subset=("0%", "50%")), ol.source(data / "a", subset=("50%", "100%"))]
    assert len(set(keys(read(train(ol.concat(halves), repeat=False))))) == 100
    assert "rows in common" not in caplog.text
    train(ol.concat([halves[0], ol.source(data / "a", subset=("40%", "60%"))]))
    assert "rows in common" in caplog.text


def cook_plain(sample: dict[str, Any]) -> Any:
    return ol.TextSample.derive_from(_base(sample), text="plain")


def cook_loud(sample: dict[str, Any]) -> Any:
    return ol.TextSample.derive_from(_base(sample), text="loud")


def _base(sample: dict[str, Any]) -> Any:
    fields = ("__key__", "__restore_key__", "__subflavors__", "__sources__")
    return ol.Sample(**{name: sample[name] for name in fields})


class Cooking(TaskEncoder[Any, Any, Any, Any]):
    cookers = [Cooker(cook_loud, has_subflavors={"loud": True}), Cooker(cook_plain)]  # noqa: RUF012


def test_each_way_has_its_cooker(data: Path) -> None:
    mix = ol.blend([(data / "crude", 1), (ol.source(data / "crude", subflavors={"loud": True}), 1)])
    samples = read(train(mix, task_encoder=Cooking()), 50)
    assert len(set(keys(samples))) == 50
    assert {(bool(sample.__subflavors__), sample.text) for sample in samples} == {(True, "loud"), (False, "plain")}


# Joins


def test_joins_by_all_three_rules(data: Path, tmp_path: Path) -> None:
    def texts(nonmatch: str) -> list[str]:
        mix = ol.join([data / "a", (data / "labels", nonmatch)], joiner=joined_text)
        dataset = get_val_dataset(mix, split_part="train", worker_config=config(lanes=1), batch_size=None)
        return [sample.text for sample in read(dataset)]

    # Every third row has a partner: a099, a096, ..., a000.
    assert texts("skip") == [f"a a{n:03d} | label a{n:03d}" for n in range(0, 100, 3)]
    assert texts("none") == [f"a a{n:03d} | " + (f"label a{n:03d}" if n % 3 == 0 else "None") for n in range(100)]
    with pytest.raises(ol.DatasetError, match=r"labels: no sample for 66 of 100 keys of .*a, such as 'a001', 'a002'"):
        texts("error")
    assert len(list((tmp_path / "cache").rglob("omniloom_join_*.npy"))) == 2
    assert not list((tmp_path / "cache").glob(".omniloom*"))


def test_the_index_of_a_join_lies_beside_its_file(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "join.yaml"
    path.write_text(
        f"""
__module__: megatron.energon
__class__: MetadatasetV2
splits:
  train:
    join:
      - {{path: {data / "a"}, subflavors: {{x: 1}}}}
      - {{path: {data / "labels"}, nonmatch: skip}}
    joiner: {{__module__: megatron.energon, __class__: OCRSample}}
"""
    )
    dataset = get_train_dataset(path, worker_config=config(lanes=1), batch_size=None)
    assert len(list((tmp_path / "join.yaml.cache").rglob("omniloom_join_*.npy"))) == 1
    assert dataset.plan.leaves[0].rows == 34
    assert dataset.plan.leaves[0].name == "a+labels"


def test_from_joined_takes_later_fields_and_all_sources(data: Path, tmp_path: Path) -> None:
    mix = ol.join([data / "a", (data / "labels", "skip")], joiner=TextAndLabel, subset=(3, 5))
    dataset = get_val_dataset(mix, split_part="train", worker_config=config(lanes=1), batch_size=None)
    samples = read(dataset)
    assert [(s.__key__, s.text, s.label_name) for s in samples] == [
        ("a009", "a a009", "label a009"), ("a012", "a a012", "label a012"),
    ]  # fmt: skip
    assert [source.dataset_path for source in samples[0].__sources__] == [str(data / "a"), str(data / "labels")]
    assert [source.index for source in samples[0].__sources__] == [9, 31]
    assert samples[0].__restore_key__[:3] == (0, 0, 0)
    assert get_loader(dataset).restore_sample(samples[1].__restore_key__) == samples[1]


@ol.edataclass
class TextAndLabel(ol.TextSample):
    image: Any
    label: int | None
    label_name: str


# Other values of the getters


def test_a_data_set_that_is_not_there_is_named_with_its_line(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "mix.yaml"
    path.write_text(f"splits:\n  train:\n    datasets:\n      - path: {data / 'a'}\n      - path: gone\n")
    with pytest.raises(ol.DatasetError, match=r"(?s)gone.*It stands at .*mix\.yaml:5 "):
        train(path)
    several = ol.blend([(data / "a", 1), (tmp_path / "gone", 1), (tmp_path / "lost", 1)])
    with pytest.raises(ol.DatasetError, match=r"(?s)2 of 3 data sets .* cannot be opened:\n- .*gone.*\n- .*lost"):
        train(several)


def test_outermost_settings(data: Path) -> None:
    mix = {"splits": {"held": ol.concat([ol.source(data / "a", split_part="train", subflavors={"x": 1, "y": 1}),
                                         ol.source(data / "c", split_part="train")])}}  # fmt: skip
    datasets = get_val_datasets(
        mix, split_part="held", worker_config=config(), batch_size=5, subset=("0%", "50%"), subflavors={"x": 2}
    )
    assert [(len(read(dataset)), leaf.name, len(leaf.rows)) for dataset, leaf in datasets] == [
        (10, "a", 50), (1, "c", 4),
    ]  # fmt: skip
    (batch, *_), (other,) = (read(dataset) for dataset, _ in datasets)
    assert list(batch.__key__) == [f"a{n:03d}" for n in range(5)]
    assert list(other.__key__) == [f"c{n:03d}" for n in range(4)]
    whole = get_val_dataset(mix, split_part="held", worker_config=config(), batch_size=5, subflavors={"x": 2})
    assert sum(len(batch.__key__) for batch in read(whole)) == 109
    assert len(whole) == 22


def test_single_samples_of_an_evaluation_keep_their_order_where_some_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "some"
    make(root, [f"{n:03d}" for n in range(50)], typed("TextSample", text="txt"))
    left_out = [0, 7, 8, 20, 49]
    split = {"split_parts": {"val": ["s0.tar", "s1.tar", "s2.tar"]},
             "exclude": [f"s{n // 20}.tar/{n:03d}" for n in left_out]}  # fmt: skip
    (root / ".nv-meta" / "split.yaml").write_text(json.dumps(split))
    expected = [f"{n:03d}" for n in range(50) if n not in left_out]
    for workers in (0, 2):
        dataset = get_val_dataset(root, worker_config=config(num_workers=workers), batch_size=None)
        with get_loader(dataset) as loader:
            assert [sample.__key__ for sample in loader] == expected
            assert [sample.__key__ for sample in loader] == expected  # and in the next pass
    for stop in (1, 7, 8, 30):
        before, after = get_loader(dataset, num_workers=0), get_loader(dataset, num_workers=0)
        assert keys(list(islice(before, stop))) == expected[:stop]
        after.restore_state_rank(json.loads(json.dumps(before.save_state_rank())))
        assert keys(list(after)) == expected[stop:]
    ranks = [get_val_dataset(root, worker_config=config(rank=r, world_size=2), batch_size=None) for r in range(2)]
    assert [keys(read(one)) for one in ranks] == [
        [key for key in expected if int(key) % 2 == rank] for rank in range(2)
    ]


# In mid-run


def test_a_data_set_is_added_and_weights_change_in_mid_run(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = get_loader(train(ol.blend([(data / "a", 1), (data / "b", 1)])))
    first = [sample.__key__ for sample in islice(before, 90)]
    state = json.loads(json.dumps(before.save_state_rank()))
    after = get_loader(train(ol.blend([(data / "a", 5), (data / "b", 1), (data / "c", {0: 0, 3_000: 6})])))
    after.restore_state_rank(state)
    assert "weight of 'a'" in caplog.text
    assert "'c' added" in caplog.text
    later = [sample.__key__ for sample in islice(after, 300)]
    for name in "ab":  # each goes on as if nothing had happened: no row twice in an epoch
        drawn = [key for key in first + later if key[0] == name]
        size = SIZES[name]
        assert all(len(set(drawn[n : n + size])) == len(drawn[n : n + size]) for n in range(0, len(drawn), size))
    assert any(key[0] == "c" for key in later)
    with pytest.raises(ol.StateError, match="data sets that this run does not have: b"):
        get_loader(train(ol.blend([(data / "a", 1)]))).restore_state_rank(state)
    left_out = get_loader(train(ol.blend([(data / "a", 1), (data / "b", 0)])))
    left_out.restore_state_rank(state)
    assert {key[0] for key in (sample.__key__ for sample in islice(left_out, 100))} == {"a"}
    half = [get_loader(train(ol.source(data / "a", subset=part))) for part in (("0%", "50%"), ("50%", "end"))]
    with pytest.raises(ol.StateError, match=r"parts=.*'train \[0%:50%\]'"):
        half[1].restore_state_rank(half[0].save_state_rank())
    with pytest.raises(ol.StateError, match="shuffles="):
        get_loader(
            train(ol.blend([(ol.source(data / "a", shuffle_over_epochs_multiplier=2), 1), (data / "b", 1)]))
        ).restore_state_rank(state)


# A folder as guides print it


def test_a_folder_without_its_list_of_shards_names_the_one_command_that_mends_it(tmp_path: Path) -> None:
    root = tmp_path / "pretrain"
    make(root, [f"{n:03d}" for n in range(60)], typed("TextSample", text="txt"))
    described = (root / ".nv-meta" / "dataset.yaml").read_text()
    split = {"split_parts": {"train": ["s0.tar", "s2.tar"], "val": ["s1.tar"]}}
    (root / ".nv-meta" / "split.yaml").write_text(json.dumps(split))
    (root / ".nv-meta" / ".info.json").unlink()
    (root / "s1.tar.idx").unlink()
    mix = ol.blend([(root, 1)])
    with pytest.raises(ol.DatasetError) as caught:
        train(mix)
    (command,) = re.findall(r"run `omniloom (.*?)`", str(caught.value))
    assert command == f"prepare --non-interactive --keep-split --skip-dataset-yaml {root}"
    assert run_command(command.split()) == 0
    assert len(set(keys(read(train(mix), 40)))) == 40
    assert len(get_val_dataset(root, worker_config=config(), batch_size=None)) == 20
    assert (root / ".nv-meta" / "dataset.yaml").read_text() == described
    (root / "s2.tar.idx").unlink()
    with pytest.raises(ol.DatasetError, match=r"s2\.tar\.idx: there is no index .* Make it: `omniloom"):
        train(mix)


def test_a_data_set_of_epochs_can_be_left_out_and_taken_in_again(data: Path) -> None:
    def loader(b: float) -> ol.Loader:
        return get_loader(train(ol.blend_epochized([(data / "a", 1), (data / "b", b)])))

    with_b = loader(1)
    first = [sample.__key__ for sample in islice(with_b, 200)]
    without = loader(0)
    without.restore_state_rank(json.loads(json.dumps(with_b.save_state_rank())))
    second = [sample.__key__ for sample in islice(without, 150)]
    assert {key[0] for key in second} == {"a"}
    again = loader(1)
    again.restore_state_rank(json.loads(json.dumps(without.save_state_rank())))
    third = [sample.__key__ for sample in islice(again, 137)]
    drawn = [key for key in first + second + third if key[0] == "a"]
    assert all(len(set(drawn[n : n + 100])) == len(drawn[n : n + 100]) for n in range(0, len(drawn), 100))
    assert any(key[0] == "b" for key in third)


# Sources that are not shards


def test_lines_of_json_in_metadatasets_of_both_versions_and_in_joins(tmp_path: Path) -> None:
    for name, rows in (("one", 6), ("two", 3)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"n": f"{name} {n}"}) + "\n" for n in range(rows)))
    v1 = tmp_path / "v1.yaml"
    v1.write_text("splits: {train: {datasets: [{path: one.jsonl}, {path: two.jsonl, subflavors: {s: 2}}]}}")
    v2 = tmp_path / "v2.yaml"
    v2.write_text(
        "__class__: MetadatasetV2\nsplits: {train: {path: v1.yaml, subset: {range: [50%, end]}, subflavors: {t: 1}}}"
    )

    def read_all(mix: Any) -> list[Any]:
        return read(get_val_dataset(mix, split_part="train", worker_config=config(lanes=1), batch_size=None))

    assert [sample["json"]["n"] for sample in read_all(v1)] == [
        *(f"one {n}" for n in range(6)), *(f"two {n}" for n in range(3)),
    ]  # fmt: skip
    found = [(sample["json"]["n"], sample["__subflavors__"]) for sample in read_all(v2)]
    assert found == [
        *((f"one {n}", {"t": 1}) for n in (3, 4, 5)), *((f"two {n}", {"s": 2, "t": 1}) for n in (1, 2)),
    ]  # fmt: skip
    joined = ol.join({"left": tmp_path / "one.jsonl", "right": (tmp_path / "two.jsonl", "skip")}, joiner=side_by_side)
    assert [(sample["left"], sample["right"]) for sample in read_all(joined)] == [
        (f"one {n}", f"two {n}") for n in range(3)
    ]


def side_by_side(*, left: Any, right: Any) -> Any:
    return {**left, "left": left["json"]["n"], "right": right["json"]["n"]}
