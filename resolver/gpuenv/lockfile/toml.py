"""Plain data as TOML, in the layout of tomli-w: a lock is the same text whichever of the two writes it.

tomli-w takes every text apart character by character, which for the URLs and hashes of a lock takes longer than the
choice of its packages. Here a text with nothing to escape is taken as it is. tests/test_toml.py holds the two together.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from collections.abc import Iterator, Mapping
    from typing import Any

_WIDTH = 100  # of the longest table that stands on one line, its indent and comma counted
_INDENT = "    "
_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def dumps(document: Mapping[str, Any]) -> str:
    """The text of a table of texts, whole numbers, truth values, lists and tables. TypeError for anything else."""
    return "".join(_table(document, "", in_list=False))


def _table(table: Mapping[str, Any], name: str, *, in_list: bool) -> Iterator[str]:
    plain: list[str] = []
    tables: list[tuple[str, Mapping[str, Any], bool]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            tables.append((key, value, False))
            continue
        text, short = _list(value, _INDENT) if isinstance(value, list) else (_scalar(value), True)
        if short:
            plain.append(f"{_key(key)} = {text}\n")
        else:
            tables += [(key, one, True) for one in value]
    if in_list or (name and (plain or not tables)):
        yield f"[[{name}]]\n" if in_list else f"[{name}]\n"
        begun = True
    else:
        begun = bool(plain)
    yield from plain
    for key, value, one_of_many in tables:
        if begun:
            yield "\n"
        begun = True
        yield from _table(value, f"{name}.{_key(key)}" if name else _key(key), in_list=one_of_many)


def _list(items: list[Any], indent: str) -> tuple[str, bool]:
    """The text of a list, and whether it may stay one: a list of tables only if each fits a line."""
    if not items:
        return "[]", True
    texts = [_value(item, indent) for item in items]
    short = not all(isinstance(item, dict) for item in items) or all(
        len(text) < _WIDTH - len(_INDENT) and "\n" not in text for text in texts
    )
    body = "".join(f"{indent}{text},\n" for text in texts)
    return f"[\n{body}{indent[len(_INDENT) :]}]", short


def _value(value: Any, indent: str = "") -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return _list(value, indent + _INDENT)[0]
    return _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise TypeError(f"a lock has no place for {value!r}")


def _key(key: str) -> str:
    return key if key and _BARE.issuperset(key) else _quoted(key)


def _quoted(text: str) -> str:
    if '"' not in text and "\\" not in text and text.isprintable():
        return f'"{text}"'
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return f"\\u{ord(char):04x}" if (char < " " and char != "\t") or char == "\x7f" else char
