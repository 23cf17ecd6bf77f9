"""The command line: a table of commands, loaded when they are asked for, and one place where errors end.

Exit codes: 0 done; 1 an error, or bad samples were found; 2 the command was called wrongly; 130 Ctrl-C;
141 the reader of the output has gone.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NamedTuple

import click

from omniloom._version import __version__
from omniloom.errors import OmniloomError
from omniloom.parallel.job import PlainEnd
from omniloom.tools.store_paths import with_store_paths

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE
DEBUG_VARIABLE = "OMNILOOM_DEBUG"


class Entry(NamedTuple):
    """One row of the table of commands: where its code is and what it does in one line."""

    target: str
    summary: str


# The summaries stand here and not only in the modules, so that `omniloom --help` imports none of them.
COMMANDS: dict[str, Entry] = {
    "convert": Entry("omniloom.tools.convert:command", "Turn other data formats into prepared shards."),
    "prepare": Entry("omniloom.tools.prepare:command", "Index a folder of shards, so that it can be loaded."),
    "merge": Entry("omniloom.tools.prepare_share:command", "Put shares of a preparation or conversion together."),
    "prepare-media": Entry("omniloom.tools.prepare_media:command", "Index sizes and lengths of images, video, audio."),
    "info": Entry("omniloom.tools.info:command", "Tell what a prepared data set holds."),
    "lint": Entry("omniloom.tools.lint:command", "Read every sample and report the bad ones."),
    "inspect": Entry("omniloom.tools.inspect:command", "Show samples as the model sees them: tokens, tiles, packs."),
    "preview": Entry("omniloom.tools.preview:command", "Show samples in the terminal or as an HTML page."),
    "mount": Entry("omniloom.tools.mount:command", "Show a prepared data set as a folder of files."),
    "train": Entry("omniloom.tools.train:command", "Train a model by a recipe."),
    "generate": Entry("omniloom.tools.generate:command", "Answer the items of a benchmark."),
    "ask": Entry("omniloom.tools.ask:command", "Ask a model one question about one image."),
    "evaluate": Entry("omniloom.tools.evaluate:command", "Score answers, or let a model answer a benchmark first."),
    "report": Entry("omniloom.tools.report:command", "Show runs and scores as one HTML page."),
    "state": Entry("omniloom.tools.state:command", "Show and check saved loader states, deal them to ranks."),
    "weights": Entry("omniloom.tools.weights:command", "Convert, combine, show and check weights."),
    "fetch": Entry("omniloom.tools.fetch:command", "Download models and data sets by name."),
}


class CommandTable(click.Group):
    """A group that imports a command's module only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command called ``cmd_name``; ``None`` when there is none."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module_name, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(module_name), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.target} is a {type(command).__name__}, not a click command")
        return with_store_paths(command, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


def _print_version(ctx: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(f"omniloom {__version__}")
        ctx.exit()


@click.group(
    cls=CommandTable,
    invoke_without_command=True,
    epilog=(
        "\b\nExample:\n"
        "  omniloom convert llava train.json --images images --out shards\n"
        "  omniloom preview shards --html preview.html"
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
@click.option("--debug", is_flag=True, help=f"Show tracebacks (or set {DEBUG_VARIABLE}=1).")
@click.pass_context
def commands(ctx: click.Context, *, debug: bool) -> None:
    """Images, video, audio and text in shards become training batches."""
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"  # the environment, so that worker processes see it too
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; every expected error ends here as one message.

    Args:
        arguments: the words after the program's name; ``None`` takes those of the process.
    """
    try:
        code = commands.main(
            args=None if arguments is None else list(arguments), prog_name="omniloom", standalone_mode=False
        )
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt) as interruption:
        return _interrupted(interruption)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (BrokenPipeError, SystemExit) as error:
        # The reader has gone (`| head`). When click notices first, it leaves a mute standard output and exits with 1.
        if isinstance(error, SystemExit) and not type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # python flushes once more at its end
        return EXIT_BROKEN_PIPE
    except (OmniloomError, OSError) as error:
        return _failed(error)
    return code if isinstance(code, int) else 0


def _interrupted(error: BaseException) -> int:
    # click turns both Ctrl-C and an end of input at a prompt into Abort; only the first is an interruption.
    if isinstance(error.__cause__, EOFError) or isinstance(error.__context__, EOFError):
        click.echo("Aborted: the input ended at a question.", err=True)
        return EXIT_ERROR
    return EXIT_INTERRUPTED


def _failed(error: BaseException) -> int:
    if os.environ.get(DEBUG_VARIABLE, "0") not in {"", "0"}:
        traceback.print_exception(error)
    else:
        click.echo(f"{type(error).__name__}: {error}", err=True)
    return EXIT_ERROR


def main() -> None:
    """Entry point of the ``omniloom`` program."""
    end = PlainEnd()
    end.code = run()
    sys.exit(end.code)
