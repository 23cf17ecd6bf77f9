"""Penn Treebank tokens as the COCO caption evaluation makes them, without Java.

The rules were found by giving text to the official tool (PTBTokenizer of Stanford CoreNLP 3.4.1 with
``-preserveLines -lowerCase``, which pycocoevalcap calls) and looking at what came back; no line of it
was read. Tokens are made first and lower-cased after; whether a period belongs to an abbreviation may
hang on the word after it, and that may stand in the next caption.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

COCO_PUNCTUATION = frozenset(
    ("''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";")
)
"""What the COCO evaluation leaves out. Tokens are lower-case by then, so ``-lrb-`` and its kin stay, as there."""

# Abbreviations that keep their period. Those of the first table get a second one where a sentence may end.
_MAY_END = (
    "al ala apr ariz assn aug bhd bldg blvd bros calif co colo conn corp cos ct dak dec esq est etc ext feb fla fri ga "
    "inc ind intl jan jr jul jun kan kans ky ltd mar md mich minn mo mon mont neb nev nov oct okla penn plc pte pty rd "
    "rt sep sept seq sq sr sys tel tenn thu thurs tue tues univ va vt wed wis wisc wyo"
)
_NEVER_ENDS = (
    "adj adm adv alex assoc atty attys ave brig capt cf cie cmdr col comdr cpl dept det dr drs elec ens ft gen gov "
    "govs hon insp jos lieut lt maj messrs mfg mme mr mrs ms msgr mt mtg natl pfc ph pres prof profs pvt rep reps rev "
    "sen sens sfc sgt spc st ste supt supts treas vs wm"
)
_MAY_END_CAPITALISED = "Ark Az Del Ill La Mass Miss Ore Pa Tex Wash"
_BEFORE_NUMBERS = "art ca fig figs no nos op pp prop"
# Words that show that the sentence before them has ended, after "W." or "U.S.".
_STARTERS = (
    "A About According Additionally After An As At But Earlier He Her Here However If In It Its Last Many More Now "
    "Once One Other Our She Since So Some Such That The Their Then There These They This We What When While Yet You"
)


def _any(words: str) -> str:
    return "|".join(words.split())


_SPACE = r"[ \t\n\xa0]+"
_SENTENCE = rf"(?={_SPACE}(?:[A-Z]|</?[A-Za-z])|[ \n]*\Z)"
_STARTER = rf"(?={_SPACE}(?:{_any(_STARTERS)})\b)"
_LETTER = r"[^\W\d_]"
_ALNUM = r"[^\W_]"
_MARK = "['’]"

# One alternative a kind of token; of those that match, the longest counts, and of equal ones the first.
_KINDS: Sequence[tuple[str, str]] = (
    ("word", rf"{_LETTER}{_ALNUM}*(?:[.!?]{_LETTER}{_ALNUM}*)*"),
    ("word", rf"\d+{_ALNUM}*(?!\.\d)"),
    ("word", rf"{_LETTER}{_ALNUM}*\.(?=[,;:])"),
    ("word", rf"(?:[dol]{_MARK}(?={_LETTER}))?{_ALNUM}+(?:[-_]{_ALNUM}+)+"),
    ("word", r"[a-z0-9]+(?:-[a-z]+)*(?:/[a-z0-9]+(?:-[a-z]+)*){1,2}"),
    ("word", r"\d+(?:[.,]\d+)*-\d+"),
    ("word", r"(?-i:[A-Z]+(?:&[A-Z]+)+|\b[a-z]&[a-z]\b(?!&))|(?-i:[A-Z]+)\$"),
    ("word", rf"[dol]{_MARK}{_LETTER}{_ALNUM}+"),
    ("word", r"qu'est\b|ma'am\b|c'mon\b|e'er\b|ne'er\b|li'l\b|s'mores\b|ev'ry\b|nat'l\b|ol'|'n'|[ldjy]'(?![sdm]\b)"),
    ("word", r"'(?:em|til|till|cause|n)(?![^\W_])|'\d\d(?:s(?![^\W_])|(?= ))"),
    ("number", r"[-+]?(?:\d*(?:[.,:]\d+)+|\d+(?:[.,:][-+]\d+)?)"),
    ("number", r"(?:\d+[ \xa0])?\d{1,4}/\d{1,4}(?![\d/])"),
    ("number", r"\(\d{3}\)[ ]?\d{3}-\d{4}"),
    ("acronym", rf"(?:{_LETTER}\.)+{_LETTER}(?:\.(?!{_LETTER}))?(?:-{_ALNUM}+)*"),
    ("letter", rf"{_LETTER}\.(?!{_LETTER})"),
    ("word", rf"(?:{_any(_NEVER_ENDS)})\.(?!{_ALNUM})|co\.(?= ltd\b)"),
    ("may-end", r"ph\.d\."),
    ("may-end", rf"(?:{_any(_MAY_END)})\.(?!{_ALNUM})|(?-i:{_any(_MAY_END_CAPITALISED)})\.(?!{_ALNUM})"),
    ("word", rf"(?:{_any(_BEFORE_NUMBERS)})\.(?=[ ]?\d)"),
    ("word", r"(?:https?://|www\.)[^\s\"<>|()]*[^\s\"<>|().,;:?!'-]|[\w.+-]+@[\w-]+(?:\.[\w-]+)*"),
    ("word", r"(?:[a-z0-9][a-z0-9-]*\.)+(?:com|net|org|edu|gov|mil)(?:/[^\s\"<>|()]*[^\s\"<>|().,;:?!'-])?"),
    ("word", r"@[a-z_]\w*|\#[a-z]+|(?-i:[A-Z]\+\+|[A-Z]\#)|\^_\^|\\\*"),
    ("word", r"</?[a-z](?:\"[^\"\n]*\"|[^<>()/\n\"])*/?>"),
    ("smiley", r"[:;=]-?[()dp](?![a-z0-9])|:--?[()]"),
    ("word", r"[?!]+"),
    ("dots", r"\.{3,5}|\.(?:[ ]\.){2,4}|…|‥"),
    ("word", r"-{5,}"),
    ("dash", r"-{2,4}|[–—]|\x96|\x97"),
    ("word", r"_+|\#+|\*+"),
)
_PATTERNS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KINDS)
_PLAIN = re.compile(r"[A-Za-z]{2,}(?=[ \n])")
_GAP = re.compile(r"[ \t\xa0\r\f\v\u2000-\u200a\u3000]+")
_NEGATION = re.compile(rf"({_LETTER}+?)(?=n{_MARK}t(?!{_ALNUM}))", re.IGNORECASE)
_CLITIC = re.compile(rf"n{_MARK}t(?!{_ALNUM})|{_MARK}(?:s|m|d|re|ve|ll)(?!{_ALNUM})", re.IGNORECASE)
_SPLIT_WORDS = {
    "cannot": ("can", "not"), "gonna": ("gon", "na"), "gotta": ("got", "ta"), "wanna": ("wan", "na"),
    "gimme": ("gim", "me"), "lemme": ("lem", "me"),
}  # fmt: skip
_IT = re.compile(rf"{_MARK}t(?=(?:is|was)\b)", re.IGNORECASE)
_STARTS_SENTENCE = re.compile(_SENTENCE)
_STARTS_WITH_STARTER = re.compile(_STARTER)
_OPENS_SINGLE = re.compile(rf"{_LETTER}(?:{_ALNUM}|')")
_OPENS_DOUBLE = re.compile(r"[^\W_]|\$")

_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_OTHERS = {"’": "'", "£": "#", "€": "$", "¢": "cents", "–": "--", "—": "--"}
_FOLDED = str.maketrans(
    {
        "‘": "`", "“": "``", "”": "''", "½": "1/2", "¼": "1/4", "¾": "3/4", "⅓": "1/3", "⅔": "2/3",
        "\u00ad": None, "\u200b": None, "\u200c": None, "\u200d": None, "\ufeff": None, "\ufe0f": None,
    }
)  # fmt: skip
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&nbsp;": " "}
_ENTITY = re.compile("|".join(_ENTITIES))
_NEWLINES = re.compile(r"[\n\r\x0b\x0c\x85\u2028\u2029]")


def treebank_tokens(captions: Iterable[str]) -> list[list[str]]:
    """Lower-case tokens of each caption, punctuation included.

    The captions are read as lines of one text, as the official tool does: a period at the end of one may be part of
    an abbreviation or not, which hangs on the beginning of the next.
    """
    text = "\n".join(_NEWLINES.sub(" ", caption) for caption in captions)
    return [[]] if not text else _scan(_folded(text))


def caption_tokens(captions: Iterable[str]) -> list[list[str]]:
    """`treebank_tokens` without `COCO_PUNCTUATION`: the words that COCO's caption scores compare."""
    return [[token for token in tokens if token not in COCO_PUNCTUATION] for tokens in treebank_tokens(captions)]


