"""``omniloom generate``: answers of a model to a benchmark."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omniloom.tools.answering import ASKING, MODEL_HELP, image_folder, make_answers, options, read_items, tell

if TYPE_CHECKING:
    from omniloom.evaluate.task import Item

EXIT_INCOMPLETE = 1


@click.command(
    epilog="\b\nExamples:\n"
    "  omniloom generate --model runs/sft --task textvqa --input-image-path images --gt-path val.json \\\n"
    "      --output-path a.jsonl\n"
    "  torchrun --nproc-per-node 8 -m omniloom generate ... --tensor-parallel 2\n"
    "  omniloom evaluate textvqa --answers a.jsonl --ground-truth val.json"
)
@click.option("--model", "--model-path", "model_path", required=True, type=click.Path(path_type=Path), help=MODEL_HELP)
@click.option("--task", "task_name", required=True, help="A benchmark; `omniloom evaluate --list` names them.")
@click.option(
    "--gt-path",
    "--groundtruth-path",
    "--ground-truth",
    "truth",
    type=click.Path(path_type=Path),
    help="The benchmark's file or folder, or a data set of ours; without one, for captions, every image in the folder.",
)
@click.option(
    "--output-path",
    "--output",
    "output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A .jsonl file; or a prefix P, for P-TASK-dprank=0-partition=ID.jsonl.",
)
@options(ASKING)
@click.option(
    "--num-partitions", default=1, show_default=True, type=click.IntRange(min=0), help="Parts of the items; 0 is 1."
)
@click.option("--partition-id", default=0, show_default=True, help="Which of them to answer.")
@click.option("--num-samples-per-partition", default=0, show_default=True, help="Parts of so many neighbours instead.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(
    model_path: Path,
    *,
    task_name: str,
    images: Path | None,
    truth: Path | None,
    output: Path,
    limit: int | None,
    num_partitions: int,
    partition_id: int,
    num_samples_per_partition: int,
    as_json: bool,
    **words: Any,
) -> int:
    """Answer the items of a benchmark.

    Answers that are there already stay. Answers are written as they come; after a kill the same command goes on with
    what is missing. The exit code is 1 when an item could not be answered.
    """
    from omniloom.evaluate.tasks import find_task  # noqa: PLC0415 - a table of many pages

    task = find_task(task_name)
    folder = image_folder(images, truth)
    items = (read_items(task, truth, words) if truth is not None else task.read_images(folder))[:limit]
    partition, partitions = partition_id, max(1, num_partitions)
    if num_samples_per_partition:
        items = _neighbours(items, num_samples_per_partition, partition_id=partition_id, partitions=num_partitions)
        partition, partitions = 0, 1
    output = _output(output, f"{task_name}-dprank=0-partition={partition_id}.jsonl")
    made = make_answers(
        task, items,
        model_path=model_path, folder=folder, output=output, words=words, partition=partition, partitions=partitions,
    )  # fmt: skip
    if made.speaks:
        told = {"task": task.name, "model": made.model, "output": str(output), "sampling": asdict(made.sampling)}
        tell(output, made.done, told if as_json else None)
    return EXIT_INCOMPLETE if made.done.failed else 0


def _neighbours(items: list[Item], number: int, *, partition_id: int, partitions: int) -> list[Item]:
    """As many neighbours as Megatron's ``--num-samples-per-partition`` gives a part."""
    if number < 0 or partition_id < 0 or (partitions > 1 and partition_id >= partitions):
        raise click.UsageError(
            f"--num-samples-per-partition {number} and --partition-id {partition_id} of {partitions}: a positive "
            "number, and a part below --num-partitions, expected."
        )
    return items[number * partition_id : number * (partition_id + 1)]


def _output(path: Path, rest: str) -> Path:
    """The file itself, or Megatron's name of one under a prefix."""
    return path if path.suffix == ".jsonl" else path.with_name(f"{path.name}-{rest}")
