"""``omniloom generate``: answers of a model to a benchmark. ``omniloom ask``: one question about one image."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omniloom.parallel.job import job

if TYPE_CHECKING:
    from omniloom.evaluate.answering import Answered
    from omniloom.evaluate.task import Item
    from omniloom.generate.sampling import SamplingConfig

EXIT_INCOMPLETE = 1

_MODEL_HELP = "A folder of a run (its newest checkpoint counts), or of a model with config.json and weights."
_TEMPLATE_HELP = "Chat template; by default the run's, or vicuna_v1."
_VIDEO_FRAMES = 8
_SAMPLING: Sequence[Callable[[Any], Any]] = (
    click.option("--min-new-tokens", default=0, show_default=True, help="No end before so many words."),
    click.option(
        "--temperature",
        type=float,
        help="0 takes the likeliest word. Default: 0, or 1 where --top-k or --top-p say that words are drawn.",
    ),
    click.option("--top-k", "--top_k", default=0, show_default=True, help="Draw from so many; 0: all, 1: likeliest."),
    click.option("--top-p", "--top_p", default=0.0, show_default=True, help="Draw from this much; 0: all."),
    click.option("--repetition-penalty", default=1.0, show_default=True, help="Above 1: what was said is less likely."),
    click.option("--stop", multiple=True, help="A text that ends an answer; may be given several times."),
    click.option("--seed", default=0, show_default=True, help="Of the draws, with each item's id."),
)


def _sampling_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_SAMPLING):
        command = option(command)
    return command


@click.command(
    epilog="\b\nExamples:\n"
    "  omniloom generate --model runs/sft --task textvqa --input-image-path images --gt-path val.json \\\n"
    "      --output-path a.jsonl\n"
    "  torchrun --nproc-per-node 8 -m omniloom generate ... --tensor-parallel 2\n"
    "  omniloom evaluate textvqa --answers a.jsonl --ground-truth val.json"
)
@click.option("--model", "--model-path", "model_path", required=True, type=click.Path(path_type=Path), help=_MODEL_HELP)
@click.option("--task", "task_name", required=True, help="A benchmark; `omniloom evaluate --list` names them.")
@click.option(
    "--input-image-path",
    "images",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder of images or videos; not for Parquet tables, which hold theirs.",
)
@click.option(
    "--gt-path",
    "--groundtruth-path",
    "--ground-truth",
    "truth",
    type=click.Path(path_type=Path),
    help="The benchmark's file or folder; without one, for captions, every image in the folder.",
)
@click.option(
    "--output-path",
    "--output",
    "output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A .jsonl file; or a prefix P, for P-TASK-dprank=0-partition=ID.jsonl.",
)
@click.option("--template", help=_TEMPLATE_HELP)
@click.option("--out-seq-length", "--max-new-tokens", "max_new_tokens", default=64, show_default=True)
@_sampling_options
@click.option("--batch-size", default=16, show_default=True, help="Items answered together at most.")
@click.option("--batch-tokens", default=65_536, show_default=True, help="Tokens of a batch: bounds its memory.")
@click.option("--num-partitions", default=1, show_default=True, help="Parts of the items; 0 is 1.")
@click.option("--partition-id", default=0, show_default=True, help="Which of them to answer.")
@click.option("--num-samples-per-partition", default=0, show_default=True, help="Parts of so many neighbours instead.")
@click.option("--num-frames", default=_VIDEO_FRAMES, show_default=True, help="Of a video.")
@click.option("--system", help="What the system says.")
@click.option(
    "--tensor-parallel",
    "--tensor-model-parallel-size",
    "tensor",
    default=1,
    show_default=True,
    help="Ranks of torchrun that share one model; the others answer other items.",
)
@click.option("--limit", type=int, help="Answer the first so many items only.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(
    model_path: Path,
    *,
    task_name: str,
    images: Path | None,
    truth: Path | None,
    output: Path,
    system: str | None,
    tensor: int,
    template: str | None,
    limit: int | None,
    max_new_tokens: int,
    batch_size: int,
    batch_tokens: int,
    num_partitions: int,
    partition_id: int,
    num_samples_per_partition: int,
    num_frames: int,
    as_json: bool,
    **sampling_words: Any,
) -> int:
    """Answer the items of a benchmark.

    Answers that are there already stay. Answers are written as they come; after a kill the same command goes on with
    what is missing. The exit code is 1 when an item could not be answered.
    """
    from omniloom.evaluate.answering import AnsweringConfig, answer_items  # noqa: PLC0415 - torch takes a while
    from omniloom.evaluate.pictures import has_videos  # noqa: PLC0415
    from omniloom.evaluate.ranks import share_of_rank  # noqa: PLC0415
    from omniloom.evaluate.tasks import find_task  # noqa: PLC0415
    from omniloom.train.trained import open_trained  # noqa: PLC0415

    task = find_task(task_name)
    folder = _folder(images, truth)
    items = (task.read(truth) if truth is not None else task.read_images(folder))[:limit]
    partition, partitions = partition_id, max(1, num_partitions)
    if num_samples_per_partition:
        items = _neighbours(items, num_samples_per_partition, partition_id=partition_id, partitions=num_partitions)
        partition, partitions = 0, 1
    output = _output(output, f"{task_name}-dprank=0-partition={partition_id}.jsonl")
    config = AnsweringConfig(
        sampling=_sampling(max_new_tokens, **sampling_words),
        batch_size=batch_size,
        batch_tokens=batch_tokens,
        partition=partition,
        partitions=partitions,
        system=system,
        num_frames=num_frames if has_videos(items, folder) else None,
    )
    with job():
        trained = open_trained(model_path, template=template)
        share = share_of_rank(trained.model, tensor=tensor)
        done = answer_items(
            trained.model, trained.prompter, task, items,
            images=folder, output=output, model_name=trained.name, config=config, share=share, progress=_Line(),
        )  # fmt: skip
    if share.first:
        told = {"task": task.name, "model": trained.name, "output": str(output), "sampling": asdict(config.sampling)}
        _tell(output, done, told if as_json else None)
    return EXIT_INCOMPLETE if done.failed else 0


def _folder(images: Path | None, truth: Path | None) -> Path:
    """Where images are: the folder that is named, or the one of the benchmark's file."""
    if images is not None:
        return images
    if truth is None:
        raise click.UsageError("--input-image-path and --gt-path are missing; one of them at least is expected.")
    return truth if truth.is_dir() else truth.parent


