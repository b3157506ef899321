"""model.Value: frozen, slotted and keyword-only values, which are equal by content."""

from typing import Any

import pytest

from gpuenv.model import Value
from tables import data_file, each

TABLES = data_file("tables/value.json")


class Own(Value):
    """A value as gpuenv declares it."""

    name: str
    sizes: tuple[int, ...] = ()
    flag: bool = False


class Other(Value):
    """The same fields in another class."""

    name: str
    sizes: tuple[int, ...] = ()
    flag: bool = False


def test_content_decides_equality_and_hash() -> None:
    value = Own(name="a", sizes=(1,))
    assert value == Own(sizes=(1,), name="a", flag=False)
    assert hash(value) == hash(Own(name="a", sizes=(1,)))
    assert value != Own(name="a") and value != Other(name="a", sizes=(1,))
    assert value.replace(flag=True) == Own(name="a", sizes=(1,), flag=True)
    assert repr(value) == "Own(name='a', sizes=(1,), flag=False)"


def test_fields_that_differ_from_their_default() -> None:
    assert Own(name="", sizes=(), flag=False).non_defaults() == {"name": ""}
    assert Own(name="a", flag=True).non_defaults() == {"name": "a", "flag": True}


@each("fields name", TABLES["missing_and_unknown_fields_are_refused"])
def test_missing_and_unknown_fields_are_refused(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(TypeError, match=f"'{name}'"):
        Own(**fields)
    if "other" in fields:
        with pytest.raises(TypeError, match="'other'"):
            Own(name="a").replace(other=1)


def test_values_are_frozen_and_slotted() -> None:
    made: Any = Own(name="a")
    with pytest.raises(AttributeError):
        made.name = "b"
    assert not hasattr(made, "__dict__")
    positional: Any = Own
    with pytest.raises(TypeError):
        positional("a")
