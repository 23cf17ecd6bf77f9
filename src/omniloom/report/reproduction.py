"""What would reproduce the published numbers: commands, hardware and hours, for a page and for the README."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from omniloom.report.anchors import ANCHORS, Anchor

DEVICES = 8
PEAK_FLOPS = 989e12  # of an H100, bfloat16, as its maker publishes it
TRAINING_SHARE = 0.4
ANSWERING_SHARE = 0.1  # answers of few words, one token after the other
_HOUR_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class Training:
    """A run of a recipe.

    Attributes:
        recipe: its file.
        samples: that it learns from, those that come several times included.
        operations: floating-point operations of all of it, forward and backward.
    """

    recipe: str
    samples: int
    operations: float

    @property
    def hours(self) -> float:
        """On `DEVICES` devices, at `TRAINING_SHARE` of their peak."""
        return self.operations / (DEVICES * PEAK_FLOPS * TRAINING_SHARE) / _HOUR_SECONDS


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark that is answered and scored.

    Attributes:
        task: as `omniloom evaluate` has it.
        get: commands that bring it.
        truth: what is given as the benchmark.
        flags: further ones.
        items: of it.
        operations: of the answer to one of them.
    """

    task: str
    get: tuple[str, ...]
    truth: str
    flags: str = ""
    items: int
    operations: float

    @property
    def hours(self) -> float:
        """On `DEVICES` devices, at `ANSWERING_SHARE` of their peak."""
        return self.items * self.operations / (DEVICES * PEAK_FLOPS * ANSWERING_SHARE) / _HOUR_SECONDS


@dataclass(frozen=True, kw_only=True)
class Way:
    """From nothing to the scores of a model.

    Attributes:
        model: name for people.
        by: models of `ANCHORS` whose numbers it would give.
        parts: commands that bring its weights and make one model of them.
        stages: its training; of several, each begins with what the one before has left.
        scored: benchmarks, each with the number of the stage after which it is answered.
    """

    model: str
    by: tuple[str, ...]
    parts: tuple[str, ...]
    stages: tuple[Training, ...]
    scored: tuple[tuple[int, Benchmark], ...]

    def anchors(self) -> list[Anchor]:
        """The published numbers."""
        return [anchor for anchor in ANCHORS if anchor.by.model in self.by]


def _fetched(name: str) -> str:
    return f"omniloom fetch {name} --out downloads/{name}"


def _benchmark(task: str, items: int, operations: float, *, flags: str = "") -> Benchmark:
    return Benchmark(
        task=task, get=(_fetched(task),), truth=f"downloads/{task}", flags=flags, items=items, operations=operations
    )


DATA = (
    (
        _fetched("llava-pretrain"),
        "omniloom convert llava downloads/llava-pretrain/blip_laion_cc_sbu_558k.json "
        "--images downloads/llava-pretrain/images.zip --split-ratio 99,1,0 --out data/llava-pretrain",
    ),
    (
        _fetched("llava-instruct"),
        "omniloom convert llava downloads/llava-instruct/llava_v1_5_mix665k.json --images images "
        "--split-ratio 99,1,0 --out data/llava-instruct",
    ),
)
"""Commands that make the data of each stage."""

_CAPTIONS = Benchmark(
    task="coco-captions",
    get=(_fetched("karpathy"), _fetched("coco-val2014"), "unzip -q downloads/coco-val2014/val2014.zip -d downloads"),
    truth="downloads/karpathy/coco_karpathy_test.json",
    flags=" --input-image-path downloads --variant megatron --out-seq-length 12",
    items=5_000,
    operations=1.0e13,
)
_LLAVA_7B, _LLAVA_13B = 9.6e12, 1.8e13  # operations of an answer to 700 tokens

WAYS = (
    Way(
        model="LLaVA-1.5 7B",
        by=("LLaVA-1.5 7B",),
        parts=(
            _fetched("vicuna-7b-v1.5"),
            _fetched("clip-vit-large-patch14-336"),
            "omniloom weights combine --language-model downloads/vicuna-7b-v1.5 "
            "--vision-model downloads/clip-vit-large-patch14-336 --out models/llava-1.5-7b",
        ),
        stages=(
            Training(recipe="recipes/llava-1.5/pretrain-7b.yaml", samples=2_181 * 256, operations=9.4e18),
            Training(recipe="recipes/llava-1.5/sft-7b.yaml", samples=5_198 * 128, operations=2.7e19),
        ),
        scored=(
            (2, _benchmark("textvqa", 5_000, _LLAVA_7B)),
            (2, _benchmark("pope", 9_000, _LLAVA_7B)),
            (2, _benchmark("scienceqa", 4_241, _LLAVA_7B)),
            (2, _benchmark("vqav2", 214_354, _LLAVA_7B)),
        ),
    ),
    Way(
        model="LLaVA-1.5 13B",
        by=("LLaVA-1.5 13B",),
        parts=(
            _fetched("vicuna-13b-v1.5"),
            _fetched("clip-vit-large-patch14-336"),
            "omniloom weights combine --language-model downloads/vicuna-13b-v1.5 "
            "--vision-model downloads/clip-vit-large-patch14-336 --out models/llava-1.5-13b",
        ),
        stages=(
            Training(recipe="recipes/llava-1.5/pretrain-13b.yaml", samples=2_181 * 256, operations=1.8e19),
            Training(recipe="recipes/llava-1.5/sft-13b.yaml", samples=5_198 * 128, operations=5.2e19),
        ),
        scored=((2, _benchmark("mmmu", 900, _LLAVA_13B, flags=" --variant published")),),
    ),
    Way(
        model="Mistral-7B with CLIP, Megatron-LM's numbers",
        by=(
            "Mistral-7B with CLIP-L/14 at 336, pretrained only",
            "Mistral-7B with CLIP-L/14 at 336, fine-tuned",
        ),
        parts=(
            _fetched("mistral-7b-instruct-v0.3"),
            _fetched("clip-vit-large-patch14-336"),
            "omniloom weights combine --projector megatron --language-model downloads/mistral-7b-instruct-v0.3 "
            "--vision-model downloads/clip-vit-large-patch14-336 --out models/mistral-7b-clip-l-336",
        ),
        stages=(
            Training(recipe="recipes/mistral-7b-clip/pretrain.yaml", samples=20_000 * 256, operations=9.3e19),
            Training(recipe="recipes/mistral-7b-clip/sft.yaml", samples=20_000 * 128, operations=1.1e20),
        ),
        scored=((1, _CAPTIONS), (2, _benchmark("mmmu", 900, 1.0e13, flags=" --variant megatron"))),
    ),
)

