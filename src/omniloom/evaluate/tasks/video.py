"""Multiple choices about videos: VideoMME, MVBench, MotionBench, PhysGameBench, PerceptionTest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from omniloom.errors import ConfigError
from omniloom.evaluate.reading import letters, read_rows, wanted
from omniloom.evaluate.scores.choices import mmmu_choice
from omniloom.evaluate.task import Item, Task, mean_score
from omniloom.evaluate.tasks.answers import choice_or_text


def read_videomme(path: Path) -> list[Item]:
    """Videos with several questions each, all of which are read; or rows of one question."""
    items = []
    for video in read_rows(path):
        for row in video.get("questions", [video]):
            options = {str(text)[0]: str(text)[2:].strip() for text in wanted(row, "choices", "options", where=path)}
            items.append(
                Item(
                    id=str(wanted(row, "question_id", where=path)),
                    question=str(wanted(row, "question", where=path)),
                    answers=(str(wanted(row, "answer", where=path)).strip("(). ")[:1],),
                    images=(f"{wanted(video, 'videoID', 'video_id', where=path)}.mp4",),
                    options=options,
                    facts={
                        "duration": video.get("duration_category") or video.get("duration"),
                        "task": row.get("task_type"),
                    },
                )
            )
    return items


def read_mvbench(path: Path) -> list[Item]:
    """A folder of one JSON file a kind of question: rows of video, question, candidates and answer."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"{path}: no *.json in this folder.")
    items = []
    for file in files:
        for number, row in enumerate(read_rows(file)):
            options = letters(wanted(row, "candidates", where=file))
            right = str(wanted(row, "answer", where=file))
            items.append(
                Item(
                    id=f"{file.stem}-{number}",
                    question=str(wanted(row, "question", where=file)),
                    answers=tuple(letter for letter, text in options.items() if text == right),
                    images=(str(wanted(row, "video", where=file)),),
                    options=options,
                    facts={"task_type": file.stem, "start": row.get("start"), "end": row.get("end")},
                )
            )
    return items


def read_choices(path: Path) -> list[Item]:
    """Rows of MotionBench (``qa``, a list of one) or PhysGameBench (``options`` by letter)."""
    items = []
    for row in read_rows(path):
        asked = row["qa"][0] if row.get("qa") else row
        name = str(wanted(asked, "uid", "question_id", "id", where=path))
        items.append(
            Item(
                id=name,
                question=str(wanted(asked, "question", where=path)),
                answers=(str(wanted(asked, "answer", where=path)),),
                images=(str(row.get("video_path", f"{name}.mp4")),),
                options=letters(asked.get("options")),
                facts={"class": row.get("class_anno"), "subclass": row.get("subclass_anno")},
            )
        )
    return items


def _prompt(item: Item) -> str:
    options = "".join(f"({letter}) {text}\n" for letter, text in item.options.items())
    return f"{item.question}\n{options}Respond with only the letter (A, B, C, or D) of the correct option."


def _letter(item: Item, text: str, variant: str) -> float:
    if not item.options:
        return choice_or_text(item, text, variant)
    return float(mmmu_choice(text, item.options) in item.answers)


def _task(name: str, title: str, *, groups: tuple[str, ...], reader: Callable[[Path], list[Item]]) -> Task:
    return Task(
        name=name,
        title=title,
        metric="accuracy, percent",
        read=reader,
        prompt=_prompt,
        score=mean_score(_letter, groups=groups),
        oracle="",
        columns=("response",),
    )


VIDEOMME = _task("videomme", "Video-MME (Fu et al. 2024)", groups=("duration", "task"), reader=read_videomme)
MVBENCH = _task("mvbench", "MVBench (Li et al. 2024)", groups=("task_type",), reader=read_mvbench)
MOTIONBENCH = _task("motionbench", "MotionBench (Hong et al. 2025)", groups=(), reader=read_choices)
PHYSGAME = _task("physgame", "PhysGameBench (Cao et al. 2024)", groups=("class", "subclass"), reader=read_choices)
PERCEPTION_TEST = _task("perception-test", "Perception Test (Patraucean et al. 2023)", groups=(), reader=read_choices)
