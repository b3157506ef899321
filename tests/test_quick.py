"""What stands in for parts of the standard library says what these say."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuenv import quick

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
SPACES = st.text(" \t\r\n", max_size=3)


@given(VALUES, SPACES, SPACES, st.booleans())
def test_what_is_json_is_read(value: Any, before: str, after: str, ascii_only: bool) -> None:
    text = before + json.dumps(value, ensure_ascii=ascii_only) + after
    assert quick.loads(text) == json.loads(text)
    if "\ud800" <= max(text, default="") <= "\udfff":
        return
    assert quick.loads(text.encode("utf-8", "surrogatepass")) == json.loads(text)


@given(VALUES)
def test_what_is_written_is_canonical(value: Any) -> None:
    assert quick.canonical(value) == json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


@pytest.mark.parametrize(
    "text", ["", " ", "{", "[1,]", "{'a': 1}", "1 2", "nul", '"a', "\ufeff{}", "[NaN", b"\xff", '{"a": 1}x', "\x0b1"]
)
def test_mistakes_are_told_as_json_tells_them(text: str | bytes) -> None:
    with pytest.raises(ValueError) as theirs:
        json.loads(text)
    with pytest.raises(ValueError) as ours:
        quick.loads(text)
    assert str(ours.value) == str(theirs.value)


def test_without_the_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "_scan", None)
    monkeypatch.setattr(quick, "_encoder", None)
    assert quick.loads('{"a": [1]}') == {"a": [1]}
    assert quick.canonical({"b": 1, "a": object}) == '{"a":"<class \'object\'>","b":1}'


def test_a_function_is_asked_once() -> None:
    asked: list[int] = []

    @quick.cached
    def twice(number: int) -> int:
        asked.append(number)
        if number < 0:
            raise ValueError
        return 2 * number

    assert [twice(2), twice(2), twice(3)] == [4, 4, 6]
    for _ in range(2):
        with pytest.raises(ValueError):
            twice(-1)
    assert asked == [2, 3, -1, -1]
