"""Drawing samples in characters and as HTML: sizes, escaping, no colour, damaged parts."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser

import pytest
from PIL import Image
from rich.console import Console

from omniloom.tools.preview_page import page
from omniloom.tools.preview_samples import PreviewSample, chosen_rows, describe_part
from omniloom.tools.preview_terminal import SHADES, draw, print_samples


def _png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def _sample(**parts: bytes) -> PreviewSample:
    shown = tuple(describe_part(name.replace("_", "."), data, thumbnail_pixels=32) for name, data in parts.items())
    return PreviewSample(7, "some/key", "shard-000000.tar", 1024, 4096, shown, "")


def test_parts_are_known_by_content_and_name() -> None:
    picture = _png(Image.new("RGB", (40, 20), (10, 20, 30)))
    assert describe_part("jpg", picture, thumbnail_pixels=16).shape == "40 x 20 png"
    assert describe_part("jpg", picture, thumbnail_pixels=16).picture.size == (16, 8)  # type: ignore[union-attr]
    assert describe_part("json", b'{"a": 1}', thumbnail_pixels=16).value == {"a": 1}
    assert describe_part("json", b"{", thumbnail_pixels=16).text.startswith("no JSON: ")
    assert describe_part("x.txt", "é".encode(), thumbnail_pixels=16).text == "é"
    assert describe_part("npy", b"\x93NUMPY", thumbnail_pixels=16).text == "93 4e 55 4d 50 59"
    assert describe_part("txt", b"x" * 5000, thumbnail_pixels=16).text.endswith("(5,000 characters)")


def test_pictures_that_cannot_be_drawn_say_why() -> None:
    sound = _png(Image.effect_noise((200, 200), 90))
    assert "cannot be decoded" in describe_part("png", sound[:2000], thumbnail_pixels=16).text
    header = _png(Image.new("1", (20_000, 20_000)))
    assert describe_part("png", header, thumbnail_pixels=16).text in {"too large to draw"} or "decoded" in (
        describe_part("png", header, thumbnail_pixels=16).text
    )


def test_transparent_pixels_become_white() -> None:
    image = Image.new("RGBA", (2, 1), (10, 20, 30, 0))
    image.putpixel((1, 0), (10, 20, 30, 255))
    drawn = describe_part("png", _png(image), thumbnail_pixels=8).picture
    assert drawn is not None
    assert [drawn.getpixel((x, 0)) for x in range(2)] == [(255, 255, 255), (10, 20, 30)]


def test_a_character_holds_two_pixels_in_colour() -> None:
    image = Image.new("RGB", (3, 4), (255, 0, 0))
    image.putpixel((0, 1), (0, 0, 255))
    text = draw(image, columns=10, colour=True)
    assert text.plain == "▀▀▀\n▀▀▀"
    assert str(text.spans[0].style) == "#ff0000 on #0000ff"


def test_without_colour_brightness_is_a_character() -> None:
    image = Image.new("L", (10, 2))
    image.putdata([round(x * 255 / 9) for x in range(10)] * 2)
    assert draw(image.convert("RGB"), columns=10, colour=False).plain == SHADES


@pytest.mark.parametrize("columns", [1, 7, 64])
def test_width_is_kept(columns: int) -> None:
    text = draw(Image.new("RGB", (100, 33)), columns=columns, colour=False)
    assert {len(line) for line in text.plain.split("\n")} == {columns}


def test_terminal_output_names_everything_and_moves_no_cursor() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=80, color_system=None)
    sample = _sample(
        jpg=_png(Image.new("RGB", (8, 8))), txt=b"evil \x1b[2J text", json=b'[{"from": "human", "value": "Hi"}]'
    )
    assert print_samples([sample], console=console) == 1
    text = stream.getvalue()
    for piece in ("some/key", "shard-000000.tar", "bytes 1,024 to 4,096", "8 x 8 png", '"value": "Hi"', "evil"):
        assert piece in text
    assert "\x1b" not in text


def test_colour_terminal_gets_true_colour() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=80, color_system="truecolor", force_terminal=True)
    print_samples([_sample(jpg=_png(Image.new("RGB", (2, 2), (1, 2, 3))))], console=console)
    assert "38;2;1;2;3" in stream.getvalue()


class _Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_is_self_contained_and_escaped() -> None:
    attack = '<script>alert("x")</script>'
    turns = json.dumps([{"from": "human", "value": attack}, {"from": "gpt", "value": "A & B"}]).encode()
    samples = [
        _sample(jpg=_png(Image.new("RGB", (8, 8), (255, 0, 0))), json=turns, txt=attack.encode()),
        PreviewSample(8, attack, attack, 0, 1, (), f"cannot be read: {attack}"),
    ]
    text = page(samples, title=attack, facts=[(attack, attack)])
    outline = _Outline()
    outline.feed(text)
    assert "script" not in outline.tags
    assert outline.tags.count("article") == 2
    assert len(outline.sources) == 1
    assert outline.sources[0].startswith("data:image/jpeg;base64,")
    assert "A &amp; B" in text
    assert "some/key" in text
    assert "shard-000000.tar, bytes 1,024 to 4,096" in text
    assert not re.search(r"https?://", text)


@pytest.mark.parametrize(
    ("samples", "count", "start", "spread", "rows"),
    [
        (10, 3, 0, False, [0, 1, 2]),
        (10, 3, 8, False, [8, 9]),
        (10, 3, 10, False, []),
        (10, 3, 0, True, [0, 4, 9]),
        (10, 4, 4, True, [4, 5, 7, 9]),
        (2, 5, 0, True, [0, 1]),
        (9, 1, 0, True, [0]),
    ],
)
def test_chosen_rows(samples: int, count: int, start: int, spread: bool, rows: list[int]) -> None:
    assert chosen_rows(samples, count=count, start=start, spread=spread) == rows
