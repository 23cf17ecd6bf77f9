"""What a command takes for a data set: a path or a URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omniloom.data.index.place import normal_root
from omniloom.errors import StorageError
from omniloom.storage.urls import is_url

if TYPE_CHECKING:
    _TextType = click.ParamType[str]
else:
    _TextType = click.ParamType  # older ones take no type


class PlaceType(_TextType):
    """A path or URL as text: without a slash at its end, a file's URL as its path."""

    name = "path or url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The place as text."""
        if not is_url(str(value)):
            return str(Path(value))
        try:
            return normal_root(str(value))
        except StorageError as error:
            self.fail(str(error), param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """Of an option; an argument is named for itself."""
        return None if isinstance(param, click.Argument) else "DIR"


PLACE = PlaceType()
