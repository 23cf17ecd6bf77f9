"""The rule of keys, held against the expressions that Energon publishes."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omniloom.data.shards.keys import IGNORED_REASONS, KEY_TABLE, ignored_reason, may_be_ignored, split_key

ENERGON_SPLIT = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")
ENERGON_SKIP = re.compile(r"__[^/]*__($|/)")

names = st.text(alphabet="ab._/\nM", max_size=12) | st.text(max_size=10)


@pytest.mark.parametrize("row", KEY_TABLE, ids=lambda row: f"{row.rule}:{row.name}")
def test_the_published_table_holds(row) -> None:
    reason = ignored_reason(row.name, row.rule)
    assert reason == row.ignored
    if reason is None:
        assert split_key(row.name, row.rule) == (row.key, row.part)
    else:
        assert reason in IGNORED_REASONS
        assert row.key is row.part is None


@pytest.mark.parametrize("row", [row for row in KEY_TABLE if row.rule == "first-dot"], ids=lambda row: row.name)
def test_the_published_table_is_energons_but_for_the_files_of_macos(row) -> None:
    match = ENERGON_SPLIT.match(row.name)
    skipped = match is None or ENERGON_SKIP.match(row.name)
    if row.ignored in ("apple-double", "ds-store", "macosx"):
        return
    assert bool(skipped) == (row.ignored is not None)
    if not skipped:
        assert match.groups() == (row.key, row.part)


@given(names)
@example("a.x\nb/c.txt")
@example("a/b/.hidden")
@example("a.b/.hidden")
@example("a.txt\n")
@example("//.x")
def test_first_dot_is_energons_expression(name: str) -> None:
    match = ENERGON_SPLIT.match(name)
    assert split_key(name) == (match.groups() if match else None)


@given(names)
@example("__a__/b.c")
@example("__a_/b.c")
@example("__a__.c")
@example("____/b.c")
@example("__/b.c")
def test_ignored_are_energons_and_those_of_macos(name: str) -> None:
    base = name.rpartition("/")[2]
    folders = name.split("/")[:-1]
    reason = ignored_reason(name)
    if base.startswith("._"):
        assert reason == "apple-double"
    elif base == ".DS_Store":
        assert reason == "ds-store"
    elif "__MACOSX" in folders:
        assert reason == "macosx"
    elif ENERGON_SKIP.match(name):
        assert reason == "meta"
    else:
        assert reason == ("no-key" if ENERGON_SPLIT.match(name) is None else None)
    if reason not in (None, "no-key"):
        assert may_be_ignored(name)


@given(names)
def test_last_dot_puts_the_name_together_again(name: str) -> None:
    split = split_key(name, "last-dot")
    base = name.rpartition("/")[2]
    if split is None:
        assert "." not in base[1:]
    else:
        assert ".".join(split) == name
        assert "." not in split[1]
        assert "/" not in split[1]


def test_one_kind_of_junk_in_each_place() -> None:
    assert ignored_reason("a/b/c/._x.jpg") == "apple-double"
    assert ignored_reason("a/__MACOSX/x.jpg") == "macosx"
    assert ignored_reason("a/.DS_Store") == "ds-store"
    assert ignored_reason("a/x.DS_Store") is None
    assert ignored_reason("__MACOSX.jpg") is None
    assert ignored_reason("a/._/b.jpg") is None
    assert ignored_reason("Thumbs.db") is None
