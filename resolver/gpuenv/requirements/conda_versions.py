"""conda's order of versions and its version ranges, as far as gpuenv reads records itself.

Source: VersionOrder and VersionSpec of conda (conda/models/version.py). The closure is found by
conda's own solvers. This module chooses among a hundred records before, and checks the answer.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Iterable
from functools import cache, total_ordering
from itertools import zip_longest

_RUN = re.compile(r"[0-9]+|[a-z*]+")
_RANGE = re.compile(r"(==|!=|>=|<=|~=|>|<|=)?(.+)")
_SERIES = re.compile(r"[0-9a-z_.]+\.\*")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_NAME_VERSION_BUILD = re.compile(r"={1,2}([^=,<>|]+)=([^=]+)")
_BRACKETS = re.compile(r"(version|build|channel)\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|([^,'\"]+))")
_LOWER_BOUND = re.compile(r"(?:^|,)\s*(?:>=|==|=|~=)?\s*([0-9][0-9A-Za-z.]*)")

# A run of digits or letters: (class, number, text). The classes order dev < letters < numbers.
_Run = tuple[int, float, str]
_Runs = tuple[_Run, ...]
_ZERO: _Run = (1, 0.0, "")
_POST: _Run = (1, float("inf"), "")
_DEV: _Run = (-1, 0.0, "")


@total_ordering
class Version:
    """A version in conda's order: 1.0dev < 1.0a1 < 1.0 == 1.0.0 < 1.0.post1 < 1.1."""

    __slots__ = ("local", "parts", "text")

    def __init__(self, text: str) -> None:
        self.text = text.strip().lower()
        epoch, mark, rest = self.text.rpartition("!")
        main, _, local = rest.partition("+")
        number = int(epoch) if mark and epoch.isdigit() else 0
        self.parts = _without_zeros([[(1, float(number), "")], *_components(main)])
        self.local = _without_zeros(_components(local)) if local else ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Version):
            return False
        return (self.parts, self.local) == (other.parts, other.local)

    def __hash__(self) -> int:
        return hash((self.parts, self.local))

    def __lt__(self, other: Version) -> bool:
        if self.parts != other.parts:
            return _is_less(self.parts, other.parts)
        return _is_less(self.local, other.local)

    def starts_with(self, series: Version) -> bool:
        """Return whether the version is of a series: 12.9.1 is of 12.9, 12.91 is not."""
        prefix = series.text.rstrip(".").split(".")
        parts = self.text.split(".")
        parts += ["0"] * (len(prefix) - len(parts))
        for part, expected in zip(parts, prefix, strict=False):
            if Version(part).parts != Version(expected).parts:
                return False
        return True


def _components(text: str) -> list[list[_Run]]:
    return [_runs(component) for component in re.split(r"[._-]", text) if component]


def _runs(component: str) -> list[_Run]:
    runs: list[_Run] = []
    for text in _RUN.findall(component):
        if text.isdigit():
            runs.append((1, float(int(text)), ""))
        elif text == "post":
            runs.append(_POST)
        elif text == "dev":
            runs.append(_DEV)
        else:
            runs.append((0, 0.0, text))
    if runs and component[0].isalpha():
        runs.insert(0, _ZERO)
    return runs


def _without_zeros(components: list[list[_Run]]) -> tuple[_Runs, ...]:
    """Drop the zeros at the ends: 1.0 is 1."""
    trimmed = []
    for runs in components:
        end = len(runs)
        while end > 1 and runs[end - 1] == _ZERO:
            end -= 1
        trimmed.append(tuple(runs[:end]))
    while len(trimmed) > 1 and trimmed[-1] == (_ZERO,):
        trimmed.pop()
    return tuple(trimmed)


def _is_less(left: tuple[_Runs, ...], right: tuple[_Runs, ...]) -> bool:
    for left_runs, right_runs in zip_longest(left, right, fillvalue=(_ZERO,)):
        for left_run, right_run in zip_longest(left_runs, right_runs, fillvalue=_ZERO):
            if left_run != right_run:
                return left_run < right_run
    return False


@cache
def version(text: str) -> Version:
    """Return the version of a text. It is cached: the same few are compared again and again."""
    return Version(text)


@cache
def contains(spec: str, text: str) -> bool:
    """Return whether a range of a record holds a version.

    Ranges are such as ">=12.9,<13", "10.1|10.1.*", "3.13.*", "3.4.0" and "*".
    """
    for alternative in spec.split("|"):
        if all(_clause_contains(clause.strip(), text) for clause in alternative.split(",")):
            return True
    return False


