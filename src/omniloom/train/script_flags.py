"""The flags that a training script starts its program with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omniloom.errors import ConfigError
from omniloom.train.shell_script import UNKNOWN, Command, shown

_PROGRAMS = ("train.py", "pretrain_vlm.py")


@dataclass(frozen=True)
class ScriptFlags:
    """Flags without their dashes, with the words after each.

    Attributes:
        values: by flag.
        program: the file that is started.
        where: the script, for messages.
    """

    values: Mapping[str, Sequence[str]]
    program: str
    where: str

    def has(self, flag: str) -> bool:
        """Whether a flag is there."""
        return flag in self.values

    def text(self, flag: str, default: str | None = None) -> str:
        """The value of a flag; several words are joined by blanks.

        Raises:
            ConfigError: the flag is missing, or has no value, and there is no default.
        """
        found = " ".join(self.values.get(flag, ()))
        if found:
            return shown(found)
        if default is None:
            raise ConfigError(f"{self.where}: --{flag} is missing, or has no value.")
        return default

    def whole(self, flag: str, default: int | None = None) -> int:
        """A whole number. Raises ConfigError where it is none."""
        number = self.number(flag, None if default is None else float(default))
        if number != int(number):
            raise ConfigError(f"{self.where}: --{flag}: {number:g} found; a whole number expected.")
        return int(number)

    def number(self, flag: str, default: float | None = None) -> float:
        """A number. Raises ConfigError where it is none."""
        text = self.text(flag, None if default is None else repr(default))
        try:
            return float(text)
        except ValueError:
            raise ConfigError(
                f"{self.where}: --{flag}: {text} found; a number expected. Set what it hangs on with --env NAME=VALUE."
            ) from None


def flags_of(commands: Sequence[Command], *, where: str) -> ScriptFlags:
    """The flags of the training that a script starts; the first one where there are several.

    Raises:
        ConfigError: it starts none.
    """
    for command in commands:
        words = _without_shell(command.words)
        start = next((at for at, word in enumerate(words) if word.endswith(_PROGRAMS)), None)
        if start is not None and words[0] != "echo" and any(word.startswith("--") for word in words[start:]):
            return ScriptFlags(_by_flag(words[start + 1 :]), words[start], where)
    raise ConfigError(f"{where}: starts no {' or '.join(_PROGRAMS)} with flags. Is it a script for training?")


def _without_shell(words: Sequence[str]) -> list[str]:
    """Words, those of ``sh -c '...'`` among them."""
    made: list[str] = []
    for at, word in enumerate(words):
        within = at > 1 and words[at - 1] == "-c" and words[at - 2].rpartition("/")[2] in ("sh", "bash")
        made += word.replace("\\<", "<").replace("\\>", ">").split() if within else [word]
    return made


def _by_flag(words: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for word in words:
        if word.startswith("--") and not word.startswith("--" + UNKNOWN):
            name, equals, value = word[2:].partition("=")
            values = found.setdefault(name, [])
            values[:] = [value] if equals else []  # the last one counts
        else:
            values.append(word)
    return found
