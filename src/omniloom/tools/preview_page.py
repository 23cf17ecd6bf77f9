"""Samples as one HTML page that needs nothing else: thumbnails inside, all text escaped, no scripts."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from PIL import Image

from omniloom.tools.preview_samples import Part, PreviewSample

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1400px; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; } p { margin: .2rem 0; } .where, .size { opacity: .65; font-size: 12px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 1rem 0; }
dt { opacity: .65; } dd { margin: 0; font-variant-numeric: tabular-nums; }
article dl { font-size: 12px; margin: .6rem 0 0; border-top: 1px solid var(--line); padding-top: .5rem; }
article dd { overflow-wrap: anywhere; white-space: pre-wrap; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)); gap: 1rem; margin-top: 1.5rem; }
article { border: 1px solid var(--line); border-radius: 8px; padding: .8rem; overflow: hidden; }
h2 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; } .where { overflow-wrap: anywhere; }
figure { margin: .6rem 0; } img { max-width: 100%; min-width: 40%; border-radius: 4px; image-rendering: auto; }
pre, .turn { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); border-radius: 6px; }
pre { padding: .5rem; margin: .3rem 0; max-height: 16rem; overflow: auto; font-size: 12px; }
.turn { padding: .35rem .6rem; margin: .3rem 0; } .gpt { margin-left: 1.2rem; }
.turn b { opacity: .65; font-weight: 600; }
.fault { color: #c33; }
"""


def page(samples: Iterable[PreviewSample], *, title: str, facts: Sequence[tuple[str, str]] = ()) -> str:
    """Make the page.

    Args:
        samples: what it shows.
        title: its heading.
        facts: (name, value) pairs above the grid.
    """
    cards = "\n".join(_card(sample) for sample in samples)
    table = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n<dl>{table}</dl>\n<main>\n{cards}\n</main>\n</body>\n</html>\n"
    )


def _card(sample: PreviewSample) -> str:
    where = sample.where
    parts = "".join(_part(part) for part in sorted(sample.parts, key=lambda part: part.kind != "image"))
    fault = f'<p class="fault">{escape(sample.fault)}</p>' if sample.fault else ""
    fields = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in sample.fields.items())
    head = f'<h2>{escape(sample.key)}</h2><p class="where">{escape(where)}</p>{fault}'
    return f"<article>{head}{parts}{f'<dl>{fields}</dl>' if fields else ''}</article>"


def _part(part: Part) -> str:
    size = f'<p class="size">{escape(part.name)}: {escape(part.shape or part.kind)}, {part.size_bytes:,} bytes</p>'
    if part.picture is not None:
        return f'<figure><img alt="{escape(part.name)}" src="{data_uri(part.picture)}"></figure>{size}'
    if _is_conversation(part.value):
        return "".join(_turn(turn) for turn in part.value) + size
    return f"<pre>{escape(part.text)}</pre>{size}"


def _turn(turn: dict[str, Any]) -> str:
    speaker = str(turn["from"])
    kind = "gpt" if speaker == "gpt" else "other"
    return f'<div class="turn {kind}"><b>{escape(speaker)}</b> {escape(str(turn["value"]))}</div>'


def _is_conversation(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(turn, dict) and "from" in turn and "value" in turn for turn in value)
    )


def data_uri(picture: Image.Image) -> str:
    """A picture as a ``data:`` URL."""
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"
