"""``omniloom generate``: answers of a model to a benchmark. ``omniloom ask``: one question about one image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

EXIT_INCOMPLETE = 1

_EXISTING = click.Path(path_type=Path, exists=True)
_MODEL_HELP = "A folder of a run (its newest checkpoint counts), or of a model with config.json and weights."


@click.command(
    epilog="\b\nExamples:\n"
    "  omniloom generate --model runs/sft --task textvqa --input-image-path images --gt-path val.json \\\n"
    "      --output-path a.jsonl\n"
    "  omniloom evaluate textvqa --answers a.jsonl --ground-truth val.json"
)
@click.option("--model", "--model-path", "model_path", required=True, type=click.Path(path_type=Path), help=_MODEL_HELP)
@click.option("--task", "task_name", required=True, help="A benchmark; `omniloom evaluate --list` names them.")
@click.option(
    "--input-image-path", "images", required=True, type=click.Path(path_type=Path, file_okay=False, exists=True)
)
@click.option("--gt-path", "--ground-truth", "truth", required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--output-path", "--output", "output", required=True, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--template", help="Chat template; by default the run's, or vicuna_v1.")
@click.option("--out-seq-length", "--max-new-tokens", "max_new_tokens", default=64, show_default=True)
@click.option("--batch-size", default=16, show_default=True)
@click.option("--num-partitions", default=1, show_default=True)
@click.option("--partition-id", default=0, show_default=True)
@click.option("--limit", type=int, help="Answer the first so many items only.")
def command(
    model_path: Path,
    *,
    task_name: str,
    images: Path,
    truth: Path,
    output: Path,
    template: str | None,
    limit: int | None,
    max_new_tokens: int,
    batch_size: int,
    num_partitions: int,
    partition_id: int,
) -> int:
    """Answer the items of a benchmark.

    Answers that are there already stay. Answers are written as they come; after a kill the same command goes on with what is missing. The exit code is 1
    when an item could not be answered.
    """
    from omniloom.evaluate.answering import AnsweringConfig, answer_items  # noqa: PLC0415 - torch takes a while
    from omniloom.evaluate.tasks import find_task  # noqa: PLC0415
    from omniloom.train.trained import open_trained  # noqa: PLC0415

    task = find_task(task_name)
    trained = open_trained(model_path, template=template)
    items = task.read(truth)[:limit]
    done = answer_items(
        trained.model,
        trained.prompter,
        task,
        items,
        images=images,
        output=output,
        model_name=trained.name,
        config=AnsweringConfig(
            max_new_tokens=max_new_tokens, batch_size=batch_size, partition=partition_id, partitions=num_partitions
        ),
        progress=_Line(),
    )
    click.echo(f"{output}: {done.made:,} answers made, {done.kept:,} were there, {len(done.failed):,} failed", err=True)
    for name, reason in list(done.failed.items())[:5]:
        click.echo(f"  {name}: {reason}", err=True)
    return EXIT_INCOMPLETE if done.failed else 0


@click.command(epilog='\b\nExample:\n  omniloom ask runs/sft photo.jpg "What is this?"')
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("image", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.argument("question")
@click.option("--template", help="Chat template; by default the run's, or vicuna_v1.")
@click.option("--max-new-tokens", default=128, show_default=True)
def ask(model_path: Path, *, image: Path, question: str, template: str | None, max_new_tokens: int) -> None:
    """Ask a model one question about one image."""
    from omniloom.generate.prompts import answer_prompts  # noqa: PLC0415 - torch takes a while
    from omniloom.train.trained import open_trained  # noqa: PLC0415

    trained = open_trained(model_path, template=template)
    prompt = trained.prompter.prompt(question, [image.read_bytes()])
    (answer,) = answer_prompts(trained.model, trained.prompter, [prompt], max_new_tokens=max_new_tokens)
    click.echo(answer.text)


class _Line:
    """A line each time a tenth more is done."""

    def __init__(self) -> None:
        self._told = 0

    def __call__(self, done: int, whole: int, seconds: float) -> None:
        tenth = 10 * done // max(1, whole)
        if tenth > self._told:
            self._told = tenth
            left: Any = seconds / max(1, done) * (whole - done)
            click.echo(f"{done:,} of {whole:,} answered, {done / seconds:,.1f} a second, {left:,.0f} s left", err=True)
