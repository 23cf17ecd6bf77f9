"""``omniloom evaluate``: what answers are worth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from omniloom.evaluate.answer_files import AnswerFile, fingerprint, read_several
from omniloom.evaluate.answer_log import made_by
from omniloom.evaluate.placing import placed
from omniloom.evaluate.reading import text_of
from omniloom.evaluate.result import Missing, Result, check_truth, checked, evaluate
from omniloom.evaluate.task import Item, Task
from omniloom.evaluate.tasks import TASKS, find_task
from omniloom.storage.files import replace_file
from omniloom.tools.answering import (
    ASKING,
    Made,
    Words,
    image_folder,
    make_answers,
    options,
    printable,
    read_items,
    tell,
)
from omniloom.tools.lmms_eval_run import run_lmms_eval
from omniloom.tools.outputs import keep_apart
from omniloom.tools.unused import refuse_unused

EXIT_INCOMPLETE = 1
_INCOMPLETE = {
    "missing": "this score is not one of the whole benchmark",
    "conflicting": "of different answers to an item, the first counts",
    "unknown": "answers that are to no item are left out",
}
"""What faults mean for a score."""
_WORDS = {
    "min_new_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "stop", "seed", "max_new_tokens", "beams",
    "samples", "rarity", "system", "tensor",
}  # fmt: skip
"""How words are chosen, and by how many ranks."""
_ASKED = {"template", "batch_size", "batch_tokens", "num_frames"}
_OURS = {
    "answers_paths",
    "truth_path",
    "variant",
    "missing",
    "answers_to",
    "items_path",
    "as_json",
    "images",
    "split_part",
}
_NO_SAMPLING = ("model", "model_fingerprint", "task")


def _list_tasks(ctx: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    for task in TASKS.values():
        click.echo(f"{task.name:<16} {task.title}: {task.metric}. Rules: {', '.join(task.variants)}")
        click.echo(f"{'':<16} checked against: {task.oracle or 'nothing yet (unverified)'}")
    ctx.exit()


@click.command(
    epilog="\b\nExamples:\n"
    "  omniloom evaluate coco-captions --answers captions.jsonl --ground-truth captions_val2014.json\n"
    "  omniloom evaluate mmmu --answers outputs/llava --ground-truth answer_dict_val.json --variant published\n"
    "  omniloom evaluate textvqa --model runs/sft --input-image-path images --ground-truth val.json\n"
    "  omniloom evaluate --list"
)
@click.argument("task_name", metavar="TASK", required=False)
@click.option("--task", "task_option", help="The same as TASK.")
@click.option(
    "--answers", "--input-path", "answers_paths", type=click.Path(path_type=Path), multiple=True,
    help="Answers: a file, a folder, or the beginning of the names of several *.jsonl files; may be given several "
    "times.",
)  # fmt: skip
@click.option(
    "--ground-truth", "--groundtruth-path", "--gt-path", "truth_path", type=click.Path(path_type=Path),
    help="The benchmark's own file or folder, or a prefix of Parquet tables.",
)  # fmt: skip
@click.option("--variant", help="The rule, where several are in use; see --list.")
@click.option(
    "--missing", type=click.Choice(["wrong", "leave-out"]), default="wrong", show_default=True,
    help="What becomes of items without an answer. Either way the exit code is 1.",
)  # fmt: skip
@click.option(
    "--model", "--model-path", "model", help="Without --answers: the folder of the model that is to answer. With them: "
    "what the result says the model is; by default what `generate` says.",
)  # fmt: skip
@click.option(
    "--answers-to", type=click.Path(path_type=Path, dir_okay=False),
    help="Where a model's answers go; what is there already stays.  [default: TASK-answers.jsonl]",
)  # fmt: skip
@click.option(
    "--inside", type=click.Choice(["lmms-eval"]),
    help="Let lmms-eval ask --model and score it, with its data; TASK is then one of its own.",
)  # fmt: skip
@click.option(
    "--include-path", "tasks_path", type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="With --inside: a folder of tasks of your own, in its form.",
)  # fmt: skip
@click.option(
    "--output", type=click.Path(path_type=Path), help="Write the result here as JSON. With --inside: a folder."
)
@click.option(
    "--items", "items_path", type=click.Path(path_type=Path, dir_okay=False),
    help="Write each item here as a JSON line: id, question, images, answers, text, score, and the highest one.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list_tasks, help="Name the tasks.")
@options(ASKING)
def command(
    task_name: str | None,
    *,
    task_option: str | None,
    answers_paths: tuple[Path, ...],
    truth_path: Path | None,
    variant: str | None,
    missing: Missing,
    model: str | None,
    answers_to: Path | None,
    inside: str | None,
    tasks_path: Path | None,
    output: Path | None,
    items_path: Path | None,
    as_json: bool,
    limit: int | None,
    **words: Any,
) -> int:
    """Score answers, or let a model answer a benchmark first.

    With --answers, files of any model are scored. With --model alone, that model answers as with `omniloom generate`,
    and its answers are scored.

    The exit code is 1 when an item has no answer, several different ones, or an answer is to no item: the score is
    printed, and what is wrong with it.
    """
    name = _task_name(task_name, task_option)
    if inside is not None:
        refuse_unused(_WORDS | _OURS, because="with --inside: the task there says what is asked and how")
        return run_lmms_eval(name, model, output=output, limit=limit, tasks=tasks_path, words=words)
    task = find_task(name)
    if truth_path is None:
        raise click.UsageError("--ground-truth is missing; the benchmark's own file or folder expected.")
    refuse_unused({"tasks_path"}, because="without --inside")
    if answers_paths:
        refuse_unused(_WORDS | _ASKED | {"answers_to"}, because="on answers that are there: no model is asked")
    keep_apart({"--output": output, "--items": items_path}, [truth_path, *answers_paths, answers_to])
    items = read_items(task, truth_path, words)
    asked = items[:limit]
    variant = checked(task, asked, variant)
    if not answers_paths:
        check_truth(task, asked)
        made, answers_path = _let_answer(task, asked, model, truth=truth_path, answers=answers_to, words=words)
        answers_paths, model = (answers_path,), None
        if not made.speaks:
            return EXIT_INCOMPLETE if made.done.failed else 0
    given = read_several(answers_paths, task)
    beyond = {item.id for item in items[len(asked) :]}
    about = _about(given, model, truth_path, items) | ({} if limit is None else {"limit": limit})
    answers = [answer for answer in placed(items, given.answers) if answer.id not in beyond]
    result = evaluate(task, asked, answers, variant=variant, missing=missing, about=about)
    plain = result.to_plain()
    if output is not None:
        replace_file(output, json.dumps(plain, indent=1).encode() + b"\n")
    if items_path is not None:
        replace_file(items_path, _item_lines(result))
    click.echo(json.dumps(plain) if as_json else _table(plain))
    return 0 if result.account.complete else EXIT_INCOMPLETE


def _task_name(argument: str | None, option: str | None) -> str:
    if (argument is None) == (option is None):
        raise click.UsageError("one task expected, as TASK or with --task; `--list` names them.")
    return str(argument or option)


def _let_answer(
    task: Task, items: Sequence[Item], model: str | None, *, truth: Path, answers: Path | None, words: Words
) -> tuple[Made, Path]:
    """Answers of a model, and where they are."""
    if model is None:
        raise click.UsageError("--answers and --model are missing: answers, or a model that gives them, expected.")
    answers = answers or Path(f"{task.name}-answers.jsonl")
    folder = image_folder(words["images"], truth)
    made = make_answers(task, items, model_path=Path(model), folder=folder, output=answers, words=words)
    if made.speaks:
        tell(answers, made.done, None)
    return made, answers


def _about(given: AnswerFile, model: str | None, truth: Path, items: Sequence[Item]) -> dict[str, Any]:
    """What a result says of where it is from."""
    from omniloom.evaluate.data_sets import fingerprint_of, is_data_set  # noqa: PLC0415 - the loader takes a while

    maker = _maker(given)
    return {
        "model": model or maker.get("model"),
        "model_fingerprint": maker.get("model_fingerprint"),
        "prompts_were_asked": bool(maker),
        "sampling": {name: value for name, value in maker.items() if name not in _NO_SAMPLING} or None,
        "ground_truth": str(truth),
        "ground_truth_sha256": fingerprint_of(items) if is_data_set(truth) else fingerprint(truth),
        "answer_files": dict(given.files),
    }


def _maker(given: AnswerFile) -> dict[str, Any]:
    """What `omniloom generate` wrote beside its answers, where all files are of one model."""
    sides = [Path(f"{name}.model.json") for name in given.files]
    told = [made_by(text_of(side), where=side) for side in sides if side.is_file()]
    return told[0] if told and len(told) == len(sides) and all(one == told[0] for one in told) else {}


def _item_lines(result: Result) -> bytes:
    rows = (
        {
            "id": item.id,
            "question": item.question,
            "images": [str(name) for name in item.images],
            "answers": list(item.answers),
        }
        | {"text": text, "score": worth, "most": result.task.most}
        for item, text, worth in zip(result.items, result.texts, result.scores.items, strict=True)
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "backslashreplace")


def _table(plain: dict[str, Any]) -> str:
    lines = [f"{plain['title']}: {plain['metric']} (rule: {plain['variant']})"]
    lines += [f"  {name:<18}{value:10.3f}" for name, value in plain["scores"].items()]
    for kind, groups in plain["groups"].items():
        lines.append(f"  by {kind}:")
        lines += [f"    {name:<38}{value:10.2f}" for name, value in groups.items()]
    counts = plain["counts"]
    lines.append(f"  {counts['expected']:,} items, {counts['answered']:,} answered, {counts['scored']:,} scored")
    faults = {name: counts[name] for name in ("missing", "empty", "doubled", "conflicting", "unknown") if counts[name]}
    for name, count in faults.items():
        lines.append(f"  {name}: {count:,}, such as {', '.join(plain['ids'][name][:3])}")
    if "left_out" in plain:
        lines.append(f"  Left out: {plain['left_out']}.")
    if plain["checked_against"] == "unverified":
        lines.append("  The rule is unverified: no official output was at hand to compare it with.")
    if "note" in plain:
        lines.append(f"  Note: {plain['note']}")
    if "limit" in plain:
        lines.append(f"  Of the first {plain['limit']:,} items alone: not a score of the benchmark.")
    if not plain["complete"]:
        said = [words for name, words in _INCOMPLETE.items() if counts[name]]
        lines.append(f"  INCOMPLETE: {'; '.join(said)}.")
    return printable("\n".join(lines))
