"""The commands that a shell script would start, found without running any: variables and tests on them are followed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from omniloom.train.shell_arithmetic import reckoned
from omniloom.train.shell_words import Piece, Word, read_words

UNKNOWN = "\0"
"""Stands around what is not known, such as the output of a command."""

_BLANK = "\1"
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_DECLARING = ("export", "readonly", "local", "declare", "typeset")
_BLOCKS = {"for": "done", "while": "done", "until": "done", "case": "esac", "function": "}", "{": "}"}
_COMPARED = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}


@dataclass(frozen=True)
class Command:
    """A command that the script would start.

    Attributes:
        words: with all variables filled in.
        line: where it stands.
    """

    words: tuple[str, ...]
    line: int


@dataclass
class Script:
    """What a script would do, as far as it can be known.

    Attributes:
        commands: in order.
        remarks: what was not known, left out or assumed, with its line.
    """

    commands: list[Command] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def read_script(text: str, *, environment: Mapping[str, str], where: str) -> Script:
    """Follow a script.

    Assignments, arrays and ``if`` with tests on variables are followed. Loops, ``case`` and functions are left out;
    of a test whose outcome is not known, the ``else`` branch is taken. Both are told in the remarks.

    Args:
        text: of the script.
        environment: variables that are set when it starts.
        where: the script, for messages.

    Raises:
        ConfigError: a quote or a parenthesis that does not end.
    """
    followed = _Followed(environment)
    followed.run(_lines(read_words(text, where=where)))
    return followed.script


def shown(text: str) -> str:
    """A text with what is not known in angle brackets."""
    return re.sub(f"{UNKNOWN}(.*?){UNKNOWN}", r"<\1>", text).replace(_BLANK, " ")


def _unknown(told: str) -> str:
    return UNKNOWN + re.sub(r"\s+", _BLANK, told) + UNKNOWN  # without blanks, so that it stays one word


def _lines(words: Sequence[Word]) -> list[list[Word]]:
    """Words command by command; ``&&`` and ``||`` within double square brackets do not end one."""
    lines: list[list[Word]] = [[]]
    in_test = False
    for word in words:
        in_test = word.plain == "[[" or (in_test and word.plain != "]]")
        if word.separator and not (in_test and word.plain in ("&&", "||", "(", ")")):
            lines.append([])
            continue
        lines[-1].append(word)
        if word.plain in ("then", "else", "do", "{") and len(lines[-1]) == 1:
            lines.append([])
    return [line for line in lines if line]


class _Followed:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self.script = Script()
        self._variables: dict[str, list[str]] = {name: [value] for name, value in environment.items()}
        self._unset: set[str] = set()

    def run(self, lines: list[list[Word]]) -> None:
        """Follow commands in their order."""
        at = 0
        while at < len(lines):
            head = lines[at][0].plain
            if head == "if":
                at = self._branch(lines, at)
            elif head in _BLOCKS or head.endswith("()"):
                at = self._leave_out(lines, at)
            else:
                self._simple(lines[at])
                at += 1

    def _branch(self, lines: list[list[Word]], start: int) -> int:
        """Follow the branch that is taken; returns the place after ``fi``."""
        depth, parts, at = 0, [start], start
        for at in range(start, len(lines)):
            head = lines[at][0].plain
            depth += (head == "if") - (head == "fi")
            if depth == 1 and head in ("elif", "else") and at > start:
                parts.append(at)
            if depth == 0:
                break
        parts.append(at)
        for first, after in pairwise(parts):
            line = lines[first]
            body = first + 1
            if line[0].plain != "else":
                outcome = self._test(line[1:])
                if outcome is None:
                    told = " ".join("".join(piece.text for piece in word.pieces) for word in line[1:])
                    self._remark(line[0], f"whether {told} holds is not known; taken as not")
                if not outcome:
                    continue
                body += lines[body][0].plain == "then"
            inner = lines[body:after]
            if inner and inner[0][0].plain == "then":
                inner = [inner[0][1:], *inner[1:]] if len(inner[0]) > 1 else inner[1:]
            if inner and inner[0][0].plain == "else":
                inner = inner[1:]
            self.run(inner)
            break
        return at + 1

    def _leave_out(self, lines: list[list[Word]], start: int) -> int:
        """Pass by a block that is not followed; returns the place after it."""
        head = lines[start][0]
        opening = head.plain if head.plain in _BLOCKS else "function"
        closing, depth, at = _BLOCKS[opening], 0, start
        openings = [name for name, end in _BLOCKS.items() if end == closing]
        for at in range(start, len(lines)):
            plain = lines[at][0].plain
            depth += plain in openings and not (opening == "function" and plain == "{")
            depth += at == start and plain not in openings
            if plain == closing:
                depth -= 1
            if depth == 0:
                break
        self._remark(head, f"{shown(head.plain)} ... is left out: loops, cases and functions are not followed")
        return at + 1

    def _simple(self, line: list[Word]) -> None:
        """An assignment, or a command."""
        at = 1 if line[0].plain in _DECLARING else 0
        while at < len(line) and self._assign(line[at]):
            at += 1
        if at == len(line) or line[0].plain in (*_DECLARING, "then", "else", "fi", "do", "done"):
            return
        words = tuple(one for word in line[at:] for one in self._fill(word))
        if line[at].plain in ("source", "."):
            self._remark(line[at], f"{' '.join(map(shown, words))}: other scripts are not read")
        elif line[at].plain == "exit":
            self._remark(line[at], "the script would end here; it is read on")
        elif words:
            self.script.commands.append(Command(words, line[at].line))

    def _assign(self, word: Word) -> bool:
        """Whether a word is an assignment; then it is done."""
        first = word.pieces[0] if word.pieces else None
        match = (
            _ASSIGNMENT.match(first.text) if first is not None and first.kind == "text" and not first.quoted else None
        )
        if match is None or first is None:
            return False
        name, adds = match[1], bool(match[2])
        if word.array is not None:
            value = [one for inner in word.array for one in self._fill(inner)]
        else:
            rest = Word((Piece("text", first.text[match.end() :], quoted=True), *word.pieces[1:]), word.line)
            value = ["".join(self._value(piece) for piece in rest.pieces)]
        before = self._variables.get(name, [])
        if adds and word.array is None:
            value = ["".join(before[:1]) + value[0], *before[1:]]
        self._variables[name] = before + value if adds and word.array is not None else value
        return True

    def _fill(self, word: Word) -> Iterator[str]:
        """The words that a word becomes: unquoted values are cut at blanks, arrays give one word each."""
        made, begun = "", False
        for piece in word.pieces:
            name, _, index = piece.text.partition("[")
            if piece.kind == "variable" and index:
                yield from self._variables.get(name, [])
                begun = False
                continue
            value = self._value(piece)
            if piece.quoted or piece.kind == "text":
                made, begun = made + value, True
                continue
            parts = re.split(r"[ \t\n]+", value)
            for part in parts[:-1]:
                if made or part:
                    yield made + part
                made = ""
            made, begun = made + parts[-1], begun or bool(made + parts[-1])
        if made or (begun and word.pieces and all(piece.quoted for piece in word.pieces)):
            yield made

    def _value(self, piece: Piece) -> str:
        if piece.kind == "text":
            return piece.text
        if piece.kind == "output":
            return "." if piece.text == "pwd" else _unknown(f"output of {piece.text}")
        if piece.kind == "arithmetic":
            number = reckoned(piece.text, self._variables)
            return _unknown(f"output of (({piece.text}))") if number is None else str(number)
        if piece.text in ("?", "$", "!"):
            return _unknown(f"${piece.text}")
        return self._of_variable(piece, piece.text.partition("[")[0])

    def _of_variable(self, piece: Piece, name: str) -> str:
        """The value of a variable, or what stands for it where it has none."""
        value = " ".join(self._variables[name]) if name in self._variables else None
        if value == "" and piece.operator.startswith(":"):
            value = None
        if piece.operator.endswith("+"):
            return "" if value is None else "".join(map(self._value, piece.other))
        if value is not None:
            return value
        if piece.operator.endswith(("-", "=")):
            value = "".join(map(self._value, piece.other))
            if piece.operator.endswith("="):
                self._variables[name] = [value]
            return value
        if not name.isidentifier():
            return ""
        if name not in self._unset:
            self._unset.add(name)
            self.script.remarks.append(f"{name} is not set; give --env {name}=VALUE if it matters")
        return _unknown(name)

    def _test(self, words: list[Word]) -> bool | None:
        """Whether a test holds; ``None``: that is not known."""
        inner = [word for word in words if word.plain not in ("[[", "]]", "[", "]")]
        if words[:1] and words[0].plain not in ("[[", "["):
            return {"true": True, "false": False}.get(words[0].plain)
        for joint, decided in (("||", True), ("&&", False)):
            places = [at for at, word in enumerate(inner) if word.plain == joint]
            if places:
                sides = [self._test([_TEST, *side]) for side in _cut(inner, places)]
                if decided in sides:
                    return decided
                return None if None in sides else not decided
        return self._comparison(inner)

    def _comparison(self, words: list[Word]) -> bool | None:
        if words and words[0].plain == "!":
            inner = self._comparison(words[1:])
            return None if inner is None else not inner
        values = ["".join(self._tested(piece) for piece in word.pieces) for word in words]
        if any(UNKNOWN in value for value in values):
            return None
        outcome: bool | None = None
        match values:
            case ["-z", value]:
                outcome = not value
            case ["-n", value] | [value]:
                outcome = bool(value)
            case [left, "=" | "==" | "!=" as sign, right]:
                outcome = (left == right) == (sign != "!=")
            case [left, sign, right] if sign in _COMPARED:
                outcome = bool(_COMPARED[sign](_number(left), _number(right)))
        return outcome

    def _tested(self, piece: Piece) -> str:
        """As `_value`; a variable that is not set is empty, as the shell has it."""
        name = piece.text.partition("[")[0]
        if piece.kind == "variable" and not piece.operator and name.isidentifier() and name not in self._variables:
            return ""
        return self._value(piece)

    def _remark(self, word: Word, told: str) -> None:
        self.script.remarks.append(f"line {word.line}: {told}")


def _number(text: str) -> int:
    """As arithmetic has it: a word that is no number is 0."""
    return int(text) if re.fullmatch(r"-?\d+", text) else 0


_TEST = Word((Piece("text", "[[", quoted=False),), 0)


def _cut(words: list[Word], places: list[int]) -> list[list[Word]]:
    bounds = [-1, *places, len(words)]
    return [words[start + 1 : stop] for start, stop in pairwise(bounds)]
