"""Multiple choices about videos: VideoMME, MVBench, MotionBench, PhysGameBench, PerceptionTest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any
from urllib.parse import parse_qs, urlsplit

from omniloom.errors import ConfigError
from omniloom.evaluate.answer import Answer
from omniloom.evaluate.reading import Row, letters, literal_list, read_json, read_rows, suffix_of, wanted
from omniloom.evaluate.scores.choices import (
    first_capital,
    leading_letter,
    mmmu_choice,
    motionbench_letter,
    mvbench_correct,
)
from omniloom.evaluate.task import Item, Scores, Task, grouped, kept_fields, mean, mean_score, no_fields, no_form
from omniloom.evaluate.tasks.answers import choice_or_text

_NOT_PUBLIC = "NA"


def read_videomme(path: Path) -> list[Item]:
    """Videos with several questions each, all of which are read; or rows of one question."""
    items = []
    for video in read_rows(path):
        for row in video.get("questions", [video]):
            listed = wanted(row, "choices", "candidates", "options", where=path)
            listed = literal_list(listed) if isinstance(listed, str) else listed
            options = {str(text)[0]: str(text)[2:].strip() for text in listed}
            items.append(
                Item(
                    id=str(wanted(row, "question_id", "index", where=path)),
                    question=str(wanted(row, "question", where=path)),
                    answers=(str(wanted(row, "answer", where=path)).strip("(). ")[:1],),
                    images=(f"{_video_name(video, path)}.mp4",),
                    options=options,
                    facts={
                        "duration": video.get("duration_category") or video.get("duration"),
                        "task": row.get("task_type"),
                        "video": video.get("video_id"),
                    },
                )
            )
    return items


def _video_name(video: Row, path: Path) -> str:
    """The name of a video's file: that of its place on YouTube, as both forms of the benchmark's file have it."""
    if video.get("url"):
        address = str(video["url"])
        return parse_qs(urlsplit(address).query).get("v", [address.rpartition("/")[2]])[0]
    return str(wanted(video, "videoID", "video_id", "video", where=path))


MVBENCH_FOLDERS = {
    "star/Charades_v1_480": "action_sequence action_prediction object_interaction",
    "ssv2_video": "action_antonym",
    "Moments_in_Time_Raw/videos": "fine_grained_action",
    "FunQA_test/test": "unexpected_action",
    "clevrer/video_validation": (
        "object_existence moving_direction moving_count moving_attribute counterfactual_inference"
    ),
    "perception/videos": "object_shuffle action_count state_change character_order",
    "sta/sta_video": "action_localization",
    "scene_qa/video": "scene_transition",
    "nturgbd": "fine_grained_pose",
    "vlnqa": "egocentric_navigation",
    "tvqa/frames_fps3_hq": "episodic_reasoning",
}
"""Where the videos of each kind of question lie in the benchmark's own folder, by the names of its files."""

_MVBENCH_FOLDER = {kind: folder for folder, kinds in MVBENCH_FOLDERS.items() for kind in kinds.split()}


