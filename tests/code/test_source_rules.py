"""The rules of CONTRIBUTING.md that a program can check, file by file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
FILES = sorted(SOURCE.rglob("*.py"))
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
FORBIDDEN_FILE_NAMES = {"utils.py", "util.py", "common.py", "helpers.py", "helper.py", "misc.py"}

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def test_there_is_source_to_check() -> None:
    assert len(FILES) > 10


@every_file
def test_file_is_short_and_named_for_what_it_holds(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= MAX_FILE_LINES, f"{path}: {lines} lines, at most {MAX_FILE_LINES}; split it by what it holds"
    assert path.name not in FORBIDDEN_FILE_NAMES, f"{path}: a name that says nothing of what the file holds"


@every_file
def test_functions_are_short(path: Path) -> None:
    long = {}
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = _lines(node) - (_lines(node.body[0]) if ast.get_docstring(node) else 0)
            if lines > MAX_FUNCTION_LINES:
                long[f"{path}:{node.lineno} {node.name}"] = lines
    assert not long, f"functions of more than {MAX_FUNCTION_LINES} lines without their docstring: {long}"


@every_file
def test_public_names_have_docstrings(path: Path) -> None:
    tree = _tree(path)
    missing = [f"{path}:{node.lineno} {name}" for name, node in _public(tree) if not ast.get_docstring(node)]
    if path.stat().st_size and not ast.get_docstring(tree):
        missing.append(f"{path}: the module")
    assert not missing, f"no docstring: {missing}"


@every_file
def test_no_assert_no_bare_except_no_print_outside_tools(path: Path) -> None:
    found = []
    may_print = path.is_relative_to(SOURCE / "omniloom" / "tools")
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Assert):
            found.append(f"{path}:{node.lineno} assert: raise an error that says what is wrong")
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            found.append(f"{path}:{node.lineno} bare except: name what is caught")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "print" and not may_print:
                found.append(f"{path}:{node.lineno} print: only tools print")
            if node.func.id in {"eval", "exec"}:
                found.append(f"{path}:{node.lineno} {node.func.id}: text that came from elsewhere is not run")
    assert not found, "\n".join(found)


@every_file
def test_no_unfinished_notes_in_comments(path: Path) -> None:
    words = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    reader = io.StringIO(path.read_text(encoding="utf-8")).readline
    found = [
        f"{path}:{token.start[0]} {token.string}"
        for token in tokenize.generate_tokens(reader)
        if token.type == tokenize.COMMENT and words.search(token.string)
    ]
    assert not found, f"finish it, or say in the issue tracker what is left: {found}"


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _public(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[str, Definition]]:
    """Public classes and functions of a module, and public methods of its public classes; overloads once."""
    for node in tree.body:
        if not isinstance(node, Definition) or node.name.startswith("_") or _is_overload(node):
            continue
        yield node.name, node
        if isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{name}", member) for name, member in _public(node))


def _is_overload(node: Definition) -> bool:
    """Overloads, setters and deleters share the docstring of the function or the getter they belong to."""
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(names & {"overload", "setter", "deleter", "override"})