def _folded(text: str) -> str:
    if text.isascii() and "&" not in text:
        return text
    return _ASTRAL.sub(" ", _ENTITY.sub(lambda found: _ENTITIES[found[0]], text)).translate(_FOLDED)


def _scan(text: str) -> list[list[str]]:
    lines: list[list[str]] = [[]]
    tokens = lines[-1]
    at, end = 0, len(text)
    while at < end:
        character = text[at]
        if character == "\n":
            tokens = []
            lines.append(tokens)
            at += 1
            continue
        gap = _GAP.match(text, at)
        if gap:
            at = gap.end()
            continue
        plain = _PLAIN.match(text, at)  # by far the most; the same as below, in a tenth of the time
        if plain and plain[0].lower() not in _SPLIT_WORDS:
            tokens.append(plain[0].lower())
            at = plain.end()
            continue
        at = _one(text, at, tokens)
    return lines


def _one(text: str, at: int, tokens: list[str]) -> int:
    """Append the token, or the tokens, at a place. Returns the place after them."""
    fixed = _CLITIC.match(text, at) or _IT.match(text, at)
    if fixed:
        tokens.append(fixed[0].lower().replace("’", "'"))
        return fixed.end()
    negated = _NEGATION.match(text, at)
    if negated:
        tokens.append(negated[0].lower())
        return negated.end()
    kind, stop = "", at
    for each, pattern in _PATTERNS:
        found = pattern.match(text, at)
        if found and found.end() > stop:
            kind, stop = each, found.end()
    if stop > at:
        return _known(kind, text, at, stop, tokens)
    tokens.append(_single(text, at))
    return at + (2 if text[at : at + 2] in ("``", "''") else 1)


