"""Modules of Energon that hold small tools: what they promise, by hand and from published values."""

import io
import os
import random
import tarfile

import numpy as np
import pytest
import torch
from omniloom.energon.deprecation import deprecated, warn_deprecated
from omniloom.energon.flavors.webdataset.metadata import EnergonDatasetType, get_dataset_type
from omniloom.energon.fork_hook import DataclassForkMixin, ForkMixin, WeakCallbacks, before_fork_hook
from omniloom.energon.rng import SystemRng

from omniloom import energon
from omniloom.energon import wrappers as old_place


def test_seeds_of_values_are_the_published_ones():
    assert SystemRng.get_seed_from_args(0x1048E045, 0) == 1296091978


def test_random_states_are_saved_and_restored():
    SystemRng.seed_args("a", 1)
    state = SystemRng.save_state()
    first = (random.random(), np.random.rand(), torch.rand(1).item())
    SystemRng.restore_state(state)
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == first


def test_what_is_deprecated_warns():
    with pytest.warns(FutureWarning, match="old"):
        warn_deprecated("old")
    with pytest.warns(FutureWarning, match="use new"):
        assert deprecated("use new")(lambda: 3)() == 3


def test_the_old_place_of_skip_sample_warns():
    with pytest.warns(FutureWarning, match="use megatron.energon.SkipSample"):
        assert isinstance(old_place.SkipSample("why"), energon.SkipSample)


def test_hooks_are_held_weakly_and_called_once():
    calls = []
    hooks = WeakCallbacks()

    class Holder:
        def method(self):
            calls.append("method")

    holder = Holder()
    hooks.add_hook(holder.method)
    hooks.add_hook(holder.method)
    hooks.run()
    assert calls == ["method"]
    del holder
    hooks.run()
    assert calls == ["method"]


def in_child(check):
    child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_objects_are_told_of_forks():
    class Store(ForkMixin):
        def __init__(self):
            super().__init__()
            self.before = self.child = self.parent = 0

        def __before_fork__(self):
            self.before += 1

        def __after_in_child_fork__(self):
            self.child += 1

        def __after_in_parent_fork__(self):
            self.parent += 1

    class Silent(DataclassForkMixin):
        pass

    store, silent, said = Store(), Silent(), []

    def hook():
        said.append(1)

    before_fork_hook(hook)
    assert in_child(lambda: (store.before, store.child, store.parent) == (1, 1, 0))
    assert (store.before, store.child, store.parent) == (1, 0, 1)
    assert said == [1]
    del silent


def test_kinds_of_data_sets(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}\n")
    (tmp_path / "b.yaml").write_text("splits: {}\n")
    (tmp_path / "files").mkdir()
    (tmp_path / "media" / ".nv-meta").mkdir(parents=True)
    (tmp_path / "media" / ".nv-meta" / "index.sqlite").write_bytes(b"")
    (tmp_path / "shards" / ".nv-meta").mkdir(parents=True)
    (tmp_path / "shards" / ".nv-meta" / ".info.json").write_text('{"shard_counts": {}}')
    found = {name: get_dataset_type(tmp_path / name) for name in sorted(p.name for p in tmp_path.iterdir())}
    assert found == {
        "a.jsonl": EnergonDatasetType.JSONL,
        "b.yaml": EnergonDatasetType.METADATASET,
        "files": EnergonDatasetType.INVALID,
        "media": EnergonDatasetType.FILESYSTEM,
        "shards": EnergonDatasetType.WEBDATASET,
    }
    assert get_dataset_type(tmp_path / "none") is EnergonDatasetType.INVALID


def test_the_content_of_a_shard(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name, data in {"a.jpg": b"1", "a.txt": b"2", "b.txt": b"3", "README": b"4"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    found = list(energon.BaseWebdatasetFactory.iter_dataset_content(tmp_path / "x.tar", ("txt",)))
    assert found == [{"__key__": "a", "jpg": None, "txt": b"2"}, {"__key__": "b", "txt": b"3"}]
