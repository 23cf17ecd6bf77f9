"""Reading images by untrusted names: nothing outside, nothing that blocks, the same from a folder and a zip."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

import pytest

from omniloom.data.convert import images as images_module
from omniloom.data.convert.images import ImageSource, open_images
from omniloom.errors import ConfigError, SampleError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "images"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "a.jpg").write_bytes(b"aaa")
    (root / "empty.jpg").write_bytes(b"")
    (tmp_path / "secret.jpg").write_bytes(b"secret")
    return root


def _zip(folder: Path, prefix: str = "") -> Path:
    path = folder.parent / "images.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, f"{prefix}{file.relative_to(folder)}")
        archive.writestr("__MACOSX/x", b"junk")
    return path


def _reason(source: ImageSource, name: str) -> str:
    with pytest.raises(SampleError) as caught:
        source.read(name)
    return caught.value.reason


@pytest.mark.parametrize("form", ["folder", "zip", "zip of a folder"])
def test_folder_and_zip_answer_alike(form: str, folder: Path) -> None:
    source = open_images(folder if form == "folder" else _zip(folder, "images/" if form == "zip of a folder" else ""))
    assert source.read("sub/a.jpg") == b"aaa"
    assert source.read("./sub/../sub/a.jpg") == b"aaa"
    assert source.has("sub/a.jpg")
    assert not source.has("sub/b.jpg")
    assert _reason(source, "sub/b.jpg") == "missing-image"
    assert _reason(source, "empty.jpg") == "empty-image"
    assert _reason(source, "sub") == "not-a-file"
    assert _reason(source, "../secret.jpg") == "outside-images"
    assert _reason(source, "sub/../../secret.jpg") == "outside-images"
    assert _reason(source, "/etc/passwd") == "outside-images"
    assert not source.has("../secret.jpg")


def test_odd_names_of_a_folder(folder: Path) -> None:
    source = open_images(folder)
    assert _reason(source, "a\0b.jpg") == "unreadable-image"
    assert _reason(source, "x" * 5000) == "unreadable-image"
    assert _reason(source, "sub/a.jpg/b.jpg") == "missing-image"
    assert source.read(str(folder / "sub" / "a.jpg")) == b"aaa"  # absolute, but inside


def test_a_pipe_is_refused_without_waiting(folder: Path) -> None:
    os.mkfifo(folder / "pipe.jpg")
    assert _reason(open_images(folder), "pipe.jpg") == "not-a-file"


def test_links_that_leave_the_folder_are_refused_unless_asked_for(folder: Path) -> None:
    (folder / "link.jpg").symlink_to(folder.parent / "secret.jpg")
    (folder / "inner.jpg").symlink_to("sub/a.jpg")
    (folder / "loop.jpg").symlink_to("loop.jpg")
    (folder / "up").symlink_to("..")
    strict, following = open_images(folder), open_images(folder, follow_links=True)
    assert strict.read("inner.jpg") == b"aaa"
    assert _reason(strict, "link.jpg") == "outside-images"
    assert _reason(strict, "up/secret.jpg") == "outside-images"
    assert following.read("link.jpg") == b"secret"
    assert _reason(following, "../secret.jpg") == "outside-images"
    assert _reason(strict, "loop.jpg") in {"missing-image", "unreadable-image"}


def test_a_linked_image_folder_is_itself_fine(folder: Path) -> None:
    (folder.parent / "alias").symlink_to(folder)
    assert open_images(folder.parent / "alias").read("sub/a.jpg") == b"aaa"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(folder: Path) -> None:
    (folder / "sub" / "a.jpg").chmod(0)
    assert _reason(open_images(folder), "sub/a.jpg") == "unreadable-image"


def test_damaged_and_linked_members_of_a_zip(folder: Path) -> None:
    path = folder.parent / "bad.zip"
    link = zipfile.ZipInfo("link.jpg")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.jpg", b"payload-of-a")
        archive.writestr(link, "/etc/passwd")
    path.write_bytes(path.read_bytes().replace(b"payload-of-a", b"payload-of-b", 1))
    source = open_images(path)
    assert _reason(source, "a.jpg") == "unreadable-image"
    assert _reason(source, "link.jpg") == "not-a-file"


def test_too_large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images_module, "MAX_IMAGE_BYTES", 2)
    assert _reason(open_images(folder), "sub/a.jpg") == "too-large-image"
    assert _reason(open_images(_zip(folder)), "sub/a.jpg") == "too-large-image"


def test_fingerprints_tell_sources_apart(folder: Path) -> None:
    before = open_images(_zip(folder)).fingerprint()
    assert before == open_images(_zip(folder)).fingerprint()
    (folder / "sub" / "a.jpg").write_bytes(b"aab")
    assert before != open_images(_zip(folder)).fingerprint()
    assert open_images(folder).fingerprint() == f"folder {folder}"


def test_no_folder_and_no_zip(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder or zip"):
        open_images(folder / "nothing")
    with pytest.raises(ConfigError, match="neither a folder nor a zip"):
        open_images(folder / "sub" / "a.jpg")
