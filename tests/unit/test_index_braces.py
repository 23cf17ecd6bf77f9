"""Brace patterns, against the braceexpand package that Energon uses, and by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.index.braces import EXPANSION_LIMIT, collapse_braces, expand_all, expand_braces
from omniloom.errors import ConfigError


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.tar", ["a.tar"]),
        ("s{0..2}.tar", ["s0.tar", "s1.tar", "s2.tar"]),
        ("s{008..011}", ["s008", "s009", "s010", "s011"]),
        ("s{4..1}", ["s4", "s3", "s2", "s1"]),
        ("s{1..9..3}", ["s1", "s4", "s7"]),
        ("{2..-1}", ["2", "1", "0", "-1"]),
        ("{a..e..2}", ["a", "c", "e"]),
        ("{x,y}{1,2}", ["x1", "x2", "y1", "y2"]),
        ("p{2.{5..6},3.{2,3}}", ["p2.5", "p2.6", "p3.2", "p3.3"]),
        ("a{,b}", ["a", "ab"]),
        ("a{b}", ["a{b}"]),
        ("a{}", ["a{}"]),
        (r"\{1,2\}", ["{1,2}"]),
        (r"a\\b", [r"a\b"]),
        ("", [""]),
    ],
)
def test_expansion(pattern: str, names: list[str]) -> None:
    assert expand_braces(pattern) == names


def test_without_escapes_backslashes_stay() -> None:
    assert expand_braces(r"s_\d+\.{tar,tgz}", escape=False) == [r"s_\d+\.tar", r"s_\d+\.tgz"]


@pytest.mark.parametrize("pattern", ["{a", "a}", "{{a}", "x{1..3"])
def test_unbalanced_braces_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="without its partner"):
        expand_braces(pattern)


@pytest.mark.parametrize("pattern", ["{1..99999999}", "{0..9999}{0..9999}"])
def test_absurd_expansions_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match=f"at most {EXPANSION_LIMIT:,}"):
        expand_braces(pattern)


pieces = st.sampled_from(
    ["{", "}", ",", "..", "a", "b", "z", "1", "05", "-3", "\\{", "\\,", "{1..3}", "{a,b}", "Z", "..2", "é", "{07..10}"]
)


@settings(max_examples=1_000, deadline=None)
@given(st.lists(pieces, max_size=9).map("".join), st.booleans())
def test_same_as_the_braceexpand_package(pattern: str, escape: bool) -> None:
    braceexpand = pytest.importorskip("braceexpand")
    try:
        expected = list(braceexpand.braceexpand(pattern, escape))
    except braceexpand.UnbalancedBracesError:
        with pytest.raises(ConfigError):
            expand_braces(pattern, escape=escape)
        return
    assert expand_braces(pattern, escape=escape) == expected


@pytest.mark.parametrize(
    ("names", "collapsed"),
    [
        ([], []),
        (["a.tar"], ["a.tar"]),
        (["s0.tar", "s1.tar"], ["s{0..1}.tar"]),
        (["s8", "s9", "s10", "s11"], ["s{8..9}", "s{10..11}"]),  # a number keeps its width
        (["s08", "s09", "s10"], ["s{08..10}"]),
        (["s1", "s0"], ["s1", "s0"]),
        (["s0", "s2", "s3"], ["s0", "s{2..3}"]),
        (["a1b1", "a2b1", "a2b2"], ["a{1..2}b1", "a2b2"]),
        (["a1b1", "a2b2"], ["a1b1", "a2b2"]),
        (["s1", "s1"], ["s1", "s1"]),
        (["x{1}", "x{2}"], [r"x\{{1..2}\}"]),
        (["s1_01", "s2_1"], ["s1_01", "s2_1"]),
    ],
)
def test_collapse(names: list[str], collapsed: list[str]) -> None:
    assert collapse_braces(names) == collapsed
    assert expand_all(collapsed) == names


shard_names = st.builds(
    lambda run, number, width, tail: f"run{run}/s{number:0{width}d}{tail}",
    st.integers(0, 2), st.integers(0, 12), st.integers(1, 3), st.sampled_from([".tar", "-x.tar", "{.tar", "\\.tar"]),
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(shard_names, max_size=12))
def test_collapse_is_undone_by_expansion(names: list[str]) -> None:
    assert expand_all(collapse_braces(names)) == names
    ordered = sorted(set(names))
    assert expand_all(collapse_braces(ordered)) == ordered
