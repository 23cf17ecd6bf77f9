"""The whole way, from pictures to a scored model and a report: run by ``make demo``.

Each step is a command that a user would type; it is printed before it runs. Everything is left in ``demo-run/``.

``--small`` takes a part of the data and of the steps, for a look in two minutes. ``--seed`` is of weights and of the
order of data.
``--held-out`` trains on nine tenths of the training part and scores the last tenth in place of the test part: this is
how the settings were chosen.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from demo_commands import Commands, print_scores, score, title
from demo_data import MissingPackageError, questions_of, write_blind_answers, write_test_data, write_training_data
from demo_model import write_language_model, write_tower

RECIPES = Path(__file__).resolve().parent / "demo"
TASK = "easy-vqa"
PUBLISHED_CNN = 93.8  # its author's network for this data set, eight epochs: github.com/vzhou842/easy-VQA-keras


class Size(NamedTuple):
    """How much of everything."""

    images: int
    shard_samples: int
    pretrain_steps: int
    sft_steps: int
    save_steps: int
    questions: int | None


WHOLE = Size(images=4_000, shard_samples=500, pretrain_steps=3_000, sft_steps=2_000, save_steps=100, questions=None)
SMALL = Size(images=400, shard_samples=50, pretrain_steps=300, sft_steps=250, save_steps=20, questions=500)


def main() -> None:
    """A table of contents of a training run."""
    options = _options()
    size = SMALL if options.small else WHOLE
    folder, begin = options.folder, time.perf_counter()
    shutil.rmtree(folder, ignore_errors=True)
    go = Commands(folder)
    seed = f"seed={options.seed}"

    title("Data: easy-VQA, as LLaVA's JSON and images")
    write_training_data(folder / "data", images=size.images, held_out=size.images // 10 if options.held_out else 0)
    if not options.held_out:
        write_test_data(folder / "data", questions=size.questions)
    write_blind_answers(folder / "data")
    for stage in ("pretrain", "sft"):
        shards = f"--out sets/{stage} --max-count {size.shard_samples} --split-ratio 1,0,0"
        go(f"omniloom convert llava data/{stage}.json --images data/images {shards} --no-progress")
    go("omniloom prepare sets/sft --split-ratio 15,1,0 --sample-type CrudeWebdataset --force-overwrite --json")
    go("omniloom lint sets/sft")

    title("Weights: a small tower and a small language model become one model")
    write_tower(folder / "models/tower", seed=options.seed)
    write_language_model(folder / "models/language", words=_words(), seed=options.seed + 1)
    combine = "omniloom weights combine --vision-model models/tower --language-model models/language --out models/llava"
    go(f"{combine} --feature-layers -1 --pixel-shuffle --reduction-factor 4 --projector-norm layer")

    title("Stage 1: captions")
    for name in ("pretrain.yaml", "sft.yaml"):
        shutil.copyfile(RECIPES / name, folder / name)
    go(f"omniloom train pretrain.yaml --dry-run --set loop.steps={size.pretrain_steps}")
    # Steps of 256 tokens are too small for two threads to share, beside a process that loads data.
    go(f"OMP_NUM_THREADS=1 omniloom train pretrain.yaml --set {seed} --set loop.steps={size.pretrain_steps}")

    title("Stage 2: questions. The run is killed on its way, and goes on")
    saving = f"checkpoint.every_steps={size.save_steps}"
    train = f"omniloom train sft.yaml --set {seed} --set loop.steps={size.sft_steps} --set {saving}"
    before = go.killed(train, run="runs/sft", saved_step=size.save_steps, more_steps=20)
    go(train)
    compare(before, folder / "runs/sft/steps.jsonl", saved_step=size.save_steps)

    title("Answers, and what they are worth")
    generate = (
        f"omniloom generate --task {TASK} --input-image-path data/test_images --max-new-tokens 4 --batch-size 256"
    )
    for name in ("test", "swapped"):
        go(f"{generate} --model runs/sft --gt-path data/{name}.json --output-path answers/{name}.jsonl")
    scores = {
        label: score(go, TASK, answers, truth="data/test.json", model=label)
        for label, answers in (
            ("runs/sft", "answers/test.jsonl"),
            ("runs/sft, shown another image", "answers/swapped.jsonl"),
            ("no model: usual answer to each question", "data/question_only.jsonl"),
            ("no model: most frequent answer", "data/majority.jsonl"),
        )
    }

    title("The model in Hugging Face's form")
    go("omniloom weights convert runs/sft exported --to hf")
    go("omniloom weights diff runs/sft exported")
    some_image = min((folder / "data/test_images").iterdir()).name
    go(f"omniloom ask exported data/test_images/{some_image} 'what shape is in the image?' --template chatml")

    title("Report")
    results = " ".join(f"--result results/{n}.json" for n in range(1, len(scores) + 1))
    items = "--items results/items-1.jsonl --images data/test_images"
    go(f"omniloom report runs/pretrain runs/sft {results} {items} --title 'Demo: easy-VQA' --out report.html")

    part = "the last tenth of train" if options.held_out else "test"
    scores["published CNN of the data set's author"] = PUBLISHED_CNN
    print_scores(scores, heading=f"Accuracy on the questions of {part}, percent")
    print(f"\nDone in {time.perf_counter() - begin:.0f} s. Open {(folder / 'report.html').resolve()}")


def compare(before: list[str], log: Path, *, saved_step: int) -> None:
    """Hold the steps that the killed run took after a save against the same steps of the run that went on from it."""
    after = {row["step"]: row["loss"] for row in map(json.loads, log.read_text().splitlines())}
    lost = [row for row in map(json.loads, before) if row["step"] > saved_step]
    differing = [row["step"] for row in lost if row["loss"] != after[row["step"]]]
    if differing or not lost:
        raise SystemExit(f"after the restart the losses of the steps {differing} are not what they were")
    print(
        f"\nKilled after step {len(before)}, gone on from a checkpoint of step {saved_step} or a later one: the losses "
        f"of the steps from there are equal to the last bit to those before the kill ({len(lost)} steps compared)."
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("DEMO_RUN", "demo-run")))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _words() -> set[str]:
    """The words of the training part, for the tokenizer."""
    texts = [text for each in questions_of("train") for text in (each.text, each.answer)]
    return {word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower())} | {"a"}


if __name__ == "__main__":
    try:
        main()
    except MissingPackageError as error:
        raise SystemExit(str(error)) from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"the command ended with exit code {error.returncode}") from error
