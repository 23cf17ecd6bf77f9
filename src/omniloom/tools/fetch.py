"""``omniloom fetch``: models, towers and data sets by name, from where their makers publish them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import click

from omniloom.errors import ConfigError, StorageError
from omniloom.tools.download import Remote, download, is_there, read_url
from omniloom.tools.fetch_table import ALIASES, ITEMS, Item
from omniloom.tools.progress_bar import progress_bar

CHECKSUMS = "SHA256SUMS"
_HUB = "https://huggingface.co"
_REPOSITORY = re.compile(r"^[\w.-]+/[\w.-]+$")
_NEXT = re.compile(r'<([^>]+)>;\s*rel="next"')


class Wanted(NamedTuple):
    """One file to fetch: where it is, and where it goes within the destination."""

    remote: Remote
    path: str


@click.command(
    epilog="\b\nExamples:\n  omniloom fetch --list\n  omniloom fetch mistral-7b-v0.3 --out models/mistral\n"
    "  omniloom fetch 'ViT-L/14@336px' --download-root models\n  omniloom fetch hf:Qwen/Qwen3-1.7B --out models/qwen3"
)
@click.argument("names", nargs=-1)
@click.option(
    *("--out", "--download-root", "out"),
    type=click.Path(path_type=Path),
    help="Folder for the files.  [default: the name]",
)
@click.option("--list", "listed", is_flag=True, help="List all names.")
@click.option("--revision", default="main", show_default=True, help="Branch, tag or commit of a repository.")
@click.option("--endpoint", envvar="HF_ENDPOINT", default=_HUB, show_default=True, help="The hub, or a mirror of it.")
@click.option("--dry-run", is_flag=True, help="Tell what would be fetched, and whether the disk has room.")
def command(
    names: tuple[str, ...], *, out: Path | None, listed: bool, revision: str, endpoint: str, dry_run: bool
) -> None:
    """Download models and data sets by name.

    A download that breaks goes on where it stopped. hf:OWNER/NAME takes any model of the hub; private and gated ones
    need HF_TOKEN.
    """
    if listed or not names:
        click.echo(_listing())
        return
    if out is not None and len(names) > 1:
        raise click.UsageError("--out takes one name; without it each name gets its own folder.")
    for name in names:
        item = find_item(name)
        folder = out or Path(name.removeprefix("hf:").rpartition("/")[2])
        files = files_of(item, revision=revision, endpoint=endpoint.rstrip("/"))
        fetch(name, item, files, folder, dry_run=dry_run)


def find_item(name: str) -> Item:
    """The row of the table under a name.

    Raises:
        ConfigError: there is none.
    """
    name = ALIASES.get(name, name)
    if name.startswith("hf:"):
        repository = name.removeprefix("hf:")
        if not _REPOSITORY.match(repository) or ".." in repository:
            raise ConfigError(f"{name!r}: write hf:OWNER/NAME")
        model = next(item for item in ITEMS.values() if item.wanted and item.kind == "models")
        return Item(f"{repository} of the hub", "", repository, wanted=model.wanted, unwanted=model.unwanted)
    if name not in ITEMS:
        raise ConfigError(
            f"{name!r} is not in the table. `omniloom fetch --list` lists it; hf:OWNER/NAME takes any model."
        )
    return ITEMS[name]


def files_of(item: Item, *, revision: str, endpoint: str) -> list[Wanted]:
    """The files behind a row, with their sizes and checksums where they are published.

    Raises:
        StorageError: the hub does not answer, or names a file outside its folder.
    """
    if item.files:
        return [Wanted(Remote(file.url, sha256=file.sha256), file.path) for file in item.files]
    kind = "" if item.kind == "models" else f"{item.kind}/"
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    files = []
    url = f"{endpoint}/api/{item.kind}/{item.repository}/tree/{quote(revision, safe='')}?recursive=true"
    for entry in _pages(url, headers):
        if not isinstance(entry, dict) or entry.get("type") != "file":
            continue
        path = str(entry.get("path"))
        if not _is_wanted(path, item):
            continue
        check_inside(path, item.repository)
        stored = entry.get("lfs") or {}
        address = f"{endpoint}/{kind}{item.repository}/resolve/{quote(revision, safe='')}/{quote(path)}"
        remote = Remote(address, entry.get("size"), stored.get("oid"), headers)
        files.append(Wanted(remote, path))
    if not files:
        raise StorageError(f"{endpoint}/{kind}{item.repository}: holds none of the files that are wanted")
    return _one_copy_of_weights(files)


def fetch(name: str, item: Item, files: list[Wanted], folder: Path, *, dry_run: bool) -> None:
    """Download the files of a row into a folder, after a look at the disk, and write down their checksums.

    Raises:
        StorageError: the disk is too small, or a download failed.
    """
    missing = [file for file in files if not is_there(file.remote, folder / file.path)]
    known = sum(file.remote.size_bytes or 0 for file in missing)
    needed = max(known, item.room_bytes if missing else 0)
    free = _free_bytes(folder)
    click.echo(f"{name}: {item.summary}; {len(missing)} of {len(files)} files, {needed / 1e9:.1f} GB, to {folder}")
    if needed > free:
        raise StorageError(
            f"{folder}: needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free. Choose another --out."
        )
    if dry_run:
        for file in missing:
            click.echo(f"  {file.path}  {(file.remote.size_bytes or 0) / 1e6:.1f} MB  {file.remote.url}")
        return
    sums = _read_sums(folder)
    done = 0
    with progress_bar(f"Fetching {name}", shown=True) as display:
        for remote, path in missing:

            def tell(have: int, total: int, before: int = done, path: str = path) -> None:
                share = min((before + have) / max(known, total, 1), 1.0)
                display.show(share, f"{path}, {have / 1e6:.0f} of {total / 1e6:.0f} MB")

            sums[path] = download(remote, folder / path, tell=tell)
            done += remote.size_bytes or 0
            _write_sums(folder, sums)
    click.echo(f"{name}: complete in {folder}")


def check_inside(path: str, where: str) -> None:
    """See that a path stays in its folder.

    Raises:
        StorageError: it does not.
    """
    parts = PurePosixPath(path).parts
    if not parts or PurePosixPath(path).is_absolute() or ".." in parts or "\\" in path or ":" in parts[0]:
        raise StorageError(f"{where}: names a file {path!r}, which would lie outside its folder")


def _pages(url: str, headers: dict[str, str]) -> Iterable[object]:
    host = urlsplit(url).netloc
    next_url: str | None = url
    while next_url is not None:
        body, answered = read_url(Remote(next_url, headers=headers if urlsplit(next_url).netloc == host else {}))
        try:
            entries = json.loads(body)
        except ValueError as error:
            raise StorageError(f"{next_url}: does not answer with JSON") from error
        yield from entries if isinstance(entries, list) else ()
        link = _NEXT.search(next((value for name, value in answered.items() if name.lower() == "link"), ""))
        next_url = link[1] if link else None


def _is_wanted(path: str, item: Item) -> bool:
    chosen = not item.wanted or any(fnmatchcase(path, pattern) for pattern in item.wanted)
    return chosen and not any(fnmatchcase(path, pattern) for pattern in item.unwanted)


def _one_copy_of_weights(files: list[Wanted]) -> list[Wanted]:
    if not any(file.path.endswith(".safetensors") for file in files):
        return files
    return [file for file in files if not file.path.endswith((".bin", ".bin.index.json"))]


def _free_bytes(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent if folder.parent != folder else Path()
    return shutil.disk_usage(folder).free


def _read_sums(folder: Path) -> dict[str, str]:
    path = folder / CHECKSUMS
    if not path.is_file():
        return {}
    pairs = (line.split("  ", 1) for line in path.read_text(encoding="utf-8").splitlines() if "  " in line)
    return {name: checksum for checksum, name in pairs}


def _write_sums(folder: Path, sums: dict[str, str]) -> None:
    text = "".join(f"{checksum}  {name}\n" for name, checksum in sorted(sums.items()))
    partial = folder / f"{CHECKSUMS}.partial"
    partial.write_text(text, encoding="utf-8")
    partial.replace(folder / CHECKSUMS)


def _listing() -> str:
    lines: list[str] = []
    width = max(map(len, ITEMS))
    for group in dict.fromkeys(item.group for item in ITEMS.values()):
        lines += ["", f"{group.capitalize()}:"]
        lines += [f"  {name:<{width}}  {item.summary}" for name, item in ITEMS.items() if item.group == group]
    return "\n".join(lines[1:])
