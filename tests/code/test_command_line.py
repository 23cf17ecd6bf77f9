"""Every command of the table answers to --help, quickly, with an example; errors are one clean message."""

from __future__ import annotations

import resource
import subprocess
import sys

import click
import pytest

from omniloom.errors import ShardError
from omniloom.tools import main as program


def _all_commands() -> list[list[str]]:
    found = [[name] for name in program.COMMANDS]
    for name in program.COMMANDS:
        command = program.commands.get_command(click.Context(program.commands), name)
        if isinstance(command, click.Group):
            found += [[name, child] for child in command.commands]
    return found


@pytest.mark.parametrize("words", _all_commands(), ids=" ".join)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_answers_with_an_example(words: list[str], flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run([*words, flag]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: omniloom {' '.join(words)} ")
    assert "Example" in text
    assert f"omniloom {' '.join(words)} " in text.split("Example", 1)[1], "the example calls another command"


@pytest.mark.parametrize("name", program.COMMANDS)
def test_summary_of_the_table_is_the_commands_own(name: str) -> None:
    command = program.commands.get_command(click.Context(program.commands), name)
    assert command is not None
    assert command.get_short_help_str(limit=200) == program.COMMANDS[name].summary


def test_help_of_the_program_lists_the_table_and_is_quick() -> None:
    def child_seconds() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = child_seconds()
    done = subprocess.run([sys.executable, "-m", "omniloom", "--help"], capture_output=True, text=True, check=True)
    used_seconds = child_seconds() - before
    for name, entry in program.COMMANDS.items():
        assert name in done.stdout
        assert entry.summary in done.stdout
    assert used_seconds < 0.3, "processor time of --help; something heavy is imported"


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run([]) == 0
    assert "Usage: omniloom" in capsys.readouterr().out


def test_version_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["-V"]) == 0
    assert capsys.readouterr().out.startswith("omniloom 0.")


@pytest.mark.parametrize("words", [["no-such-command"], ["--no-such-flag"], ["preview"]])
def test_wrong_use_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(words) == 2
    assert "Usage: omniloom" in capsys.readouterr().err


def _table_of(action: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_it() -> None:
        if isinstance(action, BaseException):
            raise action

    command = click.Command("boom", callback=raise_it)
    monkeypatch.setattr(program.CommandTable, "get_command", lambda *_: command)


def test_expected_errors_are_one_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(program.DEBUG_VARIABLE, raising=False)
    _table_of(ShardError("a.tar: cut at byte 7.", shard="a.tar", reason="truncated", offset_bytes=7), monkeypatch)
    assert program.run(["boom"]) == 1
    assert capsys.readouterr().err == "ShardError: a.tar: cut at byte 7.\n"


@pytest.mark.parametrize("by_flag", [True, False])
def test_debug_shows_the_traceback(
    by_flag: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(program.DEBUG_VARIABLE, "0" if by_flag else "1")
    _table_of(OSError(28, "No space left on device", "x.tar"), monkeypatch)
    assert program.run(["--debug", "boom"] if by_flag else ["boom"]) == 1
    text = capsys.readouterr().err
    assert "Traceback (most recent call last)" in text
    assert "No space left on device" in text


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    _table_of(ZeroDivisionError("a bug"), monkeypatch)
    with pytest.raises(ZeroDivisionError):
        program.run(["boom"])


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), 130), (EOFError(), 1), (click.Abort(), 130), (BrokenPipeError(32, "pipe"), 141)],
)
def test_interruptions(error: BaseException, code: int) -> None:
    script = (
        "import sys, click; from omniloom.tools import main as program\n"
        f"def callback(): print('x' * 10, flush=True); raise {error!r}\n"
        "program.CommandTable.get_command = lambda *_: click.Command('boom', callback=callback)\n"
        "sys.exit(program.run(['boom']))"
    ).replace("raise Abort", "raise click.Abort")
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m omniloom --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.returncode in {0, 141}


def test_prepare_starts_without_what_local_files_do_not_need() -> None:
    """Starting is a good part of a small set's time, and numpy's threads would forbid forking the scanners."""
    absent = {"numpy", "PIL", "torch", "obstore", "omniloom.storage.remote"}
    program = f"import sys, omniloom.tools.prepare; print(sorted({absent} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"
