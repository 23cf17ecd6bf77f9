"""``omniloom train``: a recipe becomes a trained model."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import click

from omniloom.errors import ConfigError
from omniloom.parallel.job import job
from omniloom.tools.place_type import PLACE

_EPILOG = (
    "\b\nExamples:\n"
    "  omniloom train recipes/tiny/pretrain.yaml\n"
    "  omniloom train sft.yaml --set optimizer.weight_decay=0.05 --set loop.steps=2000\n"
    "  omniloom train sft.yaml --set model.start_step=500 --dry-run\n"
    "  torchrun --nproc-per-node 8 -m omniloom train sft.yaml\n"
    "  omniloom train sft.yaml --from-megatron sft_mistral_clip.sh --env LOAD_NAME=output/pretrain"
)


@click.command(epilog=_EPILOG)
@click.argument("recipe_path", metavar="RECIPE", type=PLACE)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A setting in place of the recipe's.")
@click.option(
    "--workspace",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="OMNILOOM_WORKSPACE",
    help="Where runs and models lie.  [default: the current folder]",
)
@click.option("--dry-run", is_flag=True, help="Print what would be trained, and on what; train nothing.")
@click.option(
    "--ranks", type=click.IntRange(1), help="With --dry-run, for so many devices.  [default: as torchrun says, or 1]"
)
@click.option(
    "--device-memory-gb", type=click.FloatRange(1), help="With --dry-run, of each device.  [default: this machine's]"
)
@click.option(
    "--from-megatron",
    "script",
    metavar="SCRIPT",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write RECIPE out of the flags of a Megatron-LM script; nothing of it is run.",
)
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="A variable of that script.")
@click.option("--force", is_flag=True, help="With --from-megatron, write over a RECIPE that is there.")
def command(
    recipe_path: str,
    *,
    overrides: tuple[str, ...],
    workspace: Path | None,
    dry_run: bool,
    ranks: int | None,
    device_memory_gb: float | None,
    script: Path | None,
    environment: tuple[str, ...],
    force: bool,
) -> int:
    """Train a model by a recipe.

    A run that was stopped, or killed, goes on from its newest complete checkpoint when the same command is given again,
    on the same ranks or others. SIGTERM and Ctrl-C save and stop after the step at hand; then the exit code is 3.
    """
    _refuse_without_effect({"--env": environment, "--force": force}, needs="--from-megatron", given=script is not None)
    _refuse_without_effect({"--ranks": ranks, "--device-memory-gb": device_memory_gb}, needs="--dry-run", given=dry_run)
    if script is not None:
        return _convert(script, Path(recipe_path), environment, overrides, force=force, dry_run=dry_run)
    from omniloom.train.recipe import read_recipe  # noqa: PLC0415 - torch takes a while, and `--help` wants none

    recipe = read_recipe(recipe_path, overrides, workspace=workspace)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if dry_run:
        from omniloom.train.dry_run import describe  # noqa: PLC0415

        world = ranks or int(os.environ.get("WORLD_SIZE", "1"))
        memory = None if device_memory_gb is None else int(device_memory_gb * 1e9)
        click.echo(describe(recipe, ranks=world, device_bytes=memory))
        return 0
    from omniloom.train.build import build  # noqa: PLC0415
    from omniloom.train.loop import train  # noqa: PLC0415

    with job():
        run = build(recipe)
        try:
            steps = train(run)
        finally:
            run.loader.close()
    return 0 if steps >= recipe.loop.steps else EXIT_STOPPED


EXIT_STOPPED = 3
"""The run was told to stop before its end; the same command goes on with it."""


def _refuse_without_effect(options: Mapping[str, object], *, needs: str, given: bool) -> None:
    """See that no option is given that means nothing without another."""
    for name, value in options.items():
        if value and not given:
            raise click.UsageError(f"{name} means nothing without {needs}.")


def _convert(
    script: Path, path: Path, environment: tuple[str, ...], overrides: tuple[str, ...], *, force: bool, dry_run: bool
) -> int:
    """Write the recipe of a script, and a description of its model beside it."""
    from omniloom.train.from_megatron import convert_script, written  # noqa: PLC0415 - as above

    pairs = [each.partition("=") for each in environment]
    wrong = next((name for name, equals, _ in pairs if not equals), None)
    if wrong is not None:
        raise ConfigError(f"--env {wrong}: NAME=VALUE expected.")
    variables = {name: value for name, _, value in pairs}
    made = convert_script(script, environment=variables, overrides=overrides)
    files = written(made, path, script=script)
    for remark in made.remarks:
        click.echo(remark, err=True)
    for each, content in files.items():
        if dry_run:
            click.echo(content)
        elif each.exists() and not force:
            raise ConfigError(f"{each}: is there already. Name another file, or give --force.")
        else:
            each.parent.mkdir(parents=True, exist_ok=True)
            each.write_text(content, encoding="utf-8")
            click.echo(f"{each}: written")
        if dry_run:
            break
    return 0
