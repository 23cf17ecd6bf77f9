"""A training step of a small LLaVA beside transformers' own: useful tokens a second of one core."""

from __future__ import annotations

from typing import Any

from harness import HERE, Context, Program, ProgramError, alternate, row, show_row, values

NAME = "train_step"
BARS = {1: 2.0, 2: 1.7}
SIDES = {"omniloom": "omniloom", "transformers": "transformers", "transformers, grouped": "grouped"}
STAGES = {1: "stage 1: the projector alone is trained", 2: "stage 2: everything is trained"}


def run(context: Context) -> dict[str, Any]:
    """Measure both stages; see the title for what."""
    rows = []
    for stage, case in STAGES.items():
        steps = 2 if context.quick else 4
        programs = [_program(context, side, stage=stage, steps=steps) for side in SIDES]
        readings = alternate(programs, rounds=context.pairs)
        _same_problem(readings)
        rows.append(row(case, values(readings, "tokens_per_second"), bars={"transformers": BARS[stage]}))
        show_row(rows[-1], "useful tokens/s")
    return {
        "title": "Training step",
        "unit": "useful tokens/s",
        "better": "higher",
        "settings": "width 256, 4 + 4 layers, 8,192 words, float32, 8 samples with an image of 256 tokens each, a "
        "padded batch of 512 tokens filled to 65 %; forward, backward and AdamW, best step, processor time of one "
        "thread; all sides begin and end with the same loss. Grouped: samples of like length in twos, each padded to "
        "the longer, and only labelled rows scored",
        "rows": rows,
    }


def _program(context: Context, side: str, *, stage: int, steps: int) -> Program:
    script = str(HERE / "programs" / f"train_step_{SIDES[side]}.py")
    return Program(side, (str(context.python), script, f"--stage={stage}", f"--steps={steps}"))


def _same_problem(readings: dict[str, list[dict[str, Any]]]) -> None:
    """All sides must have the same loss at the start and after the last step, or they did not do the same work."""
    for name in ("first_loss", "last_loss"):
        losses = [reading[name] for ones in readings.values() for reading in ones]
        if max(losses) - min(losses) > 1e-3:
            raise ProgramError(f"the sides do not train the same problem: {name} {losses}")
