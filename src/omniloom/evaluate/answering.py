"""Answers to the items of a benchmark, written as they come; a second run does what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from omniloom.errors import ConfigError, OmniloomError, SampleError, StoreAwayError
from omniloom.evaluate.agreed import agreed_answers, rarity_in
from omniloom.evaluate.answer_log import AnswerLog, Row, append, piece_of, rows_there
from omniloom.evaluate.pictures import Pictures
from omniloom.evaluate.ranks import Share
from omniloom.evaluate.result import check_ids
from omniloom.evaluate.scores.captions import ALL_ALIKE, Rarity
from omniloom.evaluate.task import Item, Task
from omniloom.generate.batches import batches_by_tokens
from omniloom.generate.prompts import Answer, Prompt, Prompter
from omniloom.generate.sampling import SamplingConfig
from omniloom.model.llava import Llava
from omniloom.vlm.template import ChatTemplate

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
        num_frames: of each video; ``None``: no videos are expected.
        samples: answers drawn for each item, of which the one most like all of them is given.
        rarity: file of texts, one a line: words and their neighbours that are rare in them count for more in what is
            alike, as in CIDEr; ``None``: all count as much.
    """

    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    batch_size: int = 16
    batch_tokens: int = 65_536
    partition: int = 0
    partitions: int = 1
    system: str | None = None
    num_frames: int | None = None
    samples: int = 1
    rarity: Path | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.partition < self.partitions or min(self.batch_tokens, self.batch_size) < 1:
            raise ConfigError(
                f"partition {self.partition} of {self.partitions}, batch_tokens {self.batch_tokens}, batch_size "
                f"{self.batch_size}; a partition below their number, and numbers of at least 1, expected."
            )
        if self.samples < 1 or (self.samples > 1 and not self.sampling.draws):
            raise ConfigError(
                f"samples {self.samples} with temperature {self.sampling.temperature:g}; at least 1, and a temperature "
                "above 0 for several, expected: else all are the same."
            )
        if self.rarity is not None and self.samples == 1:
            raise ConfigError(f"rarity {self.rarity} with one sample, where nothing is compared; several expected.")


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
    fingerprint: str | None = None,
    config: AnsweringConfig,
    share: Share | None = None,
    progress: Progress | None = None,
) -> Answered:
    """Answer the items of a partition that have no answer yet, and write each answer as a JSON line.

    All ranks of a job call it, and come back together.

    Args:
        model: in evaluation mode.
        prompter: makes prompts.
        task: the benchmark.
        items: all of its items.
        images: the folder of their images.
        output: a ``.jsonl`` file; beside it, ``<output>.model.json`` says whose answers these are.
        model_name: where the model is, and the step of a run.
        fingerprint: of its weights (`omniloom.evaluate.model_fingerprint`).
        config: how.
        share: what this rank does of it; ``None``: all.
        progress: called after each batch, on the first rank.

    Raises:
        ConfigError: an id comes twice, or the file has answers of another model, task or setting, or to other
            questions.
    """
    check_ids(task, items)
    share = share or Share()
    mine = list(items[config.partition :: config.partitions])
    sampling = config.sampling
    chosen_by = asdict(sampling) | {"stop": list(sampling.stop)}  # as JSON has it
    seen: dict[str, Any] = {} if config.num_frames is None else {"num_frames": config.num_frames}
    seen |= {"samples": config.samples} if config.samples > 1 else {}
    seen |= {} if config.rarity is None else {"rarity": sha256(config.rarity.read_bytes()).hexdigest()}
    rarity = ALL_ALIKE if config.rarity is None else rarity_in(config.rarity)  # a bad file begins no answers
    made_by = {"model": model_name, "model_fingerprint": fingerprint, "task": task.name, "system": config.system}
    made_by["template"] = _template_name(prompter)
    log = AnswerLog(output, {**made_by, **chosen_by, **seen})
    _all_or_none(share, log.__enter__)
    try:
        there = rows_there(output)
        _check_questions(prompter, task, mine, there, output)
        missing = share.from_first([item.id for item in mine if item.id not in there])
        asked = set(missing[share.number :: share.shares])
        asking = _Asking(prompter, task, Pictures(images, num_frames=config.num_frames), config, rarity)
        own = [item for item in mine if item.id in asked]
        made = _answer(model, own, asking, piece_of(output, share.number), share=share, progress=progress)
        told = share.from_all((made, asking.failed))
        if share.first:
            log.fold([item.id for item in items])
        share.from_first(None)
    finally:
        log.close()
    failed = {name: reason for _, failures in told for name, reason in failures.items()}
    return Answered(len(mine), sum(number for number, _ in told), len(mine) - len(missing), failed)