def read_mvbench(path: Path) -> list[Item]:
    """A folder of one JSON file a kind of question: rows of video, question, candidates, answer; or a table of all."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"{path}: no *.json in this folder.")
    items = []
    for file in files:
        folder = f"{_MVBENCH_FOLDER[file.stem]}/" if file.stem in _MVBENCH_FOLDER else ""
        for number, row in enumerate(read_rows(file)):
            options = letters(wanted(row, "candidates", where=file))
            right = str(wanted(row, "answer", where=file))
            items.append(
                Item(
                    id=str(row.get("index", f"{file.stem}-{number}")),
                    question=str(wanted(row, "question", where=file)),
                    answers=tuple(letter for letter, text in options.items() if text == right),
                    images=(f"{folder}{wanted(row, 'video', where=file)}",),
                    options=options,
                    facts={
                        "task_type": row.get("task_type", file.stem),
                        "start": row.get("start"),
                        "end": row.get("end"),
                    },
                )
            )
    return items


def read_choices(path: Path) -> list[Item]:
    """Rows of MotionBench (questions in ``qa``), PhysGameBench (``options`` by letter), or of single questions.

    MotionBench's questions whose answer is not public (``NA``) are left out.
    """
    items = []
    for row in read_rows(path):
        for asked in row.get("qa") or [row]:
            name = str(wanted(asked, "uid", "question_id", "id", where=path))
            answer = str(wanted(asked, "answer", where=path))
            facts = {"class": row.get("class_anno"), "subclass": row.get("subclass_anno")}
            item = Item(
                id=name,
                question=str(wanted(asked, "question", where=path)),
                answers=(answer,),
                images=(str(row.get("video_path", f"{name}.mp4")),),
                options=letters(asked.get("options")),
                facts=facts | {key: row.get(key) for key in ("question_type", "video_type")},
            )
            items += [item] if answer != _NOT_PUBLIC else []
    return items


def read_perception_test(path: Path) -> list[Item]:
    """``mc_question_valid.json``: by video, its questions with options and the number of the right one."""
    items = []
    for video in read_rows(path):
        if "mc_question" not in video and "answer_id" not in video:
            return read_choices(path)
        for row in video.get("mc_question", [video]):
            name = str((video.get("metadata") or {}).get("video_id") or wanted(video, "video_name", "id", where=path))
            options = letters(wanted(row, "options", where=path))
            number = int(wanted(row, "answer_id", where=path))
            items.append(
                Item(
                    id=f"{name}-{row['id']}" if "mc_question" in video else str(wanted(row, "question_id", where=path)),
                    question=str(wanted(row, "question", where=path)),
                    answers=tuple(list(options)[number : number + 1]),
                    images=(f"{name}.mp4",),
                    options=options,
                    facts={name: row.get(name) for name in ("area", "reasoning")},
                )
            )
    return items


def read_perception_answers(path: Path) -> list[Answer] | None:
    """What the benchmark's challenge takes: by video, its questions with the number of the chosen option."""
    loaded = read_json(path) if suffix_of(path) == ".json" and path.is_file() else None
    if not isinstance(loaded, dict) or not loaded or not all(isinstance(each, list) for each in loaded.values()):
        return None
    rows = [(video, row) for video, several in loaded.items() for row in several]
    if not all(isinstance(row, dict) and row.keys() >= {"id", "answer_id"} for _, row in rows):
        return None
    return [Answer(f"{video}-{row['id']}", ascii_uppercase[int(row["answer_id"])]) for video, row in rows]


def _options(item: Item, mark: str) -> str:
    return "".join(f"{mark.format(letter)} {text}\n" for letter, text in item.options.items())


def _videomme_prompt(item: Item) -> str:
    return (
        "Select the best answer to the following multiple-choice question based on the video. Respond with only the "
        f"letter (A, B, C, or D) of the correct option.\n{item.question}\n{_options(item, '{}.')}"
    )


def _mvbench_prompt(item: Item) -> str:
    asked = f"Question: {item.question}\nOptions:\n{_options(item, '({})')}"
    return f"{asked}Answer the question using a single word or phrase."


def _lettered_prompt(item: Item) -> str:
    """MotionBench's questions bring their options in their text, PhysGameBench's beside it."""
    asked = f"Question: {item.question}\nOptions:\n{_options(item, '({})')}" if item.options else f"{item.question}\n"
    return f"{asked}Respond with only the letter choice (A, B, C, or D) of the correct option.\n"


def _letter(item: Item, text: str, variant: str) -> float:
    if not item.options:
        return choice_or_text(item, text, variant)
    return float(leading_or_said(item, text) in item.answers)


def _motionbench(item: Item, text: str, variant: str) -> float:
    if variant == "letter":
        return _letter(item, text, variant)
    return float(motionbench_letter(text) in item.answers)


def _videomme_score(items: Sequence[Item], texts: Sequence[str], variant: str) -> Scores:
    """Accuracy over all questions; and over those with a letter, which is what its own program prints."""
    find = leading_or_said if variant == "letter" else _first_capital
    said = [find(item, text) for item, text in zip(items, texts, strict=True)]
    worth = [float(letter in item.answers) for item, letter in zip(items, said, strict=True)]
    answered = [value for value, letter in zip(worth, said, strict=True) if letter is not None]
    return Scores(
        metrics={"accuracy": 100 * mean(worth), "of answered": 100 * mean(answered)},
        items=worth,
        groups={name: grouped(items, worth, name) for name in ("duration", "task")},
    )


