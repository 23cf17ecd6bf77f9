"""The program ``energon``: its commands, which are omniloom's under its names, options and prompts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from omniloom._version import __version__
from omniloom.data.index.info import ENERGON_VERSION
from omniloom.data.index.layout import DATASET_YAML
from omniloom.errors import OmniloomError
from omniloom.tools import analyze_debug, energon_preview, info, lint, mount, prepare, prepare_media, state
from omniloom.tools.place_type import PLACE

EXIT_ERROR = 1


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(
    ENERGON_VERSION, "-V", "--version", message=f"megatron-energon %(version)s (by omniloom {__version__})"
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Prepare, check and look at data sets: Energon's commands, by omniloom."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@click.command(name="lint")
@click.argument("path", type=PLACE)
@click.option("--split-parts", default="train,val,test", show_default=True, help="Parts to read.")
@click.option("--dataset-config", default=DATASET_YAML, show_default=True, help="Description of the samples.")
@click.option("--split-config", default="split.yaml", show_default=True, help="Split file in .nv-meta.")
@click.option("--parallel", default=1, show_default=True, type=int, help="Processes at most.")
@click.pass_context
def _lint(ctx: click.Context, /, path: str, **options: Any) -> None:
    """Read every sample and report the bad ones. Parts without shards are passed over."""
    ctx.invoke(
        lint.command, dataset=path, **{**options, "split_parts": energon_preview.parts_with_shards(path, **options)}
    )


@click.group(name="checkpoint")
def _checkpoint() -> None:
    """Look at saved states of loaders, and deal them to another number of ranks."""


COMMANDS: dict[str, click.Command] = {
    "prepare": prepare.command,
    "prepare_media": prepare_media.command,
    "info": info.command,
    "lint": _lint,
    "preview": energon_preview.command,
    "mount": mount.command,
    "checkpoint": _checkpoint,
    "analyze_debug": analyze_debug.command,
}
"""The commands, by the names that their modules have in Energon."""


def _put_together() -> None:
    _checkpoint.add_command(state.redeal, name="redist")
    _checkpoint.add_command(state.show, name="info")
    for name, command in COMMANDS.items():
        main.add_command(command, name=name.replace("_", "-"))


def run(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the program: an expected error is one message, and the exit code 1."""
    try:
        main.main(args=None if arguments is None else list(arguments), prog_name="energon")
    except (OmniloomError, OSError) as error:
        click.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(EXIT_ERROR)


_put_together()
