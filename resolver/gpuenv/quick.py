"""What the standard library has, without what importing it costs: a tenth of a solve goes into json, re and functools.

json's own work is done by an accelerator written in C, which is used here as json uses it. Where it is missing, and for
every text that it does not read, json is asked, so that mistakes are told as they always are.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from collections.abc import Callable
    from typing import Any, TypeVar

    _Key = TypeVar("_Key")
    _Value = TypeVar("_Value")

_SPACE = " \t\n\r"


class _Known(dict):  # type: ignore[type-arg]
    """The answers of a function, which is asked for those that are missing."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def __missing__(self, key: Any) -> Any:
        value = self[key] = self.function(key)
        return value


def cached(function: Callable[[_Key], _Value]) -> Callable[[_Key], _Value]:
    """The function, asked once for each argument; what it raises is raised each time."""
    known: Callable[[_Key], _Value] = _Known(function).__getitem__
    return known


class _Plain:
    """How json reads by default."""

    strict, memo = True, dict[str, str]()
    object_hook = object_pairs_hook = parse_constant = None
    parse_float, parse_int = float, int


def loads(text: str | bytes) -> Any:
    """As json.loads. ValueError for what is no JSON."""
    try:
        if _scan is None:
            raise ValueError
        read = text.decode() if isinstance(text, bytes) else text
        # The scanner calls parse_constant for NaN, which is no data of ours.
        value, end = _scan(read, len(read) - len(read.lstrip(_SPACE)))
        if read[end:].strip(_SPACE):
            raise ValueError
    except (StopIteration, ValueError, TypeError):
        import json

        return json.loads(text)
    return value


def canonical(value: object) -> str:
    """As json.dumps with sorted keys, without spaces, and with str of what JSON has not."""
    if _encoder is None:
        import json

        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    encode = _encoder({}, str, _quoted, None, ":", ",", True, False, True)
    return "".join(encode(value, 0))


try:
    from _json import encode_basestring_ascii as _quoted
    from _json import make_encoder, make_scanner

    _encoder: Any = make_encoder
    _scan: Any = make_scanner(_Plain)  # type: ignore[arg-type]
except ImportError:  # another interpreter than CPython
    _scan = _encoder = None
