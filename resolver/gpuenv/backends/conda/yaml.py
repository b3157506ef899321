"""The part of YAML that conda-lock.yml is written in: block mappings and lists, scalars on one line.

Anything else (anchors, tags, texts over several lines) is refused, never guessed at.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from typing import Any

_WORDS = {"null": None, "~": None, "": None, "true": True, "false": False}


class NotPlainError(ValueError):
    """A line that is no part of the subset."""


def dumps(value: Any) -> str:
    """Mappings, lists and scalars as block YAML; texts are double-quoted, as JSON writes them, which YAML reads."""
    return "".join(f"{line}\n" for line in _lines(value, ""))


def _lines(value: Any, indent: str) -> list[str]:
    lines: list[str] = []
    if isinstance(value, dict):
        for key, item in value.items():
            lines += _entry(f"{indent}{_key(key)}:", item, indent + "  ")
    else:
        for item in value:
            inner = _lines(item, indent + "  ") if isinstance(item, (dict, list)) and item else []
            lines += [f"{indent}- {inner[0].lstrip()}", *inner[1:]] if inner else [f"{indent}- {_scalar(item)}"]
    return lines


def _entry(head: str, item: Any, indent: str) -> list[str]:
    if isinstance(item, (dict, list)) and item:
        return [head, *_lines(item, indent)]
    return [f"{head} {_scalar(item)}"]


def _key(key: str) -> str:
    from json import dumps as quoted

    return key if key.replace("_", "a").replace("-", "a").isalnum() and key[0].isalpha() else quoted(key)


def _scalar(value: Any) -> str:
    from json import dumps as quoted

    return quoted(value)


def loads(text: str) -> Any:
    """What a text says. NotPlainError names the line that is beyond the subset."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#") and stripped != "---":
            if "\t" in line[: len(line) - len(line.lstrip())]:
                raise NotPlainError(f"line {number}: a tab")
            rows.append((number, len(line) - len(line.lstrip()), stripped))
    if not rows:
        return None
    value, rest = _block(rows, rows[0][1])
    if rest:
        raise NotPlainError(f"line {rest[0][0]}: its indentation")
    return value


_Rows = list[tuple[int, int, str]]


def _block(rows: _Rows, indent: int) -> tuple[Any, _Rows]:
    """The mapping or list whose lines stand at `indent`, and the lines after it."""
    return _list(rows, indent) if rows[0][2] == "-" or rows[0][2].startswith("- ") else _mapping(rows, indent)


def _list(rows: _Rows, indent: int) -> tuple[list[Any], _Rows]:
    found: list[Any] = []
    while rows and rows[0][1] == indent and (rows[0][2] == "-" or rows[0][2].startswith("- ")):
        number, _, text = rows[0]
        rest = text[1:].lstrip()
        inner = indent + len(text) - len(rest)
        if rest and _pair(rest, number) is not None:
            value, rows = _mapping([(number, inner, rest), *rows[1:]], inner)
        elif not rest and len(rows) > 1 and rows[1][1] > indent:
            value, rows = _block(rows[1:], rows[1][1])
        else:
            value, rows = _value(rest, number), rows[1:]
        found.append(value)
    return found, rows


def _mapping(rows: _Rows, indent: int) -> tuple[dict[str, Any], _Rows]:
    found: dict[str, Any] = {}
    while rows and rows[0][1] == indent:
        number, _, text = rows[0]
        pair = _pair(text, number)
        if pair is None:
            if text.startswith("- "):
                break
            raise NotPlainError(f"line {number}: neither a key nor an item")
        key, rest = pair
        rows = rows[1:]
        deeper = rows and (rows[0][1] > indent or (rows[0][1] == indent and rows[0][2].startswith("- ")))
        if rest:
            found[key] = _value(rest, number)
        elif deeper:
            found[key], rows = _block(rows, rows[0][1])
        else:
            found[key] = None
    return found, rows


def _pair(text: str, number: int) -> tuple[str, str] | None:
    """(key, what stands behind it) of a line of a mapping; None for another line."""
    if text[:1] in "\"'":
        end = text.find(text[0] + ":", 1)
        if end < 0:
            return None
        return str(_value(text[: end + 1], number)), text[end + 2 :].strip()
    key, colon, rest = text.partition(":")
    if not colon or (rest and not rest.startswith(" ")) or any(sign in key for sign in "{}[]\"'"):
        return None
    return key.strip(), rest.strip()


def _value(text: str, number: int) -> Any:
    from json import loads as read

    if text[:1] == '"':
        try:
            return read(text)
        except ValueError:
            raise NotPlainError(f"line {number}: a text over several lines, or with a comment") from None
    if text[:1] == "'":
        if len(text) < 2 or text[-1] != "'" or "'" in text[1:-1].replace("''", ""):
            raise NotPlainError(f"line {number}: a text over several lines")
        return text[1:-1].replace("''", "'")
    if text in ("[]", "{}"):
        return read(text)
    if text[:1] in "&*!|>{[%@`":
        raise NotPlainError(f"line {number}: {text[:1]} is beyond what is read here")
    text = text.partition(" #")[0].rstrip()
    if text in _WORDS:
        return _WORDS[text]
    return int(text) if text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() else text
