"""conda's order of versions and its version ranges, as far as gpuenv reads records itself.

Source: conda's VersionOrder and VersionSpec (conda/models/version.py). The closure is solved by conda's own solvers;
this is for choosing among a hundred records before them, and for checking what they answer.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import cache, total_ordering

_PART = re.compile(r"[0-9]+|[a-z*]+")
_RANGE = re.compile(r"(==|!=|>=|<=|~=|>|<|=)?(.+)")
_ZERO = (1, 0.0, "")


@total_ordering
class Version:
    """A version by conda's order: 1.0dev < 1.0a1 < 1.0 == 1.0.0 < 1.0.post1 < 1.1."""

    __slots__ = ("local", "parts", "text")

    def __init__(self, text: str) -> None:
        self.text = text.strip().lower()
        epoch, mark, rest = self.text.rpartition("!")
        main, _, local = rest.partition("+")
        first = int(epoch) if mark and epoch.isdigit() else 0
        self.parts = _trimmed([[(1, float(first), "")], *_components(main)])
        self.local = _trimmed(_components(local)) if local else ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and (self.parts, self.local) == (other.parts, other.local)

    def __hash__(self) -> int:
        return hash((self.parts, self.local))

    def __lt__(self, other: Version) -> bool:
        return _less(self.parts, other.parts) if self.parts != other.parts else _less(self.local, other.local)

    def starts_with(self, other: Version) -> bool:
        """Whether it is of the series: 12.9.1 of 12.9, not of 12.91."""
        mine = self.text.split(".")
        its = other.text.rstrip(".").split(".")
        filled = mine + ["0"] * (len(its) - len(mine))
        return [Version(one).parts for one in filled[: len(its)]] == [Version(one).parts for one in its]


_Part = tuple[int, float, str]
_Parts = tuple[tuple[_Part, ...], ...]


def _components(text: str) -> list[list[_Part]]:
    return [_component(one) for one in re.split(r"[._-]", text) if one]


def _component(text: str) -> list[_Part]:
    found: list[_Part] = []
    for run in _PART.findall(text):
        if run.isdigit():
            found.append((1, float(int(run)), ""))
        elif run == "post":
            found.append((1, float("inf"), ""))
        else:
            found.append((-1, 0.0, "") if run == "dev" else (0, 0.0, run))
    return [_ZERO, *found] if found and text[0].isalpha() else found


def _trimmed(components: list[list[_Part]]) -> _Parts:
    """Without the zeros at the ends, which stand for nothing: 1.0 is 1."""
    rows = []
    for one in components:
        end = len(one)
        while end > 1 and one[end - 1] == _ZERO:
            end -= 1
        rows.append(tuple(one[:end]))
    while len(rows) > 1 and rows[-1] == (_ZERO,):
        rows.pop()
    return tuple(rows)


def _less(one: _Parts, other: _Parts) -> bool:
    for place in range(max(len(one), len(other))):
        mine = one[place] if place < len(one) else (_ZERO,)
        its = other[place] if place < len(other) else (_ZERO,)
        for inner in range(max(len(mine), len(its))):
            a = mine[inner] if inner < len(mine) else _ZERO
            b = its[inner] if inner < len(its) else _ZERO
            if a != b:
                return a < b
    return False


@cache
def version(text: str) -> Version:
    """The version of a text; the same few are compared again and again."""
    return Version(text)


@cache
def contains(spec: str, text: str) -> bool:
    """Whether a version range of a record holds a version: ">=12.9,<13", "10.1|10.1.*", "3.13.*", "3.4.0", "*"."""
    return any(all(_holds(one.strip(), text) for one in part.split(",")) for part in spec.split("|"))


def _holds(spec: str, text: str) -> bool:
    found = _RANGE.fullmatch(spec)
    if found is None or spec == "*":
        return spec in ("", "*")
    sign, bound = found.group(1) or "", found.group(2).strip()
    have = version(text)
    if sign in ("", "==", "=", "!=") and bound.endswith("*"):
        series = have.starts_with(version(bound.rstrip("*").rstrip("."))) if _plain(bound) else None
        inside = fnmatch.fnmatchcase(text, bound) if series is None else series
        return inside != (sign == "!=")
    want = version(bound.removesuffix(".*"))
    if sign == "=":
        return have.starts_with(want)
    if sign == "~=":
        return have >= want and have.starts_with(version(bound.rpartition(".")[0]))
    return {
        "": have == want, "==": have == want, "!=": have != want,
        ">=": have >= want, "<=": have <= want, ">": have > want, "<": have < want,
    }[sign]  # fmt: skip


def _plain(bound: str) -> bool:
    return re.fullmatch(r"[0-9a-z_.]+\.\*", bound) is not None


@cache
def split(dependency: str) -> tuple[str, str, str]:
    """A dependency of a record: "libblas * *mkl" -> ("libblas", "*", "*mkl"); what is left out is "*".

    What users write is read too: "cuda-version=13.0", "numpy>=2".
    """
    text = dependency.partition(" #")[0].partition("[")[0].strip().rpartition("::")[2]
    found = re.match(r"[A-Za-z0-9_.-]+", text)
    if found is None:
        return text, "*", "*"
    rest = text[found.end() :].strip()
    if rest[:1] in ("=", "<", ">", "!", "~"):
        ranged, _, build = re.sub(r"\s*,\s*", ",", rest).partition(" ")
        one = re.fullmatch(r"={1,2}([^=,<>|]+)=([^=]+)", ranged)  # name=version=build
        return (found.group(), one.group(1), one.group(2)) if one else (found.group(), ranged, build.strip() or "*")
    words = rest.split()
    return found.group(), words[0] if words else "*", words[1] if len(words) > 1 else "*"


def lower_bound(spec: str) -> str | None:
    """The oldest version that a range names: ">=9.10.1.4,<10.0a0" -> "9.10.1.4"; "12.9.*" -> "12.9"; None for "*"."""
    found = re.search(r"(?:^|,)\s*(?:>=|==|=|~=)?\s*([0-9][0-9A-Za-z.]*)", spec.partition("|")[0])
    return found.group(1).rstrip(".") if found else None


def matches(dependency: str, name: str, text: str, build: str) -> bool:
    """Whether a record of a name, version and build is one that a dependency asks for."""
    wanted, spec, glob = split(dependency)
    return wanted == name and contains(spec, text) and fnmatch.fnmatchcase(build, glob)


def newest_first(texts: Iterable[str]) -> list[str]:
    """Versions in conda's order, newest first."""
    return sorted(set(texts), key=version, reverse=True)


def one_of(texts: Iterable[str]) -> str:
    """The range that holds just these versions: "==9.11.0.98|==9.10.2.21"."""
    return "|".join(f"=={one}" for one in newest_first(texts))
