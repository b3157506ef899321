"""Command lines that can be read at a glance, without argparse: importing and filling it takes a tenth of a solve.

`Flags` is told of the flags by the same calls as argparse's parser, and reads what argparse reads in the same way. For
all else (help, mistakes, abbreviations, -ofile, values that begin with a dash) the answer is None, and argparse itself
is asked: what a command line means is argparse's to say. tests/test_glance.py holds the two together.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from collections.abc import Mapping, Sequence
    from typing import Any, Self

_KNOWN = {"action", "choices", "const", "default", "help", "metavar", "nargs", "required", "type"}


class Arguments:
    """What was asked for, as argparse's Namespace has it."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.__dict__.update(fields)


class Flags:
    """As much of ArgumentParser as the commands' flags need."""

    usage: str | None = None

    def __init__(self) -> None:
        self._options: dict[str, dict[str, Any]] = {}
        self._positional: dict[str, Any] | None = None
        self._defaults: dict[str, Any] = {}
        self._readable = True
        self._required: set[str] = set()

    def add_argument(self, *names: str, **how: Any) -> None:
        """A flag, or what stands without one."""
        flag = names[0][0] == "-"
        name = next((one for one in names if one.startswith("--")), names[0]).lstrip("-").replace("-", "_")
        action, nargs = how.get("action", "store"), how.get("nargs")
        known = ("store", "append", "store_true") if flag else ("store",)
        # Of what stands without a flag one is enough here; with two it would be a question which takes how many.
        if flag:
            fits = nargs in (None, "?")
        else:
            fits = nargs in ("*", "?") and self._positional is None and "default" not in how
        # argparse would read a default that is a text as it reads a value.
        if isinstance(how.get("default"), str) and "type" in how:
            fits = False
        if not fits or action not in known or not how.keys() <= _KNOWN:
            self._readable = False
            return
        field = {**how, "name": name}
        if flag:
            self._options |= dict.fromkeys(names, field)
            if how.get("required"):
                self._required.add(name)
        else:
            self._positional = field
        nothing: Any = False if action == "store_true" else None if flag or nargs == "?" else []
        self._defaults[name] = how.get("default", nothing)

    def add_argument_group(self, *_: str) -> Self:
        """Groups are for the help."""
        return self

    def add_mutually_exclusive_group(self) -> Self:
        """What excludes what is argparse's to say."""
        self._readable = False
        return self

    def set_defaults(self, **fields: Any) -> None:
        """What the arguments have beside the flags."""
        self._defaults |= fields

    def parsed(self, words: Sequence[str]) -> Arguments | None:
        """The arguments; None if argparse has to say what they are."""
        found: dict[str, Any] = dict(self._defaults)
        given, loose, place = set[str](), list[int](), 0
        while self._readable and place < len(words):
            word, place = words[place], place + 1
            if word[:1] != "-":
                loose.append(place)
                continue
            name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
            flag = self._options.get(name)
            if flag is None or (equals and (not value or flag.get("action") == "store_true")):
                return None
            given.add(flag["name"])
            if flag.get("action") == "store_true":
                found[flag["name"]] = True
                continue
            if not equals:
                if place < len(words) and words[place][:1] != "-":
                    value, place = words[place], place + 1
                elif flag.get("nargs") == "?":
                    found[flag["name"]] = flag.get("const")
                    continue
                else:
                    return None
            if not _put(found, flag, value):
                return None
        together = not loose or loose[-1] - loose[0] == len(loose) - 1
        if not (self._readable and together and self._required <= given):
            return None
        return Arguments(found) if self._placed(found, [words[one - 1] for one in loose]) else None

    def _placed(self, found: dict[str, Any], values: list[str]) -> bool:
        """Puts what stands without a flag in its place; False if there is none."""
        if not values:
            return True
        flag = self._positional
        if flag is None or (flag["nargs"] == "?" and len(values) > 1) or "type" in flag or "choices" in flag:
            return False
        found[flag["name"]] = values[0] if flag["nargs"] == "?" else values
        return True


def _put(found: dict[str, Any], flag: Mapping[str, Any], text: str) -> bool:
    """Gives a flag its value; False for one that it does not take."""
    value: Any = text
    if "type" in flag:
        try:
            value = flag["type"](text)
        except Exception:
            return False
    if "choices" in flag and value not in flag["choices"]:
        return False
    name = flag["name"]
    found[name] = [*(found[name] or ()), value] if flag.get("action") == "append" else value
    return True
