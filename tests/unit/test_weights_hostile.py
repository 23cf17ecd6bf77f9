"""Damaged and hostile files end in a WeightsError, whatever byte is wrong; nothing of them runs."""

import contextlib
import io
import pickle
import zipfile

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.errors import WeightsError
from omniloom.weights.megatron_dist import DistFolder, read_metadata
from omniloom.weights.megatron_folder import MegatronFolder
from omniloom.weights.restricted_pickle import load_restricted
from omniloom.weights.safetensors_file import SafetensorsFile
from omniloom.weights.torch_archive import TorchArchive, named_tensors

ran = []


def run_me(*arguments):
    ran.append(arguments)


class Runs:
    def __reduce__(self):
        return run_me, (1,)


class Builds:
    """Runs code when its state is set."""

    def __setstate__(self, state):
        ran.append(state)

    def __getstate__(self):
        return {"a": 1}


@pytest.fixture(autouse=True)
def nothing_runs():
    ran.clear()
    yield
    assert ran == []


def changed(data, draw):
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 8))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.sampled_from([len(data), len(data) // 2, len(data) - 1]))])


def small_files():
    folder = io.BytesIO()
    torch.save({"model": {"w": torch.ones(3, 2), "v": torch.ones(2).bfloat16()}, "a": Runs()}, folder)
    return folder.getvalue(), safetensors.torch.save({"w": torch.ones(3, 2), "v": torch.ones(2)})


ARCHIVE, SAFETENSORS = small_files()


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_an_archive_with_wrong_bytes_is_read_or_refused(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "archive.pt"
    file.write_bytes(changed(ARCHIVE, data.draw))
    try:
        archive = TorchArchive(file)
        for lazy in named_tensors(archive.data).values():
            archive.read(lazy)
    except WeightsError:
        pass


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_safetensors_file_with_wrong_bytes_is_read_or_refused(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "a.safetensors"
    file.write_bytes(changed(SAFETENSORS, data.draw))
    try:
        source = SafetensorsFile(file)
        for name in source.tensors:
            source.read(name)
    except WeightsError:
        pass


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_pickle_of_any_bytes_runs_nothing(data):
    payload = pickle.dumps({"a": Runs(), "b": [Builds(), {1: Builds()}], "c": torch.Size([1])}, protocol=2)
    with contextlib.suppress(WeightsError):
        load_restricted(changed(payload, data.draw), where="x")


def test_a_pickle_that_holds_itself_is_refused(tmp_path):
    inner = {}
    inner["again"] = inner
    torch.save({"model": inner}, tmp_path / "a.pt")
    with pytest.raises(WeightsError, match="holds itself"):
        named_tensors(TorchArchive(tmp_path / "a.pt").data)


def test_a_tensor_that_reaches_past_its_storage_is_refused(tmp_path):
    torch.save({"w": torch.ones(4)}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    pickled = contents["a/data.pkl"]
    contents["a/data.pkl"] = pickled.replace(b"K\x04\x85", b"K\x40\x85")  # shape (4,) becomes (64,)
    assert contents["a/data.pkl"] != pickled
    with zipfile.ZipFile(tmp_path / "b.pt", "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    with pytest.raises(WeightsError, match=r"\[64\] reaches past its storage of 4 numbers"):
        TorchArchive(tmp_path / "b.pt")


def rank_file(folder, model, rank=0):
    (folder / f"iter_0000001/mp_rank_{rank:02d}").mkdir(parents=True)
    torch.save({"model": model, "evil": Runs()}, folder / f"iter_0000001/mp_rank_{rank:02d}/model_optim_rng.pt")


def test_ranks_of_megatron_that_do_not_agree_are_refused(tmp_path):
    norm, rows = "decoder.final_layernorm.weight", "embedding.word_embeddings.weight"
    rank_file(tmp_path, {norm: torch.ones(2), rows: torch.ones(2, 2)}, 0)
    rank_file(tmp_path, {norm: torch.zeros(2), rows: torch.ones(3, 2)}, 2)
    with pytest.raises(WeightsError, match="rank 1 of stage 0 missing"):
        MegatronFolder(tmp_path)
    rank_file(tmp_path, {norm: torch.ones(2), rows: torch.ones(2, 2)}, 1)
    with pytest.raises(
        WeightsError, match=r"'embedding.word_embeddings.weight' is float32 \[2, 2\] and float32 \[3, 2\]"
    ):
        MegatronFolder(tmp_path)
    (tmp_path / "iter_0000001/mp_rank_02/model_optim_rng.pt").unlink()
    (tmp_path / "iter_0000001/mp_rank_02").rmdir()
    rank_file(tmp_path, {norm: torch.zeros(2), rows: torch.ones(2, 2)}, 2)
    source = MegatronFolder(tmp_path)
    assert source.read(rows).shape == (6, 2)
    with pytest.raises(WeightsError, match="differs between tensor-parallel rank 0 and rank 2"):
        source.read(norm)


@pytest.mark.parametrize("told", ["9", "../x", "", "release"])
def test_a_tracker_that_names_nothing_is_refused(tmp_path, told):
    (tmp_path / "iter_0000001").mkdir()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(told)
    with pytest.raises(WeightsError, match="there is no folder"):
        MegatronFolder(tmp_path)


def test_metadata_of_a_distributed_checkpoint_runs_nothing_and_stays_in_its_folder(tmp_path):
    folder = tmp_path / "iter_0000001"
    dcp.save({"w": torch.ones(3, 2)}, checkpoint_id=folder, no_dist=True)
    good = (folder / ".metadata").read_bytes()
    metadata = pickle.loads(good)
    metadata.planner_data = {"a": Runs()}
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    assert DistFolder(tmp_path).read("w").tolist() == [[1, 1]] * 3
    for stored in metadata.storage_data.values():
        object.__setattr__(stored, "relative_path", "../../secret")
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(WeightsError, match="not a file name within the folder"):
        read_metadata(folder / ".metadata")
    (folder / ".metadata").write_bytes(good[:-20])
    with pytest.raises(WeightsError, match="metadata"):
        read_metadata(folder / ".metadata")
    (folder / ".metadata").write_bytes(good)
    next(folder.glob("*.distcp")).unlink()
    with pytest.raises(WeightsError, match=r"distcp missing"):
        DistFolder(tmp_path)
