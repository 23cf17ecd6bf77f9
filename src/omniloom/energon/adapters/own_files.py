"""Readers of files that Energon's modules have: of Python code, of what lies in stores, of databases and settings."""

from __future__ import annotations

import configparser
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omniloom.data.index.trusted_code import FileFunction, module_of_file, require_trust
from omniloom.data.kinds import edataclass
from omniloom.energon.adapters.epath import EPath
from omniloom.energon.adapters.trust import AS_ENERGON
from omniloom.errors import ConfigError


class ModuleLoader:
    """Python files of data sets; each is run once a process. They are trusted, unless ``OMNILOOM_TRUST=0``."""

    def __getitem__(self, path: str | os.PathLike[str]) -> dict[str, Any]:
        """The names that a file defines. Raises ConfigError where it is not there, fails or is not trusted."""
        require_trust(AS_ENERGON, where=os.fspath(path), what="a file of Python code")
        return module_of_file(str(EPath(path)))

    def get_function(
        self, module_fn: str, default_fn_name: str | None = None, relative_path: EPath | None = None
    ) -> Callable[..., Any]:
        """A function of a file.

        Args:
            module_fn: ``file.py:function``, or the file alone.
            default_fn_name: the function where none is named.
            relative_path: the folder of a relative file.

        Raises:
            ConfigError: it is not there.
        """
        file, _, name = module_fn.rpartition(":") if ":" in module_fn else (module_fn, "", "")
        name = name or default_fn_name or ""
        if not name:
            raise ConfigError(f"{module_fn!r}: a function is missing: 'file.py:function'")
        path = file if relative_path is None else str(relative_path / file)
        require_trust(AS_ENERGON, where=path, what="a file of Python code")
        return FileFunction(str(EPath(path)), name).function


class RetryReadStream:
    """The bytes of a file, wherever it lies; what a store does not give at once is asked for again."""

    def __new__(cls, path: EPath) -> Any:
        """The open file."""
        return path.open("rb")


class ThreadLocalSqlite:
    """A database with a connection for each thread.

    Args:
        database: the file, or with ``is_uri`` its address.
        is_uri: whether it is an address such as ``file:x.sqlite?mode=ro``.
    """

    def __init__(self, database: str, is_uri: bool = False) -> None:
        self.database, self.is_uri = database, is_uri
        self._local = threading.local()

    @property
    def connection(self) -> sqlite3.Connection:
        """The thread's connection, opened when it is first asked for."""
        if not hasattr(self._local, "connection"):
            self._local.connection = sqlite3.connect(self.database, uri=self.is_uri)
            self._local.connection.execute("PRAGMA busy_timeout = 5000")
        return self._local.connection  # type: ignore[no-any-return]

    @property
    def cursor(self) -> sqlite3.Cursor:
        """The thread's cursor."""
        if not hasattr(self._local, "cursor"):
            self._local.cursor = self.connection.cursor()
        return self._local.cursor  # type: ignore[no-any-return]

    def select_one(self, query: str, params: tuple[Any, ...] = ()) -> Any:
        """The first row of a query; ``None`` where there is none."""
        return self.cursor.execute(query, params).fetchone()

    def select_all(self, query: str, params: tuple[Any, ...] = ()) -> list[Any]:
        """All rows of a query."""
        return self.cursor.execute(query, params).fetchall()

    def thread_close(self) -> None:
        """Close the thread's connection; the next question opens one again."""
        if hasattr(self._local, "connection"):
            self._local.connection.close()
        self._local.__dict__.clear()


@edataclass
class ConfigEntry:
    """A remote of rclone's settings; what they say not is ``None``."""

    name: str
    type: str | None
    provider: str | None
    access_key_id: str | None
    secret_access_key: str | None
    region: str | None
    endpoint: str | None


def get_rclone_config_path() -> Path | None:
    """Where rclone's settings lie: beside the program, in the user's settings, at home; ``None``: nowhere."""
    program = shutil.which("rclone")
    settings = os.environ.get("XDG_CONFIG_HOME")
    places = [Path(program).with_name("rclone.conf")] if program else []
    places += [Path(settings) / "rclone" / "rclone.conf"] if settings else []
    places += [Path.home() / ".config" / "rclone" / "rclone.conf", Path.home() / ".rclone.conf"]
    return next((place for place in places if place.is_file()), None)


def read_rclone_config_at_path(config_path: Path) -> dict[str, ConfigEntry]:
    """The remotes of a file of rclone's settings, by name."""
    parser = configparser.ConfigParser()
    parser.read(config_path)
    fields = [name for name in ConfigEntry.__dataclass_fields__ if name != "name"]
    return {
        name: ConfigEntry(name=name, **{field: parser[name].get(field) for field in fields})
        for name in parser.sections()
    }


def read_rclone_config() -> dict[str, ConfigEntry]:
    """The remotes of the user's rclone settings. Raises FileNotFoundError where there are none."""
    path = get_rclone_config_path()
    if path is None:
        raise FileNotFoundError("rclone has no settings here: no rclone.conf in ~/.config/rclone or beside the program")
    return read_rclone_config_at_path(path)
