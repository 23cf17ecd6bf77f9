"""Samples as the model sees them, in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.columns import Columns
from rich.console import Console
from rich.padding import Padding
from rich.style import Style
from rich.text import Text

from omniloom.tools.inspect_samples import SeenSample, TokenSpan
from omniloom.tools.preview_terminal import draw, printable

STYLES = {
    "learned": (Style(color="black", bgcolor="green3"), Style(color="black", bgcolor="chartreuse2")),
    "learned-special": (Style(color="white", bgcolor="dark_green"),) * 2,
    "ignored": (Style(), Style(bgcolor="grey19")),
    "special": (Style(color="magenta"),) * 2,
    "image": (Style(color="white", bgcolor="blue"),) * 2,
}
LEARNED = ("learned", "learned-special")
OPEN, CLOSE = "⟦", "⟧"
"""Around what is learned, where there are no colours: in a file, or down a pipe."""

TILE_COLUMNS = 20
MAX_TILES = 13
BAR_CELLS = 36
_BAR_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")


def print_legend(console: Console) -> None:
    """What the colours mean."""
    names = {
        "learned": "learned",
        "learned-special": "end of turn, learned",
        "ignored": "read only",
        "special": "special token",
        "image": "image",
    }
    if console.color_system is None:
        console.print(f"what is learned stands between {OPEN} and {CLOSE}")
        return
    console.print(Text("  ").join(Text(f" {word} ", STYLES[kind][0]) for kind, word in names.items()))


def print_seen(samples: Iterable[SeenSample], *, console: Console) -> None:
    """Print samples one below the other: tokens, then tiles."""
    for sample in samples:
        console.rule(Text(printable(f"{sample.row}  {sample.key}"), style="bold"), align="left")
        if sample.fault:
            console.print(Text(printable(sample.fault), style="red"))
            continue
        images = f", {len(sample.tiles)} images" if sample.tiles else ""
        console.print(
            Text(f"{sample.leaf}: {sample.tokens:,} tokens, {sample.learned:,} of them learned{images}", style="dim")
        )
        console.print(tokens_as_text(sample.spans, colour=console.color_system is not None))
        for number, (tiles, words) in enumerate(zip(sample.tiles, sample.grids, strict=True)):
            console.print(Text(f"image {number + 1}: {words}", style="cyan"))
            drawn = [
                draw(tile, columns=TILE_COLUMNS, colour=console.color_system is not None) for tile in tiles[:MAX_TILES]
            ]
            console.print(Padding(Columns(drawn, padding=(0, 1)), (0, 0, 0, 2)))


def tokens_as_text(spans: Sequence[TokenSpan], *, colour: bool = True) -> Text:
    """Tokens with their colours; neighbours alternate in shade, so that borders are seen. Without colours, brackets."""
    if not colour:
        runs = groupby(spans, key=lambda span: span.kind in LEARNED)
        texts = ((learned, "".join(map(_shown, run))) for learned, run in runs)
        return Text("".join(f"{OPEN}{text}{CLOSE}" if learned else text for learned, text in texts))
    text = Text()
    for number, span in enumerate(spans):
        text.append(_shown(span), STYLES[span.kind][number % 2])
    return text


def _shown(span: TokenSpan) -> str:
    if span.kind == "image":
        return f"[{span.text}: {span.tokens:,} tokens]"
    return printable(span.text).replace("\n", "⏎\n")


def print_packs(packs: Sequence[Sequence[SeenSample]], *, capacity: int, console: Console) -> None:
    """Print packs as bars, and how full they are."""
    total = 0
    for number, pack in enumerate(packs):
        used = sum(sample.tokens for sample in pack)
        total += used
        bar = Text()
        for place, sample in enumerate(pack):
            cells = max(1, round(sample.tokens * BAR_CELLS / capacity))
            bar.append("█" * cells, _BAR_COLOURS[place % len(_BAR_COLOURS)])
        bar.append("░" * max(0, BAR_CELLS - len(bar)), "dim")
        bar.append(f" {used:,} of {capacity:,}: {len(pack)} samples")
        console.print(Text(f"pack {number + 1:3} ", style="bold") + bar)
    if packs:
        console.print(f"{total / (capacity * len(packs)):.1%} of {len(packs)} packs is used.")
