"""Samples drawn in a terminal: two pixels a character in true colour, shades of characters without colour."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from PIL import Image
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.text import Text

from omniloom.tools.preview_samples import Part, PreviewSample

SHADES = " .:-=+*#%@"
MAX_COLUMNS = 64
_HALF_BLOCK = "▀"


def print_samples(samples: Iterable[PreviewSample], *, console: Console) -> int:
    """Print samples one below the other; returns how many."""
    count = 0
    for sample in samples:
        console.rule(Text(printable(f"{sample.row}  {sample.key}"), style="bold"), align="left")
        console.print(Text(printable(sample.where), style="dim"))
        if sample.fault:
            console.print(Text(sample.fault, style="red"))
        for name, value in sample.fields.items():
            console.print(Text.assemble((name, "green"), " = ", printable(value)))
        for part in sample.parts:
            console.print(_part(part, console))
        count += 1
    return count


def _part(part: Part, console: Console) -> RenderableType:
    head = Text.assemble((part.name, "cyan"), (f"  {part.shape or part.kind}, {part.size_bytes:,} bytes", "dim"))
    body: RenderableType = Text(printable(part.text))
    if part.picture is not None:
        body = draw(part.picture, columns=min(MAX_COLUMNS, console.width - 2), colour=console.color_system is not None)
    return Group(head, Padding(body, (0, 0, 0, 2)))


def draw(picture: Image.Image, *, columns: int, colour: bool) -> Text:
    """Turn a picture into characters.

    Args:
        picture: an RGB image.
        columns: width in characters at most; small pictures are not enlarged.
        colour: half blocks, two pixels a character; otherwise one of ten shades a character.
    """
    width = max(1, min(columns, picture.width))
    rows = max(1, round(picture.height * width / picture.width / 2))
    text = Text(no_wrap=True)
    if not colour:
        grey = np.asarray(picture.resize((width, rows)).convert("L")).astype(int)
        lines = ("".join(SHADES[value * len(SHADES) // 256] for value in line) for line in grey)
        return text.append("\n".join(lines))
    pixels = np.asarray(picture.resize((width, rows * 2))).tolist()
    for row in range(rows):
        for upper, lower in zip(pixels[2 * row], pixels[2 * row + 1], strict=True):
            text.append(_HALF_BLOCK, Style(color=_rgb(upper), bgcolor=_rgb(lower)))
        text.append("\n" if row < rows - 1 else "")
    return text


def _rgb(pixel: list[int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*pixel)


def printable(text: str) -> str:
    """Text of strangers without what moves the cursor or changes the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)