def _sampling(
    max_new_tokens: int,
    *,
    min_new_tokens: int,
    temperature: float | None,
    top_k: int,
    top_p: float,
    repetition_penalty: float,
    stop: tuple[str, ...],
    seed: int,
) -> SamplingConfig:
    """What the flags ask for. Megatron's 0 for top-k and top-p is no bound; drawing is at temperature 1 by default."""
    from omniloom.generate.sampling import SamplingConfig  # noqa: PLC0415 - torch takes a while

    draws = top_k > 1 or (top_p > 0 and top_k != 1)
    return SamplingConfig(
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        temperature=float(draws) if temperature is None else temperature,
        top_k=top_k or None,
        top_p=top_p or None,
        repetition_penalty=repetition_penalty,
        stop=stop,
        seed=seed,
    )


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


def _tell(output: Path, done: Answered, about: Mapping[str, Any] | None) -> None:
    if about is not None:
        click.echo(json.dumps({**about, **asdict(done)}, ensure_ascii=False))
    click.echo(f"{output}: {done.made:,} answers made, {done.kept:,} were there, {len(done.failed):,} failed", err=True)
    for name, reason in list(done.failed.items())[:5]:
        click.echo(f"  {name}: {reason}", err=True)


@click.command(epilog='\b\nExample:\n  omniloom ask runs/sft photo.jpg "What is this?"')
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("image", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.argument("question")
@click.option("--template", help=_TEMPLATE_HELP)
@click.option("--max-new-tokens", default=128, show_default=True)
@_sampling_options
def ask(
    model_path: Path,
    *,
    image: Path,
    question: str,
    template: str | None,
    max_new_tokens: int,
    **sampling_words: Any,
) -> None:
    """Ask a model one question about one image.

    The answer is printed as it comes.
    """
    sampling = _sampling(max_new_tokens, **sampling_words)
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
