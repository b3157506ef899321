"""Versions, their ranges and match specs of conda, by the rules of the solver that is there.

These are the rules of the conda that runs gpuenv, otherwise those of py-rattler. Own code reads
environments and records where neither is installed.
"""

from __future__ import annotations

import fnmatch
import operator
import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from ..errors import InputError, error_text

_RUN = re.compile(r"[0-9]+|[a-z*]+")
_RANGE = re.compile(r"(==|!=|>=|<=|~=|>|<|=)?(.+)")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_CHANNEL = re.compile(r"channel\s*=\s*['\"]?([^,'\"\]]+)")
_LOWER_BOUND = re.compile(r"(?:^|,)\s*(?:>=|==|=|~=)?\s*([0-9][0-9A-Za-z.]*)")
_OF_WHEELS = re.compile(r"[;@]|\[[^=\]]*\]")  # a marker, a URL, extras
SPEC_HINT = "numpy, or numpy>=2"


# Each class has the rules of one solver. Whatever it raises means that it cannot read a text. The
# answers about specs are cached: conda takes 0.2 ms for each, and a solve asks 4,000 times about
# 500 of them.


class Conda:
    """The rules of the conda that runs gpuenv."""

    def __init__(self) -> None:
        from conda.models import match_spec, version  # type: ignore[import-not-found,unused-ignore]

        self._spec, self.version = match_spec.MatchSpec, version.VersionOrder

    def split(self, text: str) -> tuple[str, str | None, str | None]:
        spec = self._spec(text)
        return spec.name, spec.get_raw_value("version"), spec.get_raw_value("build")

    def matches(self, spec: str, name: str, text: str, build: str) -> bool:
        record = {"name": name, "version": text, "build": build, "build_number": 0}
        return bool(self._spec(spec).match(record))


class Rattler:
    """The rules of py-rattler."""

    def __init__(self) -> None:
        import rattler  # type: ignore[import-not-found,unused-ignore]

        self._rattler: Any = rattler
        self.version = rattler.Version
        self._build = getattr(rattler, "BuildString", str)  # before 0.28 it is a text

    def split(self, text: str) -> tuple[str, str | None, str | None]:
        spec = self._rattler.MatchSpec(text)
        return spec.name.normalized, spec.version, spec.build

    def matches(self, spec: str, name: str, text: str, build: str) -> bool:
        record = self._rattler.PackageRecord(name, text, self._build(build), 0, "noarch")
        return bool(self._rattler.MatchSpec(spec).matches(record))


class Own:
    """Own code for records, environments and the history of conda."""

    def version(self, text: str) -> Any:
        return _key(text)

    def split(self, text: str) -> tuple[str, str | None, str | None]:
        text = text.partition(" #")[0].partition("[")[0].strip().rpartition("::")[2]
        match = _NAME.match(text)
        if match is None:
            return text, None, None
        rest = re.sub(r"\s*,\s*", ",", text[match.end() :])
        rest = re.sub(r"(?<=[\w.*])=(?=[\w*])", " ", rest)  # =3.9.0=31*_mkl: a version and a build
        words = [*re.sub(r"([=<>!~|])\s+", r"\1", rest).split(), None, None]
        return match.group(), words[0], words[1]

    def matches(self, spec: str, name: str, text: str, build: str) -> bool:
        wanted, version_range, glob = self.split(spec)
        in_range = any(
            all(_clause_contains(clause.strip(), text) for clause in alternative.split(","))
            for alternative in (version_range or "*").split("|")
        )
        return wanted == name and in_range and fnmatch.fnmatchcase(build, glob or "*")


@cache
def _rules() -> Conda | Rattler | Own:
    if inside_conda():
        return Conda()
    try:
        return Rattler()
    except ImportError:
        return Own()


def inside_conda() -> bool:
    """Return whether this interpreter has conda, as that of a base environment."""
    return any(os.path.isdir(os.path.join(folder, "conda", "plugins")) for folder in sys.path)


def version(text: str) -> Any:
    """Return the version of a text."""
    return _rules().version(text)


@cache
def contains(spec: str, text: str) -> bool:
    """Return whether a range of a record holds a version.

    Ranges are such as ">=12.9,<13", "10.1|10.1.*", "3.13.*", "3.4.0" and "*".
    """
    return spec in ("", "*") or _rules().matches(f"package {spec}", "package", text, "0")


@cache
def split(dependency: str) -> tuple[str, str, str]:
    """Return (name, range, build) of a dependency of a record; what is left out is "*".

    "libblas * *mkl" is ("libblas", "*", "*mkl"). What users and conda's history write is read too:
    "cuda-version=13.0", "numpy>=2", "conda-forge::numpy[version='>=2']".
    """
    try:
        name, version_range, build = _rules().split(dependency)
    except Exception:  # the records of a channel may have what its solver cannot read
        name, version_range, build = Own().split(dependency)
    return name, version_range or "*", build or "*"


