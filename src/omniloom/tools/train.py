"""``omniloom train``: a recipe becomes a trained model."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

_EPILOG = (
    "\b\nExamples:\n"
    "  omniloom train recipes/easy-vqa/sft.yaml\n"
    "  omniloom train sft.yaml --set optimizer.weight_decay=0.05 --set loop.steps=2000\n"
    "  torchrun --nproc-per-node 8 -m omniloom train sft.yaml"
)


@click.command(epilog=_EPILOG)
@click.argument("recipe_path", metavar="RECIPE", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting in place of the recipe's.")
@click.option("--dry-run", is_flag=True, help="Print what would be trained, and on what; train nothing.")
def command(recipe_path: Path, *, overrides: tuple[str, ...], dry_run: bool) -> int:
    """Train a model by a recipe.

    A run that was stopped, or killed, goes on from its newest complete checkpoint when the same command is given again,
    on the same ranks or others. SIGTERM and Ctrl-C save and stop after the step at hand; then the exit code is 3.
    """
    from omniloom.train.recipe import read_recipe  # noqa: PLC0415 - torch takes a while, and `--help` wants none

    recipe = read_recipe(recipe_path, overrides)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if dry_run:
        from omniloom.train.dry_run import describe  # noqa: PLC0415

        click.echo(describe(recipe))
        return 0
    from omniloom.train.build import build  # noqa: PLC0415
    from omniloom.train.loop import train  # noqa: PLC0415

    with _process_group():
        run = build(recipe)
        try:
            steps = train(run)
        finally:
            run.loader.close()
    return 0 if steps == recipe.loop.steps else EXIT_STOPPED


EXIT_STOPPED = 3
"""The run was told to stop before its end; the same command goes on with it."""


class _process_group:  # noqa: N801 - used as a function
    """The process group that torchrun asks for, if it does."""

    def __enter__(self) -> None:
        import torch  # noqa: PLC0415

        self._made = "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1
        if self._made:
            torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")

    def __exit__(self, *_: object) -> None:
        import torch  # noqa: PLC0415

        if self._made:
            torch.distributed.destroy_process_group()
