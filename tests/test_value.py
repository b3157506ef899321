"""model.Value behaves as a frozen, slotted, keyword-only dataclass."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuenv.model import Value


class Own(Value):
    """A value as gpuenv declares it."""

    name: str
    sizes: tuple[int, ...] = ()
    flag: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The same fields as a dataclass."""

    name: str
    sizes: tuple[int, ...] = ()
    flag: bool = False


FIELDS = st.fixed_dictionaries(
    {"name": st.text(max_size=3)},
    optional={"sizes": st.tuples(st.integers(0, 2)), "flag": st.booleans()},
)


def outcome(kind: Any, fields: dict[str, Any]) -> object:
    """Return the content of a value, or the error that its constructor raises."""
    try:
        made = kind(**fields)
    except TypeError:
        return TypeError
    return (made.name, made.sizes, made.flag)


@given(FIELDS, FIELDS)
def test_content_equality_hash_and_replace(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert outcome(Own, first) == outcome(Library, first)
    own = Own(**first), Own(**second)
    library = Library(**first), Library(**second)
    assert (own[0] == own[1]) == (library[0] == library[1])
    if library[0] == library[1]:
        assert hash(own[0]) == hash(own[1])
    replaced = own[0].replace(**second)
    expected = dataclasses.replace(library[0], **second)
    assert (replaced.name, replaced.sizes, replaced.flag) == dataclasses.astuple(expected)
    assert repr(own[0]).removeprefix("Own") == repr(library[0]).removeprefix("Library")


@pytest.mark.parametrize("fields", [{}, {"name": "a", "other": 1}, {"flag": True}])
def test_missing_and_unknown_fields_are_refused(fields: dict[str, Any]) -> None:
    assert outcome(Own, fields) is outcome(Library, fields) is TypeError


@pytest.mark.parametrize("kind", [Own, Library])
def test_values_are_frozen_and_slotted(kind: Any) -> None:
    made = kind(name="a")
    with pytest.raises(AttributeError):
        made.name = "b"
    assert not hasattr(made, "__dict__")
    with pytest.raises(TypeError):
        kind("a")


def test_values_of_two_classes_differ() -> None:
    class Other(Value):
        name: str

    assert Own(name="a") != Other(name="a")
    assert Own(name="a") != Library(name="a")


def test_all_fields_in_their_order_make_the_same_value() -> None:
    assert Own.of("a", (1,), True) == Own(name="a", sizes=(1,), flag=True)
