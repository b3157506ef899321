"""The text of locks: what tomli-w writes, and what tomllib reads back."""

import tomllib
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from gpuenv.lockfile import toml

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
KEYS = st.sampled_from(["name", "a-b", "a_b", "", "two words", "a.b", '"', "\n", "\u00e4"]) | TEXTS
SCALARS = TEXTS | st.integers(-(2**63), 2**63 - 1) | st.booleans()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=30
)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_both_write_the_same(document: dict[str, Any]) -> None:
    text = toml.dumps(document)
    assert text == tomli_w.dumps(document)
    assert tomllib.loads(text) == document


@pytest.mark.parametrize("length", range(60, 110))
def test_a_table_that_just_fits_a_line(length: int) -> None:
    for tables in ([{"name": "x" * length}], [{"name": "a"}, {"name": "x" * length}], [{"a": [1]}, {"b": {}}]):
        document = {"package": {"dependencies": tables}, "packages": [{"wheels": tables}]}
        assert toml.dumps(document) == tomli_w.dumps(document)


def test_every_character_that_is_escaped() -> None:
    document = {"text": "".join(map(chr, range(0x180)))}
    assert toml.dumps(document) == tomli_w.dumps(document)


@pytest.mark.parametrize("value", [1.5, None, b"x", object()])
def test_what_no_lock_holds(value: object) -> None:
    with pytest.raises(TypeError, match="no place"):
        toml.dumps({"x": value})
