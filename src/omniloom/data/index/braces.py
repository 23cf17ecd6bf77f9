r"""Brace patterns such as ``data-{000..999}.tar``: expansion as in bash, and back.

``{a,b}`` lists alternatives, ``{1..3}``, ``{001..010}`` and ``{a..e}`` are ranges with an optional step ``{1..9..2}``.
Braces nest and multiply. Braces around something else stay as they are. A backslash takes the meaning from the
character after it.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product

from omniloom.errors import ConfigError

EXPANSION_LIMIT = 10_000_000
_NUMBERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?", re.ASCII)
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?(\d+))?", re.ASCII)
_ALPHABET = string.ascii_uppercase + string.ascii_lowercase
_DIGITS = re.compile(r"\d+", re.ASCII)
_ESCAPED = re.compile(r"\\(.)")


def expand_braces(pattern: str, *, escape: bool = True) -> list[str]:
    """All strings that a brace pattern stands for, in order.

    Args:
        pattern: the pattern; a text without braces stands for itself.
        escape: whether a backslash is an escape and left out of the result.

    Raises:
        ConfigError: a brace is not closed or was not opened, or there are more than ``EXPANSION_LIMIT`` results.
    """
    if "{" not in pattern and "}" not in pattern:
        return [_ESCAPED.sub(r"\1", pattern)] if escape and "\\" in pattern else [pattern]
    expanded = _expand(pattern, escape, pattern)
    return [_ESCAPED.sub(r"\1", text) for text in expanded] if escape and "\\" in pattern else expanded


def collapse_braces(names: Sequence[str]) -> list[str]:
    """Patterns that expand to ``names`` in the same order: neighbours that differ by +1 in one number become a range.

    A number keeps its width within a range. Names that hold braces or backslashes themselves are escaped.
    """
    collapsed: list[str] = []
    begin = 0
    pieces = [_split_numbers(name) for name in names]
    while begin < len(names):
        stop, slot = _run_end(pieces, begin)
        if stop - begin < 2:
            collapsed.append(_escape(names[begin]))
        else:
            texts, numbers = pieces[begin]
            last = pieces[stop - 1][1][slot]
            shown = [number if at != slot else f"{{{number}..{last}}}" for at, number in enumerate(numbers)]
            literals = [_escape(text) for text in texts]
            collapsed.append("".join(map("".join, zip(literals, [*shown, ""], strict=True))))
        begin = stop
    return collapsed


def _expand(pattern: str, escape: bool, whole: str) -> list[str]:
    factors: list[list[str]] = []
    literal = 0
    for begin, stop in _groups(pattern, escape, whole):
        factors.append([pattern[literal:begin]])
        inner = pattern[begin + 1 : stop - 1]
        options = _range(inner) or _alternatives(inner, escape, whole)
        factors.append(options if options is not None else [f"{{{text}}}" for text in _expand(inner, escape, whole)])
        literal = stop
    factors.append([pattern[literal:]])
    count = 1
    for factor in factors:
        count *= len(factor)
    if count > EXPANSION_LIMIT:
        raise ConfigError(
            f"the brace pattern {whole!r} stands for {count:,} names; expected at most {EXPANSION_LIMIT:,}. "
            "Check its ranges."
        )
    return list(map("".join, product(*factors)))


def _groups(pattern: str, escape: bool, whole: str) -> Iterator[tuple[int, int]]:
    """Begin and end of each outermost pair of braces."""
    depth = begin = position = 0
    while position < len(pattern):
        letter = pattern[position]
        if escape and letter == "\\":
            position += 2
            continue
        if letter == "{":
            begin = position if depth == 0 else begin
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                yield begin, position + 1
        position += 1
    if depth:
        raise ConfigError(f"the brace pattern {whole!r} has a brace without its partner. Write \\{{ for a plain brace.")


def _range(inner: str) -> list[str] | None:
    match = _NUMBERS.fullmatch(inner)
    if match:
        first, last = match[1], match[2]
        padded = any(text.lstrip("-").startswith("0") and text not in ("0", "-0") for text in (first, last))
        width = max(len(first), len(last)) if padded else 0
        numbers = _steps(int(first), int(last), match[3])
        if len(numbers) > EXPANSION_LIMIT:
            raise ConfigError(
                f"the brace range {{{inner}}} has {len(numbers):,} members; expected at most {EXPANSION_LIMIT:,}."
            )
        return [f"{number:0{width}d}" for number in numbers]
    match = _LETTERS.fullmatch(inner)
    if match:
        return [_ALPHABET[at] for at in _steps(_ALPHABET.index(match[1]), _ALPHABET.index(match[2]), match[3])]
    return None


def _steps(first: int, last: int, step: str | None) -> range:
    size = int(step or 1) or 1
    return range(first, last + 1, size) if first < last else range(first, last - 1, -size)


def _alternatives(inner: str, escape: bool, whole: str) -> list[str] | None:
    """The expansions of each alternative, or ``None`` when there is no comma outside inner braces."""
    cuts = list(_commas(inner, escape))
    if not cuts:
        return None
    borders = [-1, *cuts, len(inner)]
    options = [inner[begin + 1 : stop] for begin, stop in pairwise(borders)]
    return [text for option in options for text in _expand(option, escape, whole)]


def _commas(inner: str, escape: bool) -> Iterator[int]:
    depth = position = 0
    while position < len(inner):
        letter = inner[position]
        if escape and letter == "\\":
            position += 2
            continue
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            yield position
        position += 1


def _split_numbers(name: str) -> tuple[list[str], list[str]]:
    return _DIGITS.split(name), _DIGITS.findall(name)


def _run_end(pieces: Sequence[tuple[list[str], list[str]]], begin: int) -> tuple[int, int]:
    """End of the longest run of names from ``begin`` on that one range can stand for, and which number changes."""
    slot = -1
    stop = begin + 1
    while stop < len(pieces):
        changed = _counted_up(pieces[stop - 1], pieces[stop])
        if changed < 0 or slot not in (-1, changed):
            break
        slot = changed
        stop += 1
    return stop, slot


def _counted_up(before: tuple[list[str], list[str]], after: tuple[list[str], list[str]]) -> int:
    """Which number is one higher, all else equal; -1 when that is not how two names differ."""
    if before[0] != after[0]:
        return -1
    slots = [at for at, pair in enumerate(zip(before[1], after[1], strict=True)) if pair[0] != pair[1]]
    if len(slots) != 1:
        return -1
    old, new = before[1][slots[0]], after[1][slots[0]]
    return slots[0] if len(old) == len(new) and int(new) == int(old) + 1 else -1


def _escape(text: str) -> str:
    return re.sub(r"([\\{}])", r"\\\1", text) if any(letter in text for letter in "\\{}") else text


def expand_all(patterns: Iterable[str]) -> list[str]:
    """The expansions of several patterns, one after the other."""
    return [name for pattern in patterns for name in expand_braces(pattern)]