def _template_name(prompter: Prompter) -> str:
    """What tells a chat template from another."""
    template = prompter.template
    if isinstance(template, ChatTemplate):
        return template.name
    return f"{template.name} {sha256(template.source.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _check_questions(
    prompter: Prompter, task: Task, items: Iterable[Item], there: Mapping[str, Row], output: Path
) -> None:
    """See that answers that are there are to the questions of their items."""
    if isinstance(prompter.template, ChatTemplate) and prompter.template.ignores_user:
        return
    for item in items:
        asked = _plain(task.prompt(item))
        before = str(there[item.id].get("prompt", asked)) if item.id in there else asked
        if asked not in _plain(before):
            raise ConfigError(
                f"{output}: the answer to {item.id!r} there is to {before[:200]!r}; an answer to {asked[:200]!r} "
                "expected. Write to another file."
            )


def _plain(text: str) -> str:
    return " ".join(text.replace("<image>", " ").split())


def _all_or_none(share: Share, enter: Callable[[], object]) -> None:
    """Let the first rank begin; where it cannot, no rank does."""
    wrong: str | None = None
    if share.first:
        try:
            enter()
        except OmniloomError as error:
            wrong = str(error)
    wrong = share.from_first(wrong)
    if wrong is not None:
        raise ConfigError(wrong)


def _answer(
    model: Llava,
    items: Sequence[Item],
    asking: _Asking,
    output: Path,
    *,
    share: Share,
    progress: Progress | None,
) -> int:
    """Answer items, and write what this rank has to write."""
    config = asking.config
    started = time.perf_counter()
    made = 0
    for batch in _batches(asking.prompts(items), config):
        keys = [item.id for item, _ in batch]
        prompts = [asked for _, asked in batch]
        answers = agreed_answers(
            model, asking.prompter, prompts,
            sampling=config.sampling, keys=keys, samples=config.samples, rarity=asking.rarity,
        )  # fmt: skip
        if share.writes:
            append(output, [asking.row(*asked, answer) for asked, answer in zip(batch, answers, strict=True)])
        made += len(batch)
        if progress is not None and share.first:
            progress(made + len(asking.failed), len(items), time.perf_counter() - started)
    return made


class _Asking:
    """Makes prompts of items, and remembers of which none could be made."""

    def __init__(
        self, prompter: Prompter, task: Task, pictures: Pictures, config: AnsweringConfig, rarity: Rarity
    ) -> None:
        self.prompter, self._task, self._pictures = prompter, task, pictures
        self.config, self.rarity = config, rarity
        self.failed: dict[str, str] = {}

    def prompts(self, items: Iterable[Item]) -> Iterator[tuple[Item, Prompt]]:
        for item in items:
            try:
                made = self.prompter.prompt(self._task.prompt(item), self._pictures.of(item), system=self.config.system)
            except StoreAwayError:
                raise
            except (SampleError, OSError) as error:  # an image that is no image, or that may not be read
                self.failed[item.id] = str(error)
            else:
                yield item, made

    def row(self, item: Item, prompt: Prompt, answer: Answer) -> dict[str, Any]:
        """What is written of an answer: the one form of all tasks, and what Megatron's example calls it in this one."""
        row = {"sample_id": item.id, "prompt": prompt.text, "answer": answer.text, "gt_answer": list(item.answers)}
        return row | {"ended": answer.ended} | dict(self._task.fields(item, answer.text))


def _batches(asked: Iterable[tuple[Item, Prompt]], config: AnsweringConfig) -> Iterator[list[tuple[Item, Prompt]]]:
    return batches_by_tokens(
        asked,
        tokens=lambda one: (len(one[1].ids) + config.sampling.max_new_tokens) * config.samples,
        budget_tokens=config.batch_tokens,
        most_rows=config.batch_size,
    )
