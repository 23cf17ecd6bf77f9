"""Keys made of ids: unchanged where that is safe, readable back always, never two alike."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniloom.data.convert.safe_keys import MAX_KEY_BYTES, original_id, safe_key

# Energon's key expression and the folders it skips, as published in its format description.
ENERGON_KEY = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")
ENERGON_SKIP = re.compile(r"__[^/]*__($|/)")


@pytest.mark.parametrize(
    "identifier",
    [
        "0",
        "004539375",
        "00453/004539375",
        "v1.0/0001",
        "GCC_train_002582585",
        "a b",
        "übung",
        "50%",
        "a~2",
        "-x",
        "a_._b/c",
    ],
)
def test_harmless_ids_keep_their_name(identifier: str) -> None:
    assert safe_key(identifier) == (identifier, None)


@pytest.mark.parametrize(
    ("identifier", "key"),
    [
        ("22.05", "22%2E05"),
        ("a/b.c.d", "a/b%2Ec%2Ed"),
        ("../../etc/passwd", "%2E%2E/%2E%2E/etc/passwd"),
        ("/etc/passwd", "%2Fetc%2Fpasswd"),
        ("a//b", "a%2F%2Fb"),
        ("a/", "a%2F"),
        ("a\0b", "a%00b"),
        ("a\nb", "a%0Ab"),
        ("c:\\x", "c:%5Cx"),
        ("a%2Eb", "a%252Eb"),
        ("._a", "%2E_a"),
        (".", "%2E"),
        ("__meta__/a", "%5F_meta__/a"),
        ("x/__MACOSX/a", "x/%5F_MACOSX/a"),
    ],
)
def test_unsafe_ids_are_escaped(identifier: str, key: str) -> None:
    assert safe_key(identifier) == (key, "escaped-id")
    assert original_id(key) == identifier


def test_very_long_ids_are_shortened_and_stay_apart() -> None:
    one, other = safe_key("x" * 5000), safe_key("x" * 5001)
    assert one.reason == other.reason == "long-id"
    assert one.key != other.key
    assert len(one.key) < 100
    assert safe_key("x" * MAX_KEY_BYTES).reason is None


@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=200) | st.text("._/%2E\\ax\0", min_size=1, max_size=12)
)
def test_every_id_gives_a_key_that_is_read_back(identifier: str) -> None:
    key, _ = safe_key(identifier)
    match = ENERGON_KEY.match(f"{key}.jpg")
    assert match is not None
    assert match.groups() == (key, "jpg")
    assert not ENERGON_SKIP.match(f"{key}.jpg")
    assert original_id(key) == identifier
    assert "\0" not in key
    assert not key.startswith("/")
    assert ".." not in key.split("/")
