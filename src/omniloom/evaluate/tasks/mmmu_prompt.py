"""Prompts of MMMU in the form that LLaVA-1.5's settings give, with what Megatron's example makes of image tags."""

from __future__ import annotations

import re

from omniloom.evaluate.task import Item

_TAG = "<image 1>"
_OTHERS = re.compile(r"<image [2-7]>")


def prompt(item: Item) -> str:
    """The question with its options. The image of a question stands before it, and its tag becomes words.

    A question with several images keeps its tags: they say which of the images, which stand before it, is meant.
    """
    if item.options:
        options = "\n".join(f"({letter}) {text}" for letter, text in item.options.items())
        asked = f"{item.question}\n\n{options}\n\nAnswer with the option's letter from the given choices directly."
    else:
        asked = f"{item.question}\n\nAnswer the question using a single word or phrase."
    return _OTHERS.sub("", without_tag(asked)) if len(item.images) < 2 else asked


def without_tag(text: str) -> str:
    """The text with words in place of ``<image 1>``; of the rules below, the first that fits counts."""
    before, tag, after = text.partition(_TAG)
    if not tag:
        return text
    rules = (
        (not before and not after, "Answer the question in the image."),
        (before.endswith((":", ": ")), f"{before.rpartition(':')[0]} in the image. {after}"),
        (before.endswith((".", ". ")), f"{before.strip()} {after.strip()}"),
        (not before and after.startswith(" "), _at_start(after)),
        (not before, after),
        (text.endswith(f"{_TAG}?"), f"{before}the image?"),
        (not after and before.endswith(("?", "? ", "\n")), before),
        (before.endswith(" "), text.replace(_TAG, "the image")),
        (before.endswith("()"), text.replace(f"(){_TAG}", "")),
        (before.endswith("(") and after.startswith(")"), text.replace(f"({_TAG})", "")),
        (after.startswith("."), text.replace(f"{_TAG}.", ". ")),
    )
    return next((made for fits, made in rules if fits), text.replace(_TAG, ". "))


def _at_start(after: str) -> str:
    rest = after[1:]
    return rest if rest[:1].isupper() else f"The image{after}"
