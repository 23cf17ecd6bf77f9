"""Files of safetensors and torch.save: read beside their own libraries, laid out for them, and refused when unsound."""

import argparse
import collections
import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.errors import WeightsError
from omniloom.weights import filling
from omniloom.weights.changes import Range
from omniloom.weights.filling import JOURNAL, Plan, fill
from omniloom.weights.hf_folder import open_hf_folder, plan_safetensors
from omniloom.weights.layout import Job, Slot
from omniloom.weights.safetensors_file import SafetensorsFile
from omniloom.weights.source import InMemory, TensorInfo
from omniloom.weights.torch_archive import ArchiveSource, TorchArchive, named_tensors
from omniloom.weights.torch_archive_layout import Planned, lay_out_torch_file

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]


def tensors_of(shapes):
    generator = torch.Generator().manual_seed(0)
    found = {}
    for number, (shape, dtype) in enumerate(shapes):
        raw = torch.randint(0, 2 if dtype is torch.bool else 100, shape, generator=generator)
        found[f"t.{number}"] = raw.to(dtype)
    return found


shape_lists = st.lists(
    st.tuples(st.lists(st.integers(0, 4), max_size=3).map(tuple), st.sampled_from(DTYPES)), min_size=1, max_size=6
)


@settings(deadline=None, max_examples=40)
@given(shape_lists)
def test_safetensors_as_the_library_writes_and_reads_them(tmp_path_factory, shapes):
    folder = tmp_path_factory.mktemp("s")
    tensors = tensors_of(shapes)
    safetensors.torch.save_file(tensors, folder / "a.safetensors", metadata={"format": "pt"})
    ours = SafetensorsFile(folder / "a.safetensors")
    assert ours.metadata == {"format": "pt"}
    assert all(torch.equal(ours.read(name), tensor) for name, tensor in tensors.items())
    fill(plan_safetensors(InMemory(tensors), small={}), InMemory(tensors), folder / "out")
    back = safetensors.torch.load_file(folder / "out/model.safetensors")
    assert {name: (t.dtype, t.shape) for name, t in back.items()} == {n: (t.dtype, t.shape) for n, t in tensors.items()}
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())


@settings(deadline=None, max_examples=40)
@given(shape_lists)
def test_torch_files_as_torch_writes_and_reads_them(tmp_path_factory, shapes):
    folder = tmp_path_factory.mktemp("t")
    tensors = tensors_of(shapes)
    data = {"args": argparse.Namespace(a=1, dtype=torch.bfloat16), "model": collections.OrderedDict(tensors)}
    torch.save(data, folder / "a.pt")
    archive = TorchArchive(folder / "a.pt")
    assert archive.data["args"] == data["args"]
    read = ArchiveSource(archive, named_tensors(archive.data["model"]))
    assert all(torch.equal(read.read(name), tensor) for name, tensor in tensors.items())
    planned = {name: Planned(name, TensorInfo(tuple(t.shape), t.dtype)) for name, t in tensors.items()}
    layout = lay_out_torch_file("b.pt", {"args": data["args"], "model": collections.OrderedDict(planned), "none": None})
    jobs = tuple(Job(name, (Slot("b.pt", name),)) for name in tensors)
    fill(Plan((layout,), jobs), InMemory(tensors), folder / "out")
    with zipfile.ZipFile(folder / "out/b.pt") as archive:
        assert archive.testzip() is None  # all checksums are right
    for mmap in (False, True):
        back = torch.load(folder / "out/b.pt", weights_only=False, mmap=mmap)
        assert back["args"] == data["args"]
        assert back["none"] is None
        assert list(back["model"]) == list(tensors)
        assert all(torch.equal(back["model"][name], tensor) for name, tensor in tensors.items())


def test_views_strides_parameters_and_shared_storages(tmp_path):
    whole = torch.arange(24.0).reshape(6, 4)
    saved = {"t": whole.T, "rows": whole[2:4], "column": whole[:, 1], "p": torch.nn.Parameter(whole), "s": whole[3, 3]}
    torch.save(saved, tmp_path / "a.pt")
    archive = TorchArchive(tmp_path / "a.pt")
    source = ArchiveSource(archive, named_tensors(archive.data))
    assert all(torch.equal(source.read(name), tensor) for name, tensor in saved.items())
    assert torch.equal(source.read_range("t", Range(0, 1, 3)), whole.T[1:3])
    assert torch.equal(source.read_slice("rows", axis=1, part=1, parts=3), whole[2:4, 2:4])


def test_files_beyond_four_gigabytes_have_zip64_fields(tmp_path):
    # Sparse: the tensors are holes, so nothing of that size is written.
    infos = {"big": TensorInfo((5 << 28,), torch.float32), "small": TensorInfo((3,), torch.float32)}
    layout = lay_out_torch_file("a.pt", {name: Planned(name, info) for name, info in infos.items()})
    assert layout.size_bytes > 5 << 30
    with (tmp_path / "a.pt").open("wb") as file:
        file.truncate(layout.size_bytes)
        for offset, data in layout.closing({"big": 0, "small": 0}):
            file.seek(offset)
            file.write(data)
        file.seek(layout.extents["small"].offset)
        file.write(np.float32([1, 2, 3]).tobytes())
    assert all(extent.offset % 64 == 0 for extent in layout.extents.values())
    back = torch.load(tmp_path / "a.pt", mmap=True, weights_only=True)
    assert back["big"].shape == (5 << 28,)
    assert back["small"].tolist() == [1, 2, 3]
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        assert archive.getinfo("archive/data/0").file_size == 5 << 30
    assert TorchArchive(tmp_path / "a.pt").data["small"].info.shape == (3,)