def _known(kind: str, text: str, at: int, stop: int, tokens: list[str]) -> int:
    token = text[at:stop].lower()
    if kind in ("dots", "dash"):
        tokens.append("..." if kind == "dots" else "--")
    elif token in _SPLIT_WORDS:
        tokens.extend(_SPLIT_WORDS[token])
    elif kind in ("smiley", "number") and ("(" in token or ")" in token):
        tokens.append("".join(_BRACKETS.get(each, each) for each in token).replace(" ", "\xa0"))
    elif kind == "letter" and _STARTS_WITH_STARTER.match(text, stop):
        tokens.extend((token[:-1], "."))
    else:
        tokens.append(token.replace(" ", "\xa0"))
        if token[-1] == "." and (
            (kind == "may-end" and _STARTS_SENTENCE.match(text, stop))
            or (kind == "acronym" and _STARTS_WITH_STARTER.match(text, stop))
        ):
            tokens.append(".")
    return stop


def _single(text: str, at: int) -> str:
    """The token of a character that begins no word."""
    character = text[at]
    if character == '"':
        return "``" if _OPENS_DOUBLE.match(text, at + 1) else "''"
    if text[at : at + 2] in ("``", "''"):
        return text[at : at + 2]
    if character == "'":
        return "`" if _OPENS_SINGLE.match(text, at + 1) else "'"
    return _BRACKETS.get(character) or _OTHERS.get(character, character.lower())
