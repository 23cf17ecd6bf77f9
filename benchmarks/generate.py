"""Greedy answers of a small LLaVA beside transformers' generate, left-padded and one by one: tokens a second."""

from __future__ import annotations

from typing import Any

from harness import HERE, Context, Program, ProgramError, alternate, row, show_row, values

NAME = "generate"
CASES: dict[str, tuple[str, dict[str, float]]] = {
    "padded": ("a batch beside a left-padded one", {"transformers": 1.2}),
    "shared": ("the same, four questions an image", {"transformers": 1.2}),
    "one": ("a batch beside one by one", {"transformers": 3.0}),
    "shared-one": ("the same, four questions an image, beside one by one", {"transformers": 3.0}),
    "alone": ("one by one beside one by one", {}),
}


def run(context: Context) -> dict[str, Any]:
    """Measure both ways of transformers; see the title for what."""
    tokens = 4 if context.quick else 128
    rows = []
    for mode, (case, bars) in CASES.items():
        programs = [_program(context, side, mode=mode, tokens=tokens) for side in ("omniloom", "transformers")]
        readings = alternate(programs, rounds=context.pairs)
        answers = {reading["answers"] for ones in readings.values() for reading in ones}
        if len(answers) != 1:
            raise ProgramError(f"the sides do not give the same answers to {mode}: {sorted(answers)}")
        rows.append(row(case, values(readings, "tokens_per_second"), bars=bars))
        show_row(rows[-1], "new tokens/s")
    return {
        "title": "Generation",
        "unit": "new tokens/s",
        "better": "higher",
        "settings": "a decoder of width 512, 8 layers, 8 heads of which 4 share keys and values, 8,192 words; a tower "
        "of width 256, 4 layers; float32; 16 questions of 12 to 194 words with an image of 256 tokens each, "
        f"{tokens} greedy words an answer, prefill and vision tower included, best of two runs in a process, processor "
        "time of one thread; all sides give the same ids",
        "rows": rows,
    }


def _program(context: Context, side: str, *, mode: str, tokens: int) -> Program:
    script = str(HERE / "programs" / f"generate_{side}.py")
    return Program(side, (str(context.python), script, f"--mode={mode}", f"--tokens={tokens}"))