def test_torchscript_gives_its_parameters_and_runs_nothing(tmp_path):
    class Tower(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 2)])
            self.scale = torch.nn.Parameter(torch.ones(2))
            self.register_buffer("resolution", torch.tensor(336))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x * self.scale

    tower = Tower().half()
    torch.jit.script(tower).save(str(tmp_path / "a.pt"))
    archive = TorchArchive(tmp_path / "a.pt")
    found = named_tensors(archive.data)
    expected = tower.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(archive.read(found[name]), tensor) for name, tensor in expected.items())


class Runs:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_a_pickle_with_code_is_read_without_running_it(tmp_path):
    torch.save({"evil": Runs(tmp_path / "ran"), "model": {"w": torch.ones(2)}}, tmp_path / "a.pt")
    archive = TorchArchive(tmp_path / "a.pt")
    assert repr(archive.data["evil"]).endswith("system, not imported>")
    assert named_tensors(archive.data["model"]).keys() == {"w"}
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95, 0.999])
def test_cut_files_are_refused(tmp_path, share):
    tensors = {"w": torch.ones(50, 50)}
    safetensors.torch.save_file(tensors, tmp_path / "a.safetensors")
    torch.save(tensors, tmp_path / "a.pt")
    for file, reader in ((tmp_path / "a.safetensors", SafetensorsFile), (tmp_path / "a.pt", TorchArchive)):
        data = file.read_bytes()
        file.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(WeightsError, match=file.name):
            reader(file)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "8 bytes, but has bytes 0 to 4"),
        ({"w": {"dtype": "F31", "shape": [2], "data_offsets": [0, 8]}}, "dtype 'F31'"),
        ({"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "described as"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, "begins at byte 4"),
        ({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, "8 bytes of numbers; its header describes 16"),
        ([1], "not a JSON object"),
    ],
)
def test_headers_that_lie_are_refused(tmp_path, header, text):
    raw = json.dumps(header).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(8))
    with pytest.raises(WeightsError, match=text):
        SafetensorsFile(tmp_path / "a.safetensors")


def folder_with_index(folder: Path, weight_map: dict[str, str]) -> Path:
    safetensors.torch.save_file({"a": torch.ones(1)}, folder / "one.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


@pytest.mark.parametrize(
    ("weight_map", "text"),
    [
        ({"a": "one.safetensors", "b": "two.safetensors"}, "1 are missing: two.safetensors"),
        ({"a": "../one.safetensors"}, "not a file name within its folder"),
        ({"a": "/etc/passwd"}, "not a file name within its folder"),
        ({"a": "one.safetensors", "b": "one.safetensors"}, r"1 tensors are not where it says \(b\)"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(tmp_path, weight_map, text):
    with pytest.raises(WeightsError, match=text):
        open_hf_folder(folder_with_index(tmp_path, weight_map))


def test_a_broken_conversion_goes_on_where_it_stopped(tmp_path):
    tensors = {f"t{number}": torch.full((4, 4), float(number)) for number in range(6)}

    class Breaks(InMemory):
        def __init__(self, tensors):
            super().__init__(tensors)
            self.reads, self.until = [], 3

        def read(self, name):
            if len(self.reads) == self.until:
                raise KeyboardInterrupt
            self.reads.append(name)
            return super().read(name)

    source = Breaks(tensors)
    plan = plan_safetensors(source, small={"config.json": b"{}"}, shard_bytes=100)
    # Each tensor durable at once, so that the interruption finds a journal.

    size, filling._SYNC_EVERY_BYTES = filling._SYNC_EVERY_BYTES, 1
    try:
        with pytest.raises(KeyboardInterrupt):
            fill(plan, source, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        assert (tmp_path / "out.partial" / JOURNAL).is_file()
        source.until = 100
        fill(plan, source, tmp_path / "out")
    finally:
        filling._SYNC_EVERY_BYTES = size
    assert source.reads == [f"t{number}" for number in range(6)]  # none was read twice
    back = open_hf_folder(tmp_path / "out")
    assert all(torch.equal(back.read(name), tensor) for name, tensor in tensors.items())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    with pytest.raises(WeightsError, match="is there already"):
        fill(plan, source, tmp_path / "out")


def test_another_source_does_not_resume_the_first_ones_files(tmp_path):
    plan = plan_safetensors(InMemory({"a": torch.ones(2)}), small={})

    class Fails(InMemory):
        def read(self, name):
            raise RuntimeError("gone")

    with pytest.raises(WeightsError, match="'a' cannot be read"):
        fill(plan, Fails({"a": torch.ones(2)}, where="first"), tmp_path / "out")
    fill(plan, InMemory({"a": torch.zeros(2)}, where="second"), tmp_path / "out")
    assert open_hf_folder(tmp_path / "out").read("a").tolist() == [0, 0]