_COMPARISONS: dict[str, Callable[[Version, Version], bool]] = {
    "": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def _clause_contains(clause: str, text: str) -> bool:
    match = _RANGE.fullmatch(clause)
    if match is None or clause == "*":
        return clause in ("", "*")
    sign, bound = match.group(1) or "", match.group(2).strip()
    if sign in ("", "==", "=", "!=") and bound.endswith("*"):
        return _glob_contains(bound, text) != (sign == "!=")
    have, limit = version(text), version(bound.removesuffix(".*"))
    if sign == "=":
        return have.starts_with(limit)
    if sign == "~=":
        return have >= limit and have.starts_with(version(bound.rpartition(".")[0]))
    return _COMPARISONS[sign](have, limit)


def _glob_contains(glob: str, text: str) -> bool:
    if _SERIES.fullmatch(glob):
        return version(text).starts_with(version(glob.rstrip("*").rstrip(".")))
    return fnmatch.fnmatchcase(text, glob)


@cache
def split(dependency: str) -> tuple[str, str, str]:
    """Return (name, range, build) of a dependency of a record; what is left out is "*".

    "libblas * *mkl" is ("libblas", "*", "*mkl"). What users and conda's history write is read too:
    "cuda-version=13.0", "numpy>=2", "conda-forge::numpy[version='>=2']".
    """
    text, _, brackets = dependency.partition(" #")[0].partition("[")
    name, version_range, build = _split_words(text.strip().rpartition("::")[2])
    fields = _bracket_fields(brackets)
    return name, fields.get("version", version_range), fields.get("build", build)


def _bracket_fields(brackets: str) -> dict[str, str]:
    """Return {version, build, channel: value} from what follows the "[" of a dependency."""
    fields = _BRACKETS.findall(brackets.rpartition("]")[0])
    return {key: "".join(values).strip() for key, *values in fields}


def channel_of(spec: str) -> str:
    """Return the channel that a user's spec names: that of "bioconda::blast"; "" for none."""
    text, _, brackets = spec.partition("[")
    return _bracket_fields(brackets).get("channel", text.rpartition("::")[0].strip())


def name_of(dependency: str) -> str:
    """Return the package that a dependency names."""
    return split(dependency)[0]


def _split_words(text: str) -> tuple[str, str, str]:
    match = _NAME.match(text)
    if match is None:
        return text, "*", "*"
    name, rest = match.group(), text[match.end() :].strip()
    if rest[:1] in ("=", "<", ">", "!", "~"):
        version_range, _, build = re.sub(r"\s*,\s*", ",", rest).partition(" ")
        exact = _NAME_VERSION_BUILD.fullmatch(version_range)
        if exact:
            return name, exact.group(1), exact.group(2)
        return name, version_range, build.strip() or "*"
    words = [*rest.split(), "*", "*"]
    return name, words[0], words[1]


def lower_bound(spec: str) -> str | None:
    """Return the oldest version that a range names; None for "*".

    ">=9.10.1.4,<10.0a0" gives "9.10.1.4", "12.9.*" gives "12.9".
    """
    match = _LOWER_BOUND.search(spec.partition("|")[0])
    return match.group(1).rstrip(".") if match else None


def matches(dependency: str, name: str, text: str, build: str) -> bool:
    """Return whether a dependency asks for a record of this name, version and build."""
    wanted, spec, glob = split(dependency)
    return wanted == name and contains(spec, text) and fnmatch.fnmatchcase(build, glob)


def newest_first(texts: Iterable[str]) -> list[str]:
    """Return versions in conda's order, newest first, each once."""
    return sorted(set(texts), key=version, reverse=True)


def places(texts: Iterable[str]) -> dict[str, int]:
    """Return the place of each version in conda's order, oldest first; equal versions share one."""
    place_by_version: dict[str, int] = {}
    place, before = 0, None
    for text in sorted(set(texts), key=version):
        if before is not None and version(text) != before:
            place += 1
        before = version(text)
        place_by_version[text] = place
    return place_by_version


def one_of(texts: Iterable[str]) -> str:
    """Return the range that holds just these versions: "==9.11.0.98|==9.10.2.21"."""
    return "|".join(f"=={text}" for text in newest_first(texts))
