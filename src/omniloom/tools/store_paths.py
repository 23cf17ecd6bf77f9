"""URLs for paths of commands: what a command reads is copied here first, what it writes goes to the store at its end.

Data sets are read where they lie (see `place_type`). All else that commands take as paths is files of this machine:
models, answers, pages, states. Every such argument may be a URL all the same; without this, a URL would be taken for
the name of a folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from omniloom.errors import StorageError
from omniloom.storage.urls import is_url, join_url, name_of, redacted

WRITTEN = frozenset((
    "answers_to", "destination", "html_path", "out", "output", "quarantine",
    "evaluate items_path",
))  # fmt: skip
"""Arguments that say where something is written, by name, or by command and name."""

LOCAL = frozenset((
    "fetch out", "mountpoint", "mount path", "tmp_path", "workspace",
))  # fmt: skip
"""Arguments that have to lie on this machine."""

CHECKPOINTS = "latest.json"


def with_store_paths(command: click.Command, name: str) -> click.Command:
    """A command, by its name, whose paths may be URLs; of a group, all its commands."""
    if isinstance(command, click.Group):
        for inner_name, inner in command.commands.items():
            with_store_paths(inner, inner_name)
    for param in command.params:
        if isinstance(param.type, click.Path) and not isinstance(param.type, StorePath):
            names = {param.name or "", f"{name} {param.name}"}
            use = _here if names & LOCAL else _written if names & WRITTEN else _read
            param.type = StorePath(param.type, use)
    return command


_Use = Callable[[str, click.Context | None], str]


class StorePath(click.Path):
    """A path as another type takes it, or a URL.

    Args:
        inner: the type.
        use: gives the path of this machine that stands for a URL.
    """

    def __init__(self, inner: click.Path, use: _Use) -> None:
        self.__dict__.update(inner.__dict__)
        self._use = use

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A path, as the type gives it."""
        if not is_url(str(value)):
            return super().convert(value, param, ctx)
        from omniloom.storage.open import is_local, local_path  # noqa: PLC0415 - most commands begin without

        try:
            path = local_path(str(value)) if is_local(str(value)) else self._use(str(value), ctx)
        except StorageError as error:
            self.fail(str(error), param, ctx)
        return super().convert(path, param, ctx)


def _read(url: str, _context: click.Context | None) -> str:
    """A copy on this machine."""
    from omniloom.storage.files import file_exists, folder_exists  # noqa: PLC0415
    from omniloom.storage.node_copy import kept_copy, kept_folder  # noqa: PLC0415

    if file_exists(url):
        return str(kept_copy(url))
    if not folder_exists(url):
        raise StorageError(f"{redacted(url)}: there is nothing. Check the URL.")
    if file_exists(join_url(url, CHECKPOINTS)):
        raise StorageError(
            f"{redacted(url)}: holds checkpoints of a run. Give the run's own folder, whose recipe says that its "
            "checkpoints lie there, or one of the steps."
        )
    return str(kept_folder(url))


def _written(url: str, context: click.Context | None) -> str:
    """A path in a folder whose files are uploaded when the command ends; what is there of that name is in it."""
    import tempfile  # noqa: PLC0415

    from omniloom.storage.node_copy import copy_here  # noqa: PLC0415
    from omniloom.storage.open import open_store  # noqa: PLC0415

    bare, mark, query = url.partition("?")
    where = f"{bare.rstrip('/').rpartition('/')[0]}{mark}{query}"
    folder = Path(tempfile.mkdtemp(prefix="omniloom-upload-"))
    for entry in open_store(where).entries(where)[0]:
        if name_of(entry.url).startswith(name_of(url)):  # notes that are kept beside a file begin with its name
            copy_here(entry.url, folder / name_of(entry.url), size_bytes=entry.size_bytes)
    if context is not None:
        context.call_on_close(lambda: _upload(folder, where))
    return str(folder / name_of(url))


def _upload(folder: Path, where: str) -> None:
    import shutil  # noqa: PLC0415

    from omniloom.storage.node_copy import copy_there  # noqa: PLC0415

    try:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in files:
            url = join_url(where, path.relative_to(folder).as_posix())
            copy_there(path, url)
            click.echo(f"Uploaded {redacted(url)}", err=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _here(url: str, _context: click.Context | None) -> str:
    raise StorageError(f"{redacted(url)}: lies in a store; this has to be a path of this machine.")
