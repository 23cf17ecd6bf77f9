"""Lengths of LLaVA-like samples, for the packing benchmark and its test.

`python benchmarks/length_histograms.py` writes them anew. The composition of the instruction mix (thousands of samples)
is the published one of LLaVA-1.5; 576 tokens an image are CLIP ViT-L/14 at 336 pixels. The lengths of the texts are a
model (log-normal, with the medians and spreads below), since the texts themselves are not here. Samples are cut at
2,048 tokens, as LLaVA-1.5 does.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "golden" / "lengths"
SEED = 20_231_005
IMAGE_TOKENS, LONGEST = 576, 2_048

# name: (samples in thousands, images in each, median tokens of the text, spread of its logarithm)
MIXES: dict[str, dict[str, tuple[int, int, int, float]]] = {
    "pretrain": {"LCS captions": (558, 1, 24, 0.40)},
    "sft": {
        "LLaVA instructions": (158, 1, 260, 0.45),
        "ShareGPT": (40, 0, 900, 0.80),
        "VQAv2": (83, 1, 130, 0.50),
        "GQA": (72, 1, 160, 0.50),
        "OKVQA": (9, 1, 60, 0.30),
        "OCRVQA": (80, 1, 130, 0.35),
        "A-OKVQA": (66, 1, 75, 0.25),
        "TextCaps": (22, 1, 45, 0.25),
        "RefCOCO": (48, 1, 250, 0.40),
        "Visual Genome": (86, 1, 330, 0.50),
    },
}
SAMPLES_PER_THOUSAND = 50


def histogram(mix: str) -> dict[str, Any]:
    """How many samples of a mix have each length, by number of images."""
    draw = random.Random(SEED)
    counts: dict[int, Counter[int]] = {0: Counter(), 1: Counter()}
    for thousands, images, median, spread in MIXES[mix].values():
        for _ in range(thousands * SAMPLES_PER_THOUSAND):
            text = max(8, round(draw.lognormvariate(math.log(median), spread)))
            counts[images][min(LONGEST, IMAGE_TOKENS * images + text)] += 1
    return {
        "about": f"{mix}: modelled lengths in tokens, see benchmarks/length_histograms.py; seed {SEED}",
        "counts": {str(images): {str(n): c for n, c in sorted(lengths.items())} for images, lengths in counts.items()},
    }


def lengths(mix: str, count: int, *, seed: int) -> Iterator[tuple[int, int]]:
    """(tokens, images) of so many samples, drawn from the committed histogram."""
    counts = json.loads((FOLDER / f"{mix}.json").read_text())["counts"]
    kinds = [(int(tokens), int(images)) for images, by_length in counts.items() for tokens in by_length]
    weights = [number for by_length in counts.values() for number in by_length.values()]
    yield from random.Random(seed).choices(kinds, weights, k=count)


def main() -> None:
    """Write the histograms."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for mix in MIXES:
        (FOLDER / f"{mix}.json").write_text(json.dumps(histogram(mix), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