def require_spec(text: str, path: str = "") -> None:
    """Raise InputError for a text of a user, or of the file at `path`, that is no match spec."""
    detail = "this is a requirement of a wheel" if _OF_WHEELS.search(text) else ""
    try:
        _rules().split(text)
    except Exception as error:
        detail = detail or error_text(error)
    if detail:
        where = f"{path}: " if path else ""
        message = f"{where}{text}: is not a conda package and its version: {detail}"
        raise InputError(message, hint=SPEC_HINT)


def channel_of(spec: str) -> str:
    """Return the channel that a user's spec names: that of "bioconda::blast"; "" for none."""
    text, _, brackets = spec.partition("[")
    match = _CHANNEL.search(brackets)
    return match.group(1).strip() if match else text.rpartition("::")[0].strip()


def name_of(dependency: str) -> str:
    """Return the package that a dependency names."""
    return split(dependency)[0]


def text_of(name: str, version_range: str = "*", build: str = "*") -> str:
    """Return the match spec with these parts."""
    return " ".join((name, version_range, build)).removesuffix(" *").removesuffix(" *")


@cache
def matches(dependency: str, name: str, text: str, build: str) -> bool:
    """Return whether a dependency asks for a record of this name, version and build."""
    wanted, version_range, glob = split(dependency)
    return wanted == name and _rules().matches(
        text_of(name, version_range, glob), name, text, build
    )


def lower_bound(spec: str) -> str | None:
    """Return the oldest version that a range names; None for "*".

    ">=9.10.1.4,<10.0a0" gives "9.10.1.4", "12.9.*" gives "12.9".
    """
    match = _LOWER_BOUND.search(spec.partition("|")[0])
    return match.group(1).rstrip(".") if match else None


def newest_first(texts: Iterable[str]) -> list[str]:
    """Return versions in conda's order, newest first, each once."""
    return sorted(set(texts), key=version, reverse=True)


def one_of(texts: Iterable[str]) -> str:
    """Return the range that holds just these versions: "==9.11.0.98|==9.10.2.21"."""
    return "|".join(f"=={text}" for text in newest_first(texts))


# ---- own code ------------------------------------------------------------------------------------

# A run of digits or letters: (class, number, text). The classes order dev < letters < numbers.
_Run = tuple[int, float, str]
_ZERO: _Run = (1, 0.0, "")
_NAMED: dict[str, _Run] = {"post": (1, float("inf"), ""), "dev": (-1, 0.0, "")}
_LENGTH = 20  # of padded versions and their components: 1.0 is 1.0.0


def _components(text: str) -> list[list[_Run]]:
    """Return the runs of each component: those of "1.0rc1" are [1] and [0, rc, 1]."""
    components = []
    for component in filter(None, re.split(r"[._-]", text.lower())):
        runs = [
            (1, float(run), "") if run.isdigit() else _NAMED.get(run, (0, 0.0, run))
            for run in _RUN.findall(component)
        ]
        components.append([_ZERO, *runs] if component[0].isalpha() else runs)
    return components


def _padded(text: str) -> list[list[_Run]]:
    components = _components(text)
    components += [[]] * (_LENGTH - len(components))
    return [[*runs, *[_ZERO] * (_LENGTH - len(runs))] for runs in components]


def _key(text: str) -> Any:
    """Return a key in conda's order: 1.0dev < 1.0a1 < 1.0 == 1.0.0 < 1.0.post1 < 1.1."""
    epoch, _, release = text.strip().rpartition("!")
    main, _, local = release.partition("+")
    return int(epoch) if epoch.isdigit() else 0, _padded(main), _padded(local)


def _is_of_series(text: str, series: str) -> bool:
    """Return whether a version is of a series: 12.9.1 and 12.9b are of 12.9, 12.91 is not."""
    prefix, parts = _components(series), _components(text)
    parts += [[_ZERO]] * (len(prefix) - len(parts))
    last = len(prefix) - 1
    return parts[:last] == prefix[:last] and parts[last][: len(prefix[last])] == prefix[last]


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
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
    stem = bound.rstrip("*").rstrip(".")
    if "*" in stem:
        return fnmatch.fnmatchcase(text, bound) != (sign == "!=")
    if sign == "=" or (sign in ("", "!=") and stem != bound):
        return _is_of_series(text, stem) != (sign == "!=")
    if sign == "~=":
        return _key(text) >= _key(stem) and _is_of_series(text, bound.rpartition(".")[0])
    return _COMPARISONS[sign](_key(text), _key(stem))
