"""``omniloom ask``: one question about one image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from omniloom.tools.answering import SAMPLING, TEMPLATE_HELP, options, sampling_of


@click.command(epilog='\b\nExample:\n  omniloom ask runs/sft photo.jpg "What is this?"')
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("image", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.argument("question")
@click.option("--template", help=TEMPLATE_HELP)
@click.option("--max-new-tokens", default=128, show_default=True, help="Words of the answer at most.")
@options(SAMPLING)
def command(
    model_path: Path,
    *,
    image: Path,
    question: str,
    template: str | None,
    **words: Any,
) -> None:
    """Ask a model one question about one image.

    The answer is printed as it comes.
    """
    sampling = sampling_of(words)
    from omniloom.generate.prompts import answer_prompts  # noqa: PLC0415 - torch takes a while
    from omniloom.generate.stops import GrowingText  # noqa: PLC0415
    from omniloom.train.trained import open_trained  # noqa: PLC0415

    trained = open_trained(model_path, template=template)
    prompt = trained.prompter.prompt(question, [image.read_bytes()])
    growing = GrowingText(sampling.stop)
    (answer,) = answer_prompts(
        trained.model,
        trained.prompter,
        [prompt],
        sampling=sampling,
        on_text=lambda _, text: click.echo(growing.more(text), nl=False),
    )
    click.echo(growing.rest(answer.text))
