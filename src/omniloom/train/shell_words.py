"""A shell script as words: what stands in it, cut as the shell would cut it. Nothing is run, and nothing expanded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from omniloom.errors import ConfigError

Kind = Literal["text", "variable", "arithmetic", "output"]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!]")
_BRACED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!])(\[[@*]\])?(?:(:?[-=?+])(.*))?", re.DOTALL)
_ARRAY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
SEPARATORS = (";;", "&&", "||", "\n", ";", "|", "&", "(", ")")


@dataclass(frozen=True)
class Piece:
    """A piece of a word.

    Attributes:
        kind: ``text``, a ``variable``, ``arithmetic``, or the ``output`` of something that would have to be run.
        text: itself; the variable's name; what is reckoned; what would be run.
        quoted: whether it stays one word whatever is in it.
        operator: of a variable in braces: ``-``, ``=``, ``?`` or ``+``, after a colon where an empty value is as none.
        other: what follows the operator.
    """

    kind: Kind
    text: str
    quoted: bool
    operator: str = ""
    other: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Word:
    """A word and where it begins.

    Attributes:
        pieces: that it is made of; none is an empty word in quotes.
        line: counted from 1.
        array: words in parentheses after ``NAME=``; the word is that ``NAME=``.
        separator: whether it is one of `SEPARATORS`.
    """

    pieces: tuple[Piece, ...]
    line: int
    array: tuple[Word, ...] | None = None
    separator: bool = False

    @property
    def plain(self) -> str:
        """Its text where nothing of it is quoted or to be filled in, else nothing."""
        whole = all(piece.kind == "text" and not piece.quoted for piece in self.pieces)
        return "".join(piece.text for piece in self.pieces) if whole else ""


def read_words(text: str, *, where: str) -> list[Word]:
    """The words of a script, separators among them.

    Raises:
        ConfigError: a quote or a parenthesis that does not end.
    """
    return _Reader(text.replace("\r\n", "\n"), where).words(end=None)


class _Reader:
    def __init__(self, text: str, where: str) -> None:
        self._text, self._where, self._at, self._line = text, where, 0, 1

    def words(self, *, end: str | None) -> list[Word]:
        """Words up to ``end``, or to the end of the text."""
        found: list[Word] = []
        begun = self._line
        while self._skip_blanks():
            separator = next((one for one in SEPARATORS if self._text.startswith(one, self._at)), None)
            if separator is not None and separator == end:
                self._forward(len(separator))
                return found
            if separator is not None:
                found.append(Word((Piece("text", separator, quoted=False),), self._line, separator=True))
                self._forward(len(separator))
                continue
            found.append(self._word())
        if end is not None:
            raise self._unended("(", begun)
        return found

    def _skip_blanks(self) -> bool:
        """Go to the next word or separator; false at the end."""
        while self._at < len(self._text):
            if self._text.startswith("\\\n", self._at):
                self._forward(2)
            elif self._text[self._at] in " \t":
                self._forward(1)
            elif self._text[self._at] == "#":  # a word cannot begin with it, so it is a comment
                while self._at < len(self._text) and self._text[self._at] != "\n":
                    self._forward(1)
            else:
                return True
        return False

    def _word(self, *, whole: bool = False) -> Word:
        """The word that begins here; with ``whole`` all the text is one."""
        line, pieces = self._line, []
        while self._at < len(self._text) and (whole or not self._ends_word()):
            character = self._text[self._at]
            if character == "'":
                pieces.append(Piece("text", self._until("'"), quoted=True))
            elif character == '"':
                pieces += self._in_double_quotes()
            elif character in "$`":
                pieces.append(self._filled_in(quoted=False))
            elif character == "\\":
                pieces.append(Piece("text", self._text[self._at + 1 : self._at + 2], quoted=True))
                self._forward(2)
            elif character == "&" or self._text.startswith(">&", self._at):  # of a redirection
                pieces.append(Piece("text", character, quoted=False))
                self._forward(2 if character == ">" else 1)
            else:
                pieces.append(Piece("text", character, quoted=False))
                self._forward(1)
            if self._text.startswith("(", self._at) and _ARRAY.fullmatch(Word(tuple(pieces), line).plain):
                self._forward(1)
                within = [one for one in self.words(end=")") if not one.separator]
                return Word(_joined(pieces), line, array=tuple(within))
        if pieces and self._text.startswith("()", self._at):  # of a function that is defined
            pieces.append(Piece("text", "()", quoted=False))
            self._forward(2)
        return Word(_joined(pieces), line)

    def _ends_word(self) -> bool:
        here = self._text[self._at]
        if here == "&" and self._text[self._at - 1] in "<>":
            return False
        return here in " \t\n;|&()" or self._text.startswith("\\\n", self._at)

    def _in_double_quotes(self) -> list[Piece]:
        begun, pieces = self._line, [Piece("text", "", quoted=True)]
        self._forward(1)
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == '"':
                self._forward(1)
                return pieces
            if character in "$`":
                pieces.append(self._filled_in(quoted=True))
            elif character == "\\" and self._text[self._at + 1 : self._at + 2] in ("\n", '"', "$", "`", "\\"):
                after = self._text[self._at + 1]
                pieces.append(Piece("text", "" if after == "\n" else after, quoted=True))
                self._forward(2)
            else:
                pieces.append(Piece("text", character, quoted=True))
                self._forward(1)
        raise self._unended('"', begun)

    def _filled_in(self, *, quoted: bool) -> Piece:
        """A variable, or the output of a command; at ``$`` or a backquote."""
        if self._text[self._at] == "`":
            return Piece("output", self._until("`").strip(), quoted)
        if self._text.startswith("$(", self._at):
            self._forward(1)
            within = self._balanced("(", ")").strip()
            if within[:1] == "(" and within[-1:] == ")":
                return Piece("arithmetic", within[1:-1].strip(), quoted)
            return Piece("output", within, quoted)
        self._forward(1)
        if self._text.startswith("{", self._at):
            return self._braced(self._balanced("{", "}"), quoted=quoted)
        name = _NAME.match(self._text, self._at)
        if name is None:
            return Piece("text", "$", quoted)
        self._forward(len(name[0]))
        return Piece("variable", name[0], quoted)

    def _braced(self, within: str, *, quoted: bool) -> Piece:
        match = _BRACED.fullmatch(within)
        if match is None:
            return Piece("output", f"${{{within}}}", quoted)
        other = _Reader(match[4] or "", self._where)._word(whole=True).pieces
        one_word = quoted or (bool(other) and all(piece.quoted for piece in other))
        return Piece("variable", match[1] + (match[2] or ""), one_word, match[3] or "", other)

    def _until(self, quote: str) -> str:
        begun, start = self._line, self._at + 1
        stop = self._text.find(quote, start)
        if stop < 0:
            raise self._unended(quote, begun)
        self._forward(stop + 1 - self._at)
        return self._text[start:stop]

    def _balanced(self, opening: str, closing: str) -> str:
        begun, start, depth = self._line, self._at + 1, 0
        for at in range(self._at, len(self._text)):
            depth += (self._text[at] == opening) - (self._text[at] == closing)
            if depth == 0:
                self._forward(at + 1 - self._at)
                return self._text[start:at]
        raise self._unended(opening, begun)

    def _forward(self, count: int) -> None:
        self._line += self._text.count("\n", self._at, self._at + count)
        self._at += count

    def _unended(self, what: str, line: int) -> ConfigError:
        return ConfigError(f"{self._where}, line {line}: {what} is not closed. Is the script whole?")


def _joined(pieces: list[Piece]) -> tuple[Piece, ...]:
    """The pieces with neighbouring plain texts as one."""
    made: list[Piece] = []
    for piece in pieces:
        if made and piece.kind == made[-1].kind == "text" and piece.quoted == made[-1].quoted:
            made[-1] = Piece("text", made[-1].text + piece.text, piece.quoted)
        else:
            made.append(piece)
    return tuple(made)
