"""Names of files below a folder: what links lead to is found out, wherever in the name they stand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omniloom.storage.inside import InsideFolder, OutsideError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "file").write_text("x")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("secret")
    (root / "within").symlink_to(root / "deep")
    (root / "deep" / "away").symlink_to(tmp_path / "out")
    (root / "deep" / "er" / "last").symlink_to(tmp_path / "out" / "file")
    (root / "deep" / "back").symlink_to("../deep/away/..")
    return root


@pytest.mark.parametrize("name", ["deep/er/file", "within/er/file", "./deep//er/../er/file", "absent", "deep/absent/x"])
def test_a_name_within_is_located_where_realpath_says(name: str, folder: Path) -> None:
    for root in (folder, folder.parent / "link"):
        if root != folder:
            root.symlink_to(folder)
        assert InsideFolder(str(root)).locate(name) == os.path.realpath(folder / name)


@pytest.mark.parametrize(
    "name", ["deep/away/file", "within/away/file", "deep/er/last", "deep/back/file", "../out/file", "/etc/passwd", ".."]
)
def test_a_name_that_leads_out_is_refused(name: str, folder: Path) -> None:
    with pytest.raises(OutsideError):
        InsideFolder(str(folder)).locate(name)


def test_the_whole_disk_is_a_folder_too(folder: Path) -> None:
    name = str(folder / "deep" / "away" / "file").lstrip("/")
    assert InsideFolder("/").locate(name) == os.path.realpath(f"/{name}")
