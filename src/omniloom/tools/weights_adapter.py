"""``omniloom weights adapter``: what a run with LoRA has learned, for PEFT."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(epilog="\b\nExample:\n  omniloom weights adapter runs/sft-lora adapter/ --base llava-hf/llava-1.5-7b-hf")
@click.argument("run", type=click.Path(path_type=Path, exists=True))
@click.argument("destination", type=click.Path(path_type=Path, file_okay=False))
@click.option("--base", default="", help="The model that it is an adapter of, in the form of transformers.")
def adapter(run: Path, *, destination: Path, base: str) -> None:
    """Write what a run with LoRA has learned as an adapter of PEFT.

    RUN is a folder of a run, or of one of its steps. Parts that were trained whole, such as the projector, are in the
    adapter whole.
    """
    from omniloom.train.adapter import adapter_of  # noqa: PLC0415 - loads torch

    made = adapter_of(run, base=base)
    made.write(destination)
    size = sum(each.nbytes for each in made.tensors.values())
    click.echo(f"{destination}: {len(made.config['target_modules'])} matrices, {size / 1e6:,.1f} MB")
