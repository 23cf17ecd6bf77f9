"""A training step of a small LLaVA beside transformers' own: useful tokens a second of one core."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from harness import HERE, Context, Program, ProgramError, alternate, row, say, show_row, values

NAME = "train_step"
BARS = {1: 2.0, 2: 1.7}
SIDES = {"omniloom": "omniloom", "transformers": "transformers", "transformers, grouped": "grouped"}
NANO_SIDES = {"omniloom": "nano_omniloom", "nanoVLM": "nanovlm"}
STAGES = {1: "stage 1: the projector alone is trained", 2: "stage 2: everything is trained"}
CHECKOUT = "OMNILOOM_NANOVLM"


def run(context: Context) -> dict[str, Any]:
    """Measure both stages; see the title for what."""
    tables = _tables(context, "LLaVA", SIDES, bars={stage: {"transformers": bar} for stage, bar in BARS.items()})
    if CHECKOUT in os.environ:
        tables += _tables(context, "nanoVLM's model", NANO_SIDES, bars={})
    else:
        say(f"  nanoVLM is left out: {CHECKOUT} names no checkout of it")
    return {
        "title": "Training step",
        "settings": "width 256, 4 + 4 layers, 8,192 words, float32, 8 samples with an image of 256 tokens each, a "
        "padded batch of 512 tokens filled to 65 %; forward, backward and AdamW, best step, processor time of one "
        "thread; all sides begin and end with the same loss. Grouped: samples of like length in twos, each padded to "
        "the longer, and only labelled rows scored. nanoVLM: its own model (a tower of SigLIP's kind, tied words) and "
        "loss, padded, since its packing lets samples see each other; omniloom has that model's weights there",
        "tables": tables,
    }


def _tables(
    context: Context, model: str, sides: Mapping[str, str], *, bars: Mapping[int, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """Speed and memory of one model."""
    speed, memory = [], []
    for stage, case in STAGES.items():
        steps = 2 if context.quick else 4
        programs = [_program(context, script, side=side, stage=stage, steps=steps) for side, script in sides.items()]
        readings = alternate(programs, rounds=context.pairs, watch_memory=True)
        _same_problem(readings)
        speed.append(row(case, values(readings, "tokens_per_second"), bars=bars.get(stage)))
        show_row(speed[-1], "useful tokens/s")
        peaks = {side: [each / 1e6 for each in ones] for side, ones in values(readings, "peak_pss_bytes").items()}
        memory.append(row(case, peaks))
        show_row(memory[-1], "MB")
    return [
        {"title": model, "unit": "useful tokens/s", "better": "higher", "rows": speed},
        {"title": f"{model}, memory", "unit": "peak of the process, MB", "better": "lower", "rows": memory},
    ]


def _program(context: Context, script: str, *, side: str, stage: int, steps: int) -> Program:
    path = str(HERE / "programs" / f"train_step_{script}.py")
    return Program(side, (str(context.python), path, f"--stage={stage}", f"--steps={steps}"))


def _same_problem(readings: dict[str, list[dict[str, Any]]]) -> None:
    """All sides must have the same loss at the start and after the last step, or they did not do the same work."""
    for name in ("first_loss", "last_loss"):
        losses = [reading[name] for ones in readings.values() for reading in ones]
        if max(losses) - min(losses) > 1e-3:
            raise ProgramError(f"the sides do not train the same problem: {name} {losses}")
