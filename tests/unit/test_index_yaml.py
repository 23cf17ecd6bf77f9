"""Energon's readings of YAML scalars, recorded from its own reader (megatron-energon 7.4.1, rapidyaml 0.15)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from omniloom.data.index.yaml_dialect import NODE_LIMIT, dump_yaml, load_yaml
from omniloom.errors import ConfigError

# text after "a: " -> what Energon reads
ENERGON_READS: list[tuple[str, Any]] = [
    ("010", 10), ("08", 8), ("-010", -10), ("+12", 12), ("-0", 0), ("1_000", 1000), ("1__0", "1__0"), ("0x10", "0x10"),
    ("0o17", "0o17"), ("0b1", "0b1"), ("1e3", 1000.0), ("5e-3", 0.005), ("1e+3", 1000.0), (".5", 0.5), ("-.5", -0.5),
    ("1.", 1.0), ("1_0.5", 10.5), ("1.2.3", "1.2.3"), ("1e", "1e"), ("e5", "e5"), (".e5", ".e5"), ("e", "e"),
    ("1e400", float("inf")), (".inf", ".inf"), ("-.inf", "-.inf"), (".nan", ".nan"), ("nan", "nan"), ("inf", "inf"),
    ("on", "on"), ("off", "off"), ("y", "y"), ("n", "n"), ("Yes", True), ("NO", False), ("TRUE", True),
    ("fAlSe", False),
    ("null", None), ("NULL", None), ("~", None), ("2024-01-01", "2024-01-01"), ("12:30:45", "12:30:45"),
    ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00Z"), ("'010'", "010"), ('"true"', "true"), ("'~'", "~"), ("''", ""),
    ("jpg,png", "jpg,png"), ("json[caption]", "json[caption]"), ("=", "="), ("1,000", "1,000"), ("x#y", "x#y"),
    ("x # comment", "x"), ("|\n  12\n  34\n", "12\n34\n"), (">\n  true\n", "true\n"), ("|-\n  12", "12"), ("é", "é"),
    ("[1, 2.0, x, 'y', yes]", [1, 2.0, "x", "y", True]), ("{b: 1, c: 010}", {"b": 1, "c": 10}), ("[]", []), ("{}", {}),
    ("b{c,d}e", "b{c,d}e"), ("msc://p/b/{0..3}.tar", "msc://p/b/{0..3}.tar"), ("!foo b", "b"), ("'it''s'", "it's"),
    ('"x\\ny"', "x\ny"), ('"\\u00e9"', "é"), ("\uff11\uff12", 12),
]  # fmt: skip
ENERGON_READS_DOCUMENTS: list[tuple[str, Any]] = [
    ("1: a", {"1": "a"}), ("yes: a", {"yes": "a"}), ("~: a", {"~": "a"}), ("'q': 1", {"q": 1}),
    ("a: 1\na: 2", {"a": 2}),
    ("- 1\n- x", [1, "x"]), ("12", 12), ("'12'", "12"), ("a: 1\n...\n", {"a": 1}), ("\ufeffa: 1", {"a": 1}),
    ("---\na: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]), ("train:\n- s_{000..009}.tar\n", {"train": ["s_{000..009}.tar"]}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), ENERGON_READS)
def test_scalars_are_read_as_energon_does(text: str, value: Any) -> None:
    found = load_yaml(f"a: {text}", name="x.yaml")["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("text", "value"), ENERGON_READS_DOCUMENTS)
def test_documents_are_read_as_energon_does(text: str, value: Any) -> None:
    assert load_yaml(text.encode(), name="x.yaml") == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a:\nb: 1", {"a": None, "b": 1}),  # Energon crashes
        ("", None),
        ("# nothing", None),
        ("---\na: 1\n", {"a": 1}),  # Energon makes a list of it
        ("a: !!str 010", {"a": "010"}),
        ("x: &p {k: 010}\ny: *p", {"x": {"k": 10}, "y": {"k": 10}}),
        ("x: &p {k: 1, l: 2}\ny:\n  <<: *p\n  k: 3", {"x": {"k": 1, "l": 2}, "y": {"k": 3, "l": 2}}),
        ("<<: text", {"<<": "text"}),
    ],
)
def test_what_energon_leaves_out(text: str, value: Any) -> None:
    assert load_yaml(text, name="x.yaml") == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: [x}", "dir/x.yaml, line 2"),
        ("a: b: c", "dir/x.yaml, line 1, column 5"),
        ("a: *missing", "dir/x.yaml, line 1"),
        ("? [a]\n: b", "line 1, column 3: a list or mapping is used as a key"),
        ("a: &a [*a]", "stands inside its own anchor"),
        (b"a: \xff", "dir/x.yaml"),
        ("a: \x00", "dir/x.yaml"),
    ],
)
def test_errors_name_the_place(text: str | bytes, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_yaml(text, name="dir/x.yaml")
    assert told in str(error.value)


def test_repeated_aliases_do_not_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(ConfigError, match=f"more than {NODE_LIMIT:,} values"):
        load_yaml("\n".join(lines), name="bomb.yaml")


def test_deep_nesting_is_read_without_recursion() -> None:
    value = load_yaml("a: " + "[" * 900 + "]" * 900, name="deep.yaml")["a"]
    for _ in range(899):
        (value,) = value
    assert value == []


def test_absurd_nesting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"deep\.yaml"):
        load_yaml("a: " + "[" * 100_000, name="deep.yaml")


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.text())
def test_texts_survive_a_round_trip(text: str) -> None:
    written = dump_yaml({"a": text})
    assert load_yaml(written, name="x.yaml") == {"a": text}
    assert yaml.safe_load(written) == {"a": text}


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), plain))
def test_values_survive_a_round_trip(value: dict[str, Any]) -> None:
    assert load_yaml(dump_yaml(value), name="x.yaml") == value


@pytest.mark.parametrize("text", ["08", "1e3", "010", "true", "Yes", "nULL", "~", "", "1_000", "0x10", ".5"])
def test_texts_that_look_like_numbers_are_quoted(text: str) -> None:
    assert load_yaml(dump_yaml([text]), name="x.yaml") == [text]
