"""Samples as the model sees them, as one HTML page that needs nothing else: no scripts, all text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from PIL import Image

from omniloom.tools.inspect_samples import SeenSample, TokenSpan
from omniloom.tools.preview_page import data_uri

THUMBNAIL_PIXELS = 112
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; } h2 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 1rem 0; }
dt { opacity: .65; } dd { margin: 0; font-variant-numeric: tabular-nums; }
article { border: 1px solid var(--line); border-radius: 8px; padding: .8rem; margin: 1rem 0; }
.where { opacity: .65; font-size: 12px; margin: .1rem 0; } .fault { color: #c33; }
.tokens { white-space: pre-wrap; overflow-wrap: anywhere; font: 12px/1.9 ui-monospace, monospace; }
.tokens span, .legend span { border-radius: 3px; padding: .1rem 0; box-shadow: inset 0 0 0 .5px var(--line); }
.legend span { padding: .1rem .4rem; margin-right: .5rem; font-size: 12px; }
.learned { background: #3c6a; } .learned-special { background: #093; color: #fff; }
.special { color: #b4a; } .image { background: #36c; color: #fff; }
figure { margin: .6rem 0; } figcaption { font-size: 12px; opacity: .75; }
figure img { border-radius: 3px; margin: 1px; vertical-align: top; }
.bar { display: flex; height: 1.6rem; border: 1px solid var(--line); border-radius: 4px; overflow: hidden; }
.bar a { display: block; overflow: hidden; white-space: nowrap; font-size: 11px; line-height: 1.6rem;
  padding: 0 .2rem; box-sizing: border-box; border-right: 1px solid var(--line); background: #48c6;
  color: inherit; text-decoration: none; }
.bar a:nth-child(even) { background: #c846; }
"""
_LEGEND = (
    ("learned", "learned"),
    ("learned-special", "end of turn, learned"),
    ("ignored", "read only"),
    ("special", "special token"),
    ("image", "features of an image"),
)


def inspect_page(
    samples: Iterable[SeenSample],
    packs: Sequence[Sequence[SeenSample]],
    *,
    capacity: int,
    title: str,
    facts: Sequence[tuple[str, str]],
) -> str:
    """Make the page.

    Args:
        samples: what it shows.
        packs: the packs that are made of them; empty without packing.
        capacity: length of a pack in tokens.
        title: its heading.
        facts: (name, value) pairs below it.
    """
    cards = "\n".join(_card(sample) for sample in samples)
    table = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    legend = "".join(f'<span class="{kind}">{word}</span>' for kind, word in _LEGEND)
    bars = "".join(_bar(pack, capacity) for pack in packs)
    shown = f"<section><h2>Packs of {capacity:,} tokens</h2>{bars}</section>" if packs else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<dl>{table}</dl>\n<p class="legend">{legend}</p>\n{shown}\n'
        f"<main>\n{cards}\n</main>\n</body>\n</html>\n"
    )


def _card(sample: SeenSample) -> str:
    head = f'<h2 id="{_anchor(sample)}">{escape(sample.key)}</h2>'
    if sample.fault:
        return f'<article>{head}<p class="fault">{escape(sample.fault)}</p></article>'
    where = f"{sample.leaf}, row {sample.row}: {sample.tokens:,} tokens, {sample.learned:,} learned"
    tokens = "".join(_token(span) for span in sample.spans)
    figures = "".join(
        f"<figure>{''.join(_tile(tile) for tile in tiles)}<figcaption>image {number + 1}: {escape(words)}</figcaption>"
        "</figure>"
        for number, (tiles, words) in enumerate(zip(sample.tiles, sample.grids, strict=True))
    )
    return f'<article>{head}<p class="where">{escape(where)}</p><div class="tokens">{tokens}</div>{figures}</article>'


def _token(span: TokenSpan) -> str:
    if span.kind == "image":
        return f'<span class="image">[{escape(span.text)}: {span.tokens:,} tokens]</span>'
    return f'<span class="{span.kind}">{escape(span.text).replace(chr(10), "⏎" + chr(10))}</span>'


def _tile(tile: Image.Image) -> str:
    small = tile.copy()
    small.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    return f'<img alt="" src="{data_uri(small)}">'


def _bar(pack: Sequence[SeenSample], capacity: int) -> str:
    used = sum(sample.tokens for sample in pack)
    parts = "".join(
        f'<a href="#{_anchor(sample)}" title="{escape(sample.key, quote=True)}: {sample.tokens:,}" '
        f'style="width:{100 * sample.tokens / capacity:.2f}%">{escape(sample.key)}</a>'
        for sample in pack
    )
    return f'<p class="where">{used:,} of {capacity:,} tokens</p><div class="bar">{parts}</div>'


def _anchor(sample: SeenSample) -> str:
    return escape(f"{sample.leaf}-{sample.row}-{sample.key}", quote=True)
