"""Answers to the items of a benchmark, written as they come; a second run does what is missing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError, SampleError
from omniloom.evaluate.task import Item, Task
from omniloom.generate.batches import batches_by_tokens
from omniloom.generate.prompts import Answer, Prompt, Prompter, answer_prompts
from omniloom.generate.sampling import SamplingConfig
from omniloom.model.llava import Llava
from omniloom.storage.files import replace_file

_SUFFIXES = ("", ".jpg", ".png", ".jpeg", ".webp")
Progress = Callable[[int, int, float], None]
"""Called with items answered, items in all, and seconds since the start."""


@dataclass(frozen=True, kw_only=True)
class AnsweringConfig:
    """How answers are made.

    Attributes:
        sampling: how words are chosen; draws hang on the item's id.
        batch_size: items that are answered together at most; it does not change the answers.
        batch_tokens: of the items that are answered together, each as long as the longest with its longest answer.
        partition: which of ``partitions`` equal parts of the items, from 0.
        partitions: parts that the items are cut into.
        system: what the system says.
    """

    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    batch_size: int = 16
    batch_tokens: int = 65_536
    partition: int = 0
    partitions: int = 1
    system: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.partition < self.partitions or min(self.batch_tokens, self.batch_size) < 1:
            raise ConfigError(
                f"partition {self.partition} of {self.partitions}, batch_tokens {self.batch_tokens}, batch_size "
                f"{self.batch_size}; a partition below their number, and numbers of at least 1, expected."
            )


@dataclass(frozen=True)
class Answered:
    """What a run did.

    Attributes:
        expected: items of the partition.
        made: answers made now.
        kept: answers that were there.
        failed: ids of items whose images cannot be used, with the reason.
    """

    expected: int
    made: int
    kept: int
    failed: Mapping[str, str]


def answer_items(
    model: Llava,
    prompter: Prompter,
    task: Task,
    items: Sequence[Item],
    *,
    images: Path,
    output: Path,
    model_name: str,
    config: AnsweringConfig,
    progress: Progress | None = None,
) -> Answered:
    """Answer the items of a partition that have no answer yet, and write each answer as a JSON line.

    Args:
        model: in evaluation mode.
        prompter: makes prompts.
        task: the benchmark.
        items: all of its items.
        images: the folder of their images.
        output: a ``.jsonl`` file; beside it, ``<output>.model.json`` says whose answers these are.
        model_name: what identifies the model and its weights.
        config: how.
        progress: called after each batch.

    Raises:
        ConfigError: the file has answers of another model, task or prompt.
    """
    mine = list(items[config.partition :: config.partitions])
    sampling = config.sampling
    chosen_by = asdict(sampling) | {"stop": list(sampling.stop)}  # as JSON has it
    _claim(output, model=model_name, task=task.name, system=config.system, **chosen_by)
    there = _answers_there(output)
    missing = [item for item in mine if item.id not in there]
    asking = _Asking(prompter, task, images, config)
    started = time.perf_counter()
    made = 0
    with output.open("a", encoding="utf-8") as file:
        for batch in _batches(asking.prompts(missing), config):
            keys = [item.id for item, _ in batch]
            answers = answer_prompts(model, prompter, [asked for _, asked in batch], sampling=sampling, keys=keys)
            file.write("".join(_line(*asked, answer) for asked, answer in zip(batch, answers, strict=True)))
            file.flush()
            made += len(batch)
            if progress is not None:
                progress(made + len(asking.failed), len(missing), time.perf_counter() - started)
    return Answered(len(mine), made, len(mine) - len(missing), asking.failed)


class _Asking:
    """Makes prompts of items, and remembers of which none could be made."""

    def __init__(self, prompter: Prompter, task: Task, images: Path, config: AnsweringConfig) -> None:
        self._prompter, self._task, self._images, self._config = prompter, task, images, config
        self.failed: dict[str, str] = {}

    def prompts(self, items: Iterable[Item]) -> Iterator[tuple[Item, Prompt]]:
        for item in items:
            try:
                images = [_image(self._images, name) for name in item.images]
                made = self._prompter.prompt(self._task.prompt(item), images, system=self._config.system)
            except SampleError as error:
                self.failed[item.id] = str(error)
            else:
                yield item, made


def _line(item: Item, prompt: Prompt, answer: Answer) -> str:
    row = {"sample_id": item.id, "prompt": prompt.text, "answer": answer.text, "gt_answer": list(item.answers)}
    return json.dumps(row | {"ended": answer.ended}, ensure_ascii=False) + "\n"


def _image(folder: Path, name: str) -> bytes:
    """The bytes of an image, by its name or the name with a usual suffix; no name leads out of the folder."""
    root = folder.resolve()
    for suffix in _SUFFIXES:
        path = (folder / f"{name}{suffix}").resolve()
        if path.is_relative_to(root) and path.is_file():
            return path.read_bytes()
    raise SampleError(
        f"{folder / name}: there is no such image (looked for {', '.join(_SUFFIXES[1:])} too)", reason="no-image"
    )


def _claim(output: Path, **identity: Any) -> None:
    """See that the answers in a file are of this run, or that there are none."""
    side = output.with_name(f"{output.name}.model.json")
    if not output.exists() or not output.stat().st_size:
        replace_file(side, json.dumps(identity, indent=1))
        return
    if not side.is_file():
        raise ConfigError(f"{output}: holds answers, and no {side.name} says whose. Write to another file.")
    there = json.loads(side.read_text())
    differing = [
        f"{key} {there.get(key)!r}, now {value!r}" for key, value in identity.items() if there.get(key) != value
    ]
    if differing:
        raise ConfigError(f"{output}: holds answers of another run: {'; '.join(differing)}. Write to another file.")


def _answers_there(output: Path) -> set[str]:
    """Ids that are answered. A line that a kill cut off is taken away, so that the file goes on after whole ones."""
    if not output.is_file():
        return set()
    data = output.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        replace_file(output, whole)
    return {str(json.loads(line)["sample_id"]) for line in whole.decode().splitlines()}


def _batches(asked: Iterable[tuple[Item, Prompt]], config: AnsweringConfig) -> Iterator[list[tuple[Item, Prompt]]]:
    return batches_by_tokens(
        asked,
        tokens=lambda one: len(one[1].ids) + config.sampling.max_new_tokens,
        budget_tokens=config.batch_tokens,
        most_rows=config.batch_size,
    )
