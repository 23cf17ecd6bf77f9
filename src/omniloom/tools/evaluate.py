"""``omniloom evaluate``: what answers are worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from omniloom.evaluate.answer_files import AnswerFile, fingerprint, read_answers
from omniloom.evaluate.result import Missing, Result, evaluate
from omniloom.evaluate.tasks import TASKS, find_task
from omniloom.storage.files import replace_file

EXIT_INCOMPLETE = 1


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
    "  omniloom evaluate --list"
)
@click.argument("task_name", metavar="TASK")
@click.option(
    "--answers", "--input-path", "answers_path", required=True, type=click.Path(path_type=Path),
    help="Answers: a file, a folder, or the beginning of the names of several *.jsonl files.",
)  # fmt: skip
@click.option(
    "--ground-truth", "--groundtruth-path", "--gt-path", "truth_path", required=True,
    type=click.Path(path_type=Path), help="The benchmark's own file or folder, or a prefix of Parquet tables.",
)  # fmt: skip
@click.option("--variant", help="The rule, where several are in use; see --list.")
@click.option(
    "--missing", type=click.Choice(["wrong", "leave-out"]), default="wrong", show_default=True,
    help="What becomes of items without an answer. Either way the exit code is 1.",
)  # fmt: skip
@click.option("--model", help="What the result says the model is; by default what `generate` says.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the result here as JSON.")
@click.option(
    "--items", "items_path", type=click.Path(path_type=Path, dir_okay=False),
    help="Write each item here as a JSON line: id, question, images, answers, text, score.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list_tasks, help="Name the tasks.")
def command(
    task_name: str,
    *,
    answers_path: Path,
    truth_path: Path,
    variant: str | None,
    missing: Missing,
    model: str | None,
    output: Path | None,
    items_path: Path | None,
    as_json: bool,
) -> int:
    """Score a model's answers to a benchmark.

    The exit code is 1 when an item has no answer, several different ones, or an answer is to no item: the score is
    printed, and what is wrong with it.
    """
    task = find_task(task_name)
    given = read_answers(answers_path, task)
    made_by = _made_by(given)
    about: dict[str, Any] = {
        "model": model or made_by.get("model"),
        "sampling": {name: value for name, value in made_by.items() if name not in ("model", "task")} or None,
        "ground_truth": str(truth_path),
        "ground_truth_sha256": fingerprint(truth_path),
        "answer_files": dict(given.files),
    }
    result = evaluate(task, task.read(truth_path), given.answers, variant=variant, missing=missing, about=about)
    plain = result.to_plain()
    if output is not None:
        replace_file(output, json.dumps(plain, indent=1).encode() + b"\n")
    if items_path is not None:
        replace_file(items_path, _item_lines(result))
    click.echo(json.dumps(plain) if as_json else _table(plain))
    return 0 if result.account.complete else EXIT_INCOMPLETE


def _made_by(given: AnswerFile) -> dict[str, Any]:
    """What `omniloom generate` wrote beside its answers, where all files are of one model."""
    sides = [Path(f"{name}.model.json") for name in given.files]
    told = [json.loads(side.read_text()) for side in sides if side.is_file()]
    return told[0] if told and len(told) == len(sides) and all(one == told[0] for one in told) else {}


def _item_lines(result: Result) -> bytes:
    rows = (
        {
            "id": item.id,
            "question": item.question,
            "images": [str(name) for name in item.images],
            "answers": list(item.answers),
        }
        | {"text": text, "score": worth}
        for item, text, worth in zip(result.items, result.texts, result.scores.items, strict=True)
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "surrogatepass")


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
    if plain["checked_against"] == "unverified":
        lines.append("  The rule is unverified: no official output was at hand to compare it with.")
    if not plain["complete"]:
        lines.append("  INCOMPLETE: this score is not one of the whole benchmark.")
    return "\n".join(lines)
