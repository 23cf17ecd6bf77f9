"""Flags that were given and have no effect are refused: who gives one believes that it has."""

from __future__ import annotations

from collections.abc import Collection

import click
from click.core import ParameterSource


def refuse_unused(names: Collection[str], *, because: str) -> None:
    """See that none of some arguments of the running command stands on its command line.

    Args:
        names: of the arguments, as Python has them.
        because: why they would have no effect, as the rest of a sentence.

    Raises:
        click.UsageError: one does.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in names and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{'/'.join(parameter.opts)} has no effect {because}. Leave it out.")
