"""How a model is asked: what `omniloom generate`, `omniloom ask` and `omniloom evaluate --model` have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omniloom.errors import ConfigError
from omniloom.evaluate.task import LACKING
from omniloom.parallel.job import job

if TYPE_CHECKING:
    from omniloom.evaluate.answering import Answered
    from omniloom.evaluate.task import Item, Task
    from omniloom.generate.sampling import SamplingConfig

Words = Mapping[str, Any]
"""Values of flags by their names."""

MODEL_HELP = "A folder of a run (its newest checkpoint counts), or of a model with config.json and weights."
TEMPLATE_HELP = "Chat template; by default the run's, or vicuna_v1."
_VIDEO_FRAMES = 8
_FAILURES_SHOWN = 5
SAMPLING: Sequence[Callable[[Any], Any]] = (
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
ASKING: Sequence[Callable[[Any], Any]] = (
    click.option(
        "--input-image-path",
        "images",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        help="Folder of images or videos; not for Parquet tables, which hold theirs.",
    ),
    click.option("--split-part", default="val", show_default=True, help="Of a prepared data set, or of a mix."),
    click.option("--template", help=TEMPLATE_HELP),
    click.option(
        "--out-seq-length",
        "--max-new-tokens",
        "max_new_tokens",
        default=64,
        show_default=True,
        help="Words of an answer at most.",
    ),
    *SAMPLING,
    click.option("--beams", "--num-beams", "beams", default=1, show_default=True, help="Of beam search; 1: none."),
    click.option(
        "--samples",
        default=1,
        show_default=True,
        help="Answers drawn for each item, of which the one most like all of them is given; with a temperature.",
    ),
    click.option(
        "--rarity",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="With --samples: a file of texts, one a line; what is rare in them counts for more in what is alike.",
    ),
    click.option("--batch-size", default=16, show_default=True, help="Items answered together at most."),
    click.option("--batch-tokens", default=65_536, show_default=True, help="Tokens of a batch: bounds its memory."),
    click.option(
        "--num-frames", default=_VIDEO_FRAMES, show_default=True, type=click.IntRange(min=1), help="Of a video."
    ),
    click.option("--system", help="What the system says."),
    click.option(
        "--tensor-parallel",
        "--tensor-model-parallel-size",
        "tensor",
        default=1,
        show_default=True,
        help="Ranks of torchrun that share one model; the others answer other items.",
    ),
    click.option("--limit", type=click.IntRange(min=1), help="The first so many items only."),
)


def options(table: Sequence[Callable[[Any], Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that gives a command the options of a table, in its order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(table):
            command = option(command)
        return command

    return decorate


def read_items(task: Task, truth: Path, words: Words) -> list[Item]:
    """The items of a benchmark: in its own layout, or the samples of a data set of ours.

    Args:
        task: the benchmark.
        truth: its file or folder, a prepared data set, or the YAML of a mix.
        words: values of the options `ASKING`.
    """
    from omniloom.evaluate.data_sets import is_data_set, read_data_set  # noqa: PLC0415 - the loader takes a while

    if is_data_set(truth):
        return read_data_set(truth, split_part=words["split_part"])
    return task.read(truth)


@dataclass(frozen=True)
class Made:
    """What was done.

    Attributes:
        done: how many answers were made, and which not.
        model: what identifies it.
        sampling: how words were chosen.
        speaks: whether this is the rank that tells.
    """

    done: Answered
    model: str
    sampling: SamplingConfig
    speaks: bool


def make_answers(
    task: Task,
    items: Sequence[Item],
    *,
    model_path: Path,
    folder: Path,
    output: Path,
    words: Words,
    partition: int = 0,
    partitions: int = 1,
) -> Made:
    """Answer items with a model; all ranks of the job call it.

    Args:
        task: the benchmark.
        items: its items.
        model_path: folder of a run or of a model.
        folder: of images and videos.
        output: file of answers.
        words: values of the options `ASKING`.
        partition: which part to answer.
        partitions: of so many.
    """
    lacking = next((item.facts[LACKING] for item in items if LACKING in item.facts), None)
    if lacking is not None:
        raise ConfigError(f"{lacking}; the questions are expected there. Answers of others can be scored without.")
    from omniloom.evaluate.answering import AnsweringConfig, answer_items  # noqa: PLC0415 - torch takes a while
    from omniloom.evaluate.model_fingerprint import model_fingerprint  # noqa: PLC0415
    from omniloom.evaluate.pictures import has_videos  # noqa: PLC0415
    from omniloom.evaluate.ranks import share_of_rank  # noqa: PLC0415
    from omniloom.train.build import own_device  # noqa: PLC0415
    from omniloom.train.trained import open_trained  # noqa: PLC0415

    config = AnsweringConfig(
        sampling=sampling_of(words),
        batch_size=words["batch_size"],
        batch_tokens=words["batch_tokens"],
        partition=partition,
        partitions=partitions,
        system=words["system"],
        num_frames=words["num_frames"] if has_videos(items, folder) else None,
        samples=words["samples"],
        rarity=words["rarity"],
    )
    with job():
        share, cut = share_of_rank(tensor=words["tensor"], device=own_device().type)
        trained = open_trained(model_path, template=words["template"], cut=cut)
        done = answer_items(
            trained.model, trained.prompter, task, items,
            images=folder, output=output, model_name=trained.name, fingerprint=model_fingerprint(Path(trained.name)),
            config=config, share=share, progress=_Line(),
        )  # fmt: skip
    return Made(done, trained.name, config.sampling, share.first)


def tell(output: Path, done: Answered, about: Words | None) -> None:
    """Say what was done; as JSON too where there is something to say about it."""
    if about is not None:
        click.echo(printable(json.dumps({**about, **asdict(done)}, ensure_ascii=False)))
    click.echo(f"{output}: {done.made:,} answers made, {done.kept:,} were there, {len(done.failed):,} failed", err=True)
    for name, reason in list(done.failed.items())[:_FAILURES_SHOWN]:
        click.echo(f"  {name}: {reason}", err=True)
    if len(done.failed) > _FAILURES_SHOWN:
        more = len(done.failed) - _FAILURES_SHOWN
        click.echo(f"  and {more:,} more, all of which `omniloom generate --json` names", err=True)


def printable(text: str) -> str:
    """A text in which halves of characters, which no terminal takes, are written as JSON and Python write them."""
    return text.encode("utf-8", "backslashreplace").decode()


def image_folder(images: Path | None, truth: Path | None) -> Path:
    """Where images are: the folder that is named, or the one of the benchmark's file."""
    if images is not None:
        return images
    if truth is None:
        raise click.UsageError("--input-image-path and --gt-path are missing; one of them at least is expected.")
    return truth if truth.is_dir() else truth.parent


def sampling_of(words: Words) -> SamplingConfig:
    """What the flags ask for. Megatron's 0 for top-k and top-p is no bound; drawing is at temperature 1 by default."""
    from omniloom.generate.sampling import SamplingConfig  # noqa: PLC0415 - torch takes a while

    top_k, top_p, temperature = words["top_k"], words["top_p"], words["temperature"]
    draws = top_k > 1 or (top_p > 0 and top_k != 1)
    return SamplingConfig(
        max_new_tokens=words["max_new_tokens"],
        min_new_tokens=words["min_new_tokens"],
        temperature=float(draws) if temperature is None else temperature,
        top_k=top_k or None,
        top_p=top_p or None,
        repetition_penalty=words["repetition_penalty"],
        stop=words["stop"],
        seed=words["seed"],
        beams=words.get("beams", 1),
    )


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
