"""Data sets on a disk and the same in an S3 server on loopback, for tests that see no difference."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import omniloom as ol
from omniloom.storage.open import open_store
from omniloom.storage.urls import join_url, relative_to
from tests.contract.s3_server import environment

BUCKET = "s3://sets"


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """An archive as Python's own tarfile writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def make_set(root: Path, name: str, rows: int, *, described: dict[str, Any] | None = None) -> None:
    """A prepared data set of text samples with a label each, 20 to a shard."""
    for shard, start in enumerate(range(0, rows, 20)):
        keys = [f"{name}{n:03d}" for n in range(start, min(start + 20, rows))]
        members = [
            part
            for key in keys
            for part in ((f"{key}.txt", f"text {key}".encode()), (f"{key}.label.txt", b"l" + key.encode()))
        ]
        write_tar(root / f"s{shard}.tar", members)
    ol.prepare_dataset(root, split_ratio={"train": 0.75, "val": 0.25}, num_workers=1)
    typed = {
        "sample_type": {"__module__": "megatron.energon", "__class__": "TextSample"},
        "field_map": {"text": "txt"},
    }
    (root / ".nv-meta" / "dataset.yaml").write_text(json.dumps(described or typed))


def upload(folder: Path, url: str) -> None:
    """Copy a folder to a store."""
    store = open_store(url)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.write(join_url(url, path.relative_to(folder).as_posix()), path.read_bytes())


def remote_files(url: str) -> dict[str, bytes]:
    """Name and content of everything below a folder of a store."""
    store = open_store(url)
    return {relative_to(one, url): store.read(one) for one in store.list(url)}


def samples(dataset: ol.Dataset, count: int | None = None) -> list[tuple[Any, ...]]:
    """What comes of a data set, in order: key, restore key and text of each sample."""
    return [(each.__key__, each.__restore_key__, each.text) for each in islice(ol.get_loader(dataset), count)]


def use_server(patch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Find the store at this server from now on: what other tests' servers had is forgotten."""
    for name, value in environment(endpoint).items():
        patch.setenv(name, value)
    patch.setattr("omniloom.storage.open._OPENED", {})
    patch.setattr("omniloom.data.index.mirror._folders", {})
