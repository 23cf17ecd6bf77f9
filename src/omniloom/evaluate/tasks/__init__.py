"""The benchmarks: a page for each family, and one table of all."""

from __future__ import annotations

from difflib import get_close_matches

from omniloom.errors import ConfigError
from omniloom.evaluate.task import Task
from omniloom.evaluate.tasks.answers import (
    AI2D,
    CHARTQA,
    DOCVQA,
    INFOVQA,
    OCRBENCH,
    OK_VQA,
    REALWORLDQA,
    TEXTVQA,
    VQAV2,
)
from omniloom.evaluate.tasks.captions import COCO, FLICKR30K, NOCAPS, OWN
from omniloom.evaluate.tasks.documents import RD_TABLEBENCH
from omniloom.evaluate.tasks.easy_vqa import EASY_VQA
from omniloom.evaluate.tasks.mmmu import MMMU, MMMU_PRO
from omniloom.evaluate.tasks.ocrbench_v2 import OCRBENCH_V2
from omniloom.evaluate.tasks.others import INFERENCE
from omniloom.evaluate.tasks.reasoning import MATHVISTA, SCIENCEQA
from omniloom.evaluate.tasks.video import MOTIONBENCH, MVBENCH, PERCEPTION_TEST, PHYSGAME, VIDEOMME
from omniloom.evaluate.tasks.yes_no import MME, POPE

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        COCO, NOCAPS, FLICKR30K, OWN, MMMU, MMMU_PRO, VQAV2, OK_VQA, TEXTVQA, CHARTQA, AI2D, DOCVQA, INFOVQA, OCRBENCH,
        RD_TABLEBENCH, REALWORLDQA, MATHVISTA, SCIENCEQA, POPE, MME, VIDEOMME, MVBENCH, MOTIONBENCH, PHYSGAME,
        PERCEPTION_TEST, EASY_VQA, OCRBENCH_V2, INFERENCE,
    )
}  # fmt: skip

MEGATRON_NAMES = {
    "captioning": "coco-captions", "TextVQA": "textvqa", "VQAv2": "vqav2", "ChartQA": "chartqa", "MMMU": "mmmu",
    "OCRBench": "ocrbench", "MathVista": "mathvista", "AI2D": "ai2d", "InfoVQA": "infovqa", "SPDocVQA": "docvqa",
    "RealworldQA": "realworldqa", "VideoMME": "videomme", "MVBench": "mvbench", "MotionBench": "motionbench",
    "PhysGameBench": "physgame", "PerceptionTest": "perception-test", "RD_TableBench": "rd-tablebench",
    "OCRBench_v2": "ocrbench-v2",
}  # fmt: skip
"""Names of Megatron's example for the same tasks."""


def find_task(name: str) -> Task:
    """The task of a name, Megatron's names included; capitals, hyphens and underscores do not count.

    Raises:
        ConfigError: there is none; with the nearest names.
    """
    others = {**MEGATRON_NAMES, "vqa": "vqav2"}
    known = {plain_name(theirs): ours for theirs, ours in others.items()} | {plain_name(ours): ours for ours in TASKS}
    if plain_name(name) in known:
        return TASKS[known[plain_name(name)]]
    near = get_close_matches(name.lower(), TASKS, n=3, cutoff=0.5)
    raise ConfigError(f"there is no task {name!r}. {'Nearest' if near else 'Tasks'}: {', '.join(near or TASKS)}.")


def plain_name(name: str) -> str:
    """A name without capitals, hyphens and underscores."""
    return name.lower().replace("-", "").replace("_", "")