NOTES = (
    f"Hours are computed, not measured: operations of the model, as torch's own counter counts them, at "
    f"{TRAINING_SHARE:.0%} of the peak of {DEVICES} H100 of 80 GB ({PEAK_FLOPS / 1e12:.0f} TFLOP/s in bfloat16 each), "
    "with 620 tokens a sample in the first stage, 20 of them learned, and 1,000 in the second, 250 of them learned. "
    f"Answers are counted at {ANSWERING_SHARE:.0%} of that peak. Fetching and converting 27 GB of captioned images, "
    "weights and benchmarks come on top.",
    "The second stage's images are those of COCO, GQA, OCR-VQA, TextVQA and Visual Genome, laid out under `images/` as "
    "LLaVA's instructions say; `omniloom fetch` does not bring them.",
    "The recipes with Megatron-LM's numbers stop after 230 minutes, as its scripts do; the same command goes on.",
    "LLaVA-1.5's TextVQA number was asked with the words of an OCR program in each prompt; here they are not.",
    "VQA v2's published number is one of test-dev, whose answers are secret: the command scores the validation part.",
)


def commands_of(way: Way) -> Iterator[str]:
    """All commands of a way, in order."""
    yield from way.parts
    for number, stage in enumerate(way.stages, 1):
        yield from DATA[number - 1]
        yield f"torchrun --nproc-per-node {DEVICES} -m omniloom train {stage.recipe}"
        for after, benchmark in way.scored:
            if after == number:
                yield from benchmark.get
                yield (
                    f"torchrun --nproc-per-node {DEVICES} -m omniloom evaluate {benchmark.task} "
                    f"--model {_run_of(stage)} --ground-truth {benchmark.truth}{benchmark.flags} "
                    f"--answers-to answers/{benchmark.task}.jsonl --output results/{benchmark.task}.json"
                )


def hours_of(way: Way) -> tuple[float, ...]:
    """Hours of each stage of training, and of all answers."""
    return (*(stage.hours for stage in way.stages), sum(benchmark.hours for _, benchmark in way.scored))


def as_html() -> str:
    """For a page: hours, and the commands of each way to be opened."""
    rows = "".join(
        f"<tr><td>{escape(way.model)}</td>"
        + "".join(f'<td class="n">{_shown(hours)}</td>' for hours in hours_of(way))
        + "</tr>"
        for way in WAYS
    )
    table = (
        '<div class="scroll"><table><tr><th>on 8 H100, computed</th><th class="n">stage 1</th>'
        f'<th class="n">stage 2</th><th class="n">answers</th></tr>{rows}</table></div>'
    )
    ways = "".join(
        f"<details><summary>{escape(way.model)}: the commands</summary>"
        f'<pre class="commands">{escape(chr(10).join(commands_of(way)))}</pre></details>'
        for way in WAYS
    )
    notes = "".join(f'<p class="small">{escape(note.replace("`", ""))}</p>' for note in NOTES)
    return f"<h3>What would reproduce them</h3>{table}{ways}{notes}"


def as_markdown() -> str:
    """The same for the README."""
    lines = ["| published | model | score | here |", "|---|---|---|---|"]
    for way in WAYS:
        for anchor in way.anchors():
            about = "about " if anchor.about else ""
            lines.append(f"| {anchor.shown} | {anchor.by.model} | {about}{anchor.score:g} | not reproduced here |")
    lines += ["", "| on 8 H100, computed | stage 1 | stage 2 | answers |", "|---|---|---|---|"]
    lines += [f"| {way.model} | {' | '.join(map(_shown, hours_of(way)))} |" for way in WAYS]
    for way in WAYS:
        lines += ["", f"<details><summary>{way.model}: the commands</summary>", "", "```console"]
        lines += [f"$ {command}" for command in commands_of(way)] + ["```", "", "</details>"]
    return "\n".join([*lines, "", *(f"- {note}" for note in NOTES), ""])


def _shown(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{max(1, round(60 * hours))} min"


def _run_of(stage: Training) -> str:
    """The folder of a recipe's run: ``runs/<folder's or file's name>``, as the recipes say."""
    folder, _, file = stage.recipe.removeprefix("recipes/").removesuffix(".yaml").rpartition("/")
    kind, _, size = file.partition("-")
    return f"runs/{folder}-{size}-{kind}" if size else f"runs/{folder}-{kind}"