def _first_capital(item: Item, text: str) -> str | None:
    del item
    return first_capital(text.strip())


def leading_or_said(item: Item, text: str) -> str | None:
    """The letter that an answer begins with, or that MMMU's program finds in it."""
    return leading_letter(text, item.options) or mmmu_choice(text, item.options)


def _mvbench(item: Item, text: str, variant: str) -> float:
    if variant == "letter":
        return _letter(item, text, variant)
    return float(any(mvbench_correct(text, letter, item.options.get(letter, "")) for letter in item.answers))


def _videomme_fields(item: Item, answer: str) -> dict[str, Any]:
    """The benchmark's own row of one question, with the answer where its program looks for it."""
    asked: dict[str, Any] = {
        "question_id": item.id,
        "question": item.question,
        "answer": "".join(item.answers),
        "response": answer,
    }
    asked["options"] = [f"{letter}. {text}" for letter, text in item.options.items()]
    row = {"video_id": item.facts.get("video"), "duration": item.facts.get("duration")}
    return row | {"questions": [asked | {"task_type": item.facts.get("task")}]}


_MMMU_LETTERS = "MMMU's official program for its letters (1,800 answers); the benchmark's own was not at hand"


def _task(
    name: str,
    title: str,
    *,
    groups: tuple[str, ...],
    reader: Callable[[Path], list[Item]],
    prompt: Callable[[Item], str],
    oracle: str,
    rule: Callable[[Item, str, str], float] = _letter,
    variants: tuple[str, ...] = ("published",),
    version: str = "1",
    fields: Callable[[Item, str], Mapping[str, Any]] = no_fields,
    own_answers: Callable[[Path], list[Answer] | None] = no_form,
) -> Task:
    return Task(
        name=name,
        title=title,
        metric="accuracy, percent",
        reader=reader,
        prompt=prompt,
        score=mean_score(rule, groups=groups),
        variants=variants,
        oracle=oracle,
        version=version,
        columns=("response", "output"),
        fields=fields,
        own_answers=own_answers,
    )


VIDEOMME = Task(
    name="videomme",
    title="Video-MME (Fu et al. 2024)",
    metric="accuracy, percent",
    reader=read_videomme,
    prompt=_videomme_prompt,
    score=_videomme_score,
    variants=("published", "letter"),
    oracle="the letters that its own program finds in 91 made answers, all equal",
    version="2",
    columns=("response",),
    fields=_videomme_fields,
)
MVBENCH = Task(
    name="mvbench",
    title="MVBench (Li et al. 2024)",
    metric="accuracy, percent",
    reader=read_mvbench,
    prompt=_mvbench_prompt,
    score=mean_score(_mvbench, groups=("task_type",)),
    variants=("published", "letter"),
    oracle="its own program on 364 made answers and options: equal but for blank ones, which it takes for right",
    version="2",
    columns=("response",),
    fields=kept_fields("task_type"),
)
MOTIONBENCH = _task(
    "motionbench",
    "MotionBench (Hong et al. 2025)",
    groups=("question_type", "video_type"),
    reader=read_choices,
    prompt=_lettered_prompt,
    rule=_motionbench,
    variants=("published", "letter"),
    version="2",
    oracle="its own program's letters of 400 made answers, all equal; and its accuracy over them",
)
PHYSGAME = _task(
    "physgame",
    "PhysGameBench (Cao et al. 2024)",
    groups=("class", "subclass"),
    reader=read_choices,
    prompt=_lettered_prompt,
    rule=_mvbench,
    variants=("published", "letter"),
    version="2",
    oracle="its own program on 400 made answers: equal but for blank ones, which it takes for right",
    fields=kept_fields("class", "subclass"),
)
PERCEPTION_TEST = _task(
    "perception-test",
    "Perception Test (Patraucean et al. 2023)",
    groups=("area", "reasoning"),
    reader=read_perception_test,
    prompt=_lettered_prompt,
    oracle=_MMMU_LETTERS,
    own_answers=read_perception_answers,
)
