"""Lists of nodes, as clusters write them: "gpu[01-16,20],login1". render/fleet.py folds them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import InputError

_MOST_NODES = 1_000_000
_ITEM = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"\[([^\[\]]*)\]")
_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")


def expand(text: str) -> list[str]:
    """Return the names of a list such as "gpu[01-03],login1", each once, in their order.

    Raises:
        InputError: the text is not such a list.
    """
    names: dict[str, None] = {}
    for item in _items(text):
        names.update(dict.fromkeys(_expand_item(item, text)))
        if len(names) > _MOST_NODES:
            raise InputError(f"{text}: names more than {_MOST_NODES} nodes")
    if not names:
        raise InputError("the list of nodes is empty", hint="name some: --nodes gpu[01-16]")
    return list(names)


def _items(text: str) -> list[str]:
    compact = "".join(text.split())
    items = _ITEM.findall(compact)
    if ",".join(items) != compact.strip(","):
        raise InputError(f"{text}: is not a list of nodes such as gpu[01-16,20],login1")
    return items


def _expand_item(item: str, text: str) -> Iterator[str]:
    """Return the names of one item, which may have several ranges."""
    match = _RANGE.search(item)
    if match is None:
        yield item
        return
    before, after = item[: match.start()], item[match.end() :]
    for number in _numbers(match[1], text):
        yield from _expand_item(before + number + after, text)


def _numbers(ranges: str, text: str) -> Iterator[str]:
    """Return the numbers of "01-03,7" as texts of the width of their first number."""
    for part in ranges.split(","):
        match = _NUMBERS.fullmatch(part)
        if match is None:
            raise InputError(f"{text}: {part!r} is not a range of numbers such as 01-16")
        first, last = match[1], match[2] or match[1]
        if not int(first) <= int(last) < int(first) + _MOST_NODES:
            raise InputError(f"{text}: {part!r} is not a range of numbers such as 01-16")
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}}"
