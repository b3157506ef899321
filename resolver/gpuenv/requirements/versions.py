"""Names, versions, specifiers and requirements (PEP 503, 440, 508): the fast path beside packaging.

packaging is the authority, and importing its specifiers and requirements takes a good part of the
time of a whole solve. This module answers for the usual spellings, such as "2.15.0",
"2.13.0+cu126", ">=1.21", "==13.2.*", and asks packaging about every other spelling.
tests/test_environment.py compares all functions with packaging. docs/design.md has the measured
saving.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from ..errors import InputError
from ..model import Requirement

if TYPE_CHECKING:
    from packaging.version import Version  # heavy; imported where it is used

LONGEST_REQUIREMENT = 10_000  # characters
_LONGEST_VERSION = 500
_PRE_WORDS = ("a", "b", "rc")
# How releases spell these words, with their places. A word comes before those that it ends in.
_PRE_SPELLINGS = (("alpha", 0), ("beta", 1), ("a", 0), ("b", 1), ("rc", 2))
_FINAL = (len(_PRE_WORDS), 0)  # the place of a final release among the pre-releases
_BEFORE_PRE = (-1, 0)  # the place of a development release that is no other pre-release
_NO_POST = -1
_NO_DEV = float("inf")

VersionKey = tuple[int, tuple[int, ...], tuple[int, int], int, float, tuple[tuple[int, str], ...]]

_EXCLUDING = ("<", "!=")  # operators of clauses that ask for no version


# Named tuples are not used here: to make the class of one takes 1 % of a solve.


class _PlainVersion:
    """A version in the usual spelling.

    Attributes:
        release: its numbers without trailing zeros.
        is_pre: whether it is an alpha, beta, candidate or development release.
        is_post: whether it is a post-release.
        local: the local part, or "".
        public: everything but the local part. It compares as PEP 440 orders versions.
    """

    __slots__ = ("is_post", "is_pre", "local", "public", "release")

    def __init__(
        self,
        release: tuple[int, ...],
        pre: tuple[int, int] = _FINAL,
        post: int = _NO_POST,
        dev: float = _NO_DEV,
        local: str = "",
    ) -> None:
        if dev != _NO_DEV and pre == _FINAL and post == _NO_POST:
            pre = _BEFORE_PRE
        self.release = release
        self.is_pre = pre != _FINAL or dev != _NO_DEV
        self.is_post = post != _NO_POST
        self.local = local
        self.public = (release, pre, post, dev)


class _PlainClause:
    """A clause of a specifier set in the usual spelling.

    Attributes:
        sign: the operator, with a "*" at the end for a version that ends in ".*".
        bound: the version.
        length: how many numbers the release of the bound was written with.
    """

    __slots__ = ("bound", "length", "sign")

    def __init__(self, sign: str, bound: _PlainVersion, length: int) -> None:
        self.sign = sign
        self.bound = bound
        self.length = length


# ---- names --------------------------------------------------------------------------------------


@cache
def normalize_name(name: str) -> str:
    """Return the PEP 503 form of a name: lower case, each run of -, _ and . one dash."""
    name = name.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name


# ---- versions -----------------------------------------------------------------------------------


def version_key(text: str) -> VersionKey:
    """Return a key that orders versions as PEP 440 does.

    Raises:
        InputError: the text is not a version.
    """
    plain = _plain_version(text)
    if plain is None:
        return _key_of_any(_version(text))
    local = ((-1, plain.local),) if plain.local else ()
    return 0, *plain.public, local


def is_prerelease(version: str) -> bool:
    """Return whether PEP 440 calls a version an alpha, beta, candidate or development release."""
    plain = _plain_version(version)
    if plain is None:
        return _version(version).is_prerelease
    return plain.is_pre


@cache  # a solve compares each version many times
def _plain_version(text: str) -> _PlainVersion | None:
    """Return a version in the usual spelling; None for any other text."""
    if len(text) > _LONGEST_VERSION:
        return None
    numbers = _plain_release(text)
    if numbers is not None:  # most versions have nothing else
        return _PlainVersion(numbers)
    public, plus, local = text.partition("+")
    if plus and not (local.isascii() and local.isalnum() and local.islower()):
        return None
    public, has_dev, dev = public.partition("dev")
    if has_dev:  # google's packages require "<3.0.0dev"
        public, dev = public.removesuffix("."), dev or "0"
    public, has_post, post = public.partition(".post")
    if not (_is_number(dev, has_dev) and _is_number(post, has_post)):
        return None
    pre = _FINAL
    before_number = public.rstrip("0123456789")
    stem = before_number.removesuffix(".")  # boto's packages require "<2.0a.0"
    for word, place in _PRE_SPELLINGS:
        if stem.endswith(word) and len(before_number) < len(public):
            pre = place, int(public[len(before_number) :])
            public = stem.removesuffix(word).removesuffix(".")  # others require ">=1.0.beta2"
            break
    release = _plain_release(public)
    if release is None:
        return None
    post_number = int(post) if has_post else _NO_POST
    return _PlainVersion(release, pre, post_number, int(dev) if has_dev else _NO_DEV, local)


def _is_number(text: str, word: str) -> bool:
    """Return whether a text after a word such as ".post" is a number; "" without the word."""
    return text.isascii() and text.isdigit() if word else not text


def _plain_release(text: str) -> tuple[int, ...] | None:
    """Return the numbers of "2.15.0" without trailing zeros; None for any other text."""
    parts = text.split(".")
    if not (text.isascii() and all(map(str.isdigit, parts))):
        return None
    return _without_trailing_zeros(tuple(map(int, parts)))


def _without_trailing_zeros(release: tuple[int, ...]) -> tuple[int, ...]:
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    return release


def _version(text: str) -> Version:
    from packaging.version import Version

    if len(text) > _LONGEST_VERSION:
        raise InputError(f"a version has more than {_LONGEST_VERSION} characters")
    try:
        return Version(text)
    except ValueError:
        raise InputError(
            f"{text!r} is not a version: write it as PEP 440 does, for example 2.15.0"
        ) from None


def _key_of_any(version: Version) -> VersionKey:
    """Return the key of a version in any spelling."""
    pre = _FINAL
    if version.pre is not None:
        pre = _PRE_WORDS.index(version.pre[0]), version.pre[1]
    elif version.post is None and version.dev is not None:
        pre = _BEFORE_PRE
    segments = (version.local or "").split(".")
    local = tuple(_local_key(segment) for segment in segments if segment)
    return (
        version.epoch,
        _without_trailing_zeros(version.release),
        pre,
        _NO_POST if version.post is None else version.post,
        _NO_DEV if version.dev is None else version.dev,
        local,
    )


def _local_key(segment: str) -> tuple[int, str]:
    if segment.isdigit():
        return int(segment), ""
    return -1, segment


# ---- specifiers ---------------------------------------------------------------------------------


def contains(specifier: str, version: str, pre: bool) -> bool:
    """Return whether a PEP 440 specifier set admits a version.

    A local part of the version counts only if the specifier has one.

    Args:
        specifier: clauses, separated by commas; "" admits every version.
        version: the version.
        pre: whether pre-releases are admitted.

    Raises:
        InputError: the specifier or the version is not valid.
    """
    plain = _plain_version(version)
    if plain is not None:
        clauses = _plain_clauses(specifier)
        if clauses is not None:
            is_admitted = pre or not plain.is_pre
            return is_admitted and all(_matches(plain, clause) for clause in clauses)
    from packaging.specifiers import SpecifierSet

    parsed = _version(version)
    try:
        specifiers = SpecifierSet(specifier)
        return specifiers.contains(parsed, prereleases=pre or not parsed.is_prerelease)
    except ValueError:
        raise _not_a_specifier(specifier) from None


@cache
def names_prerelease(specifier: str) -> bool:
    """Return whether a specifier set asks for a pre-release, which admits pre-releases (PEP 440).

    A clause that excludes one does not: `<1.0a1` keeps all releases of 1.0 out.

    Raises:
        InputError: the specifier is not valid.
    """
    clauses = _plain_clauses(specifier)
    if clauses is not None:
        return any(clause.bound.is_pre and clause.sign not in _EXCLUDING for clause in clauses)
    from packaging.specifiers import SpecifierSet

    try:
        return any(
            clause.prereleases and clause.operator not in _EXCLUDING
            for clause in SpecifierSet(specifier)
        )
    except ValueError:
        raise _not_a_specifier(specifier) from None


def _not_a_specifier(specifier: str) -> InputError:
    """Return the error for a specifier that packaging refuses, or whose numbers are too long."""
    shown = repr(specifier[:_LONGEST_VERSION])
    return InputError(f"{shown} is not a version specifier such as '>=2.5,<3'")


@cache
def _plain_clauses(specifier: str) -> tuple[_PlainClause, ...] | None:
    """Return the clauses of a specifier set; None if the spelling of one is not usual."""
    if not specifier:
        return ()
    clauses = []
    for text in filter(str.strip, specifier.split(",")):
        clause = _plain_clause(text.strip())
        if clause is None:
            return None
        clauses.append(clause)
    return tuple(clauses)


@cache
def _plain_clause(text: str) -> _PlainClause | None:
    """Return a clause in the usual spelling; None for any other text."""
    sign = text[:2] if text[1:2] == "=" else text[:1]
    if sign not in (">=", "<=", "==", "!=", "~=", "<", ">"):
        return None
    version = text[len(sign) :].lstrip(" ")
    if sign in ("==", "!=") and version.endswith(".*"):
        sign, version = sign + "*", version[:-2]
    bound = _plain_version(version)
    rest = version.lstrip("0123456789.")
    numbers = version[: len(version) - len(rest)].rstrip(".")
    length = numbers.count(".") + 1
    if bound is None or not _is_plain_bound(sign, bound, length):
        return None
    return _PlainClause(sign, bound, length)


def _is_plain_bound(sign: str, bound: _PlainVersion, length: int) -> bool:
    """Return whether the comparison of versions alone decides about a clause.

    PEP 440 has further rules for local parts, which have a meaning with == and != only, for
    post-releases as bounds of <, > and ~=, for pre-releases as bounds of >, and for ~= with a
    single number.
    """
    if sign not in ("==", "!=") and bound.local:
        return False
    if sign not in (">=", "<=", "==", "!=") and bound.is_post:
        return False
    if sign not in (">=", "<=", "==", "!=", "~=", "<") and bound.is_pre:
        return False
    return sign != "~=" or length > 1


def _matches(version: _PlainVersion, clause: _PlainClause) -> bool:
    """Return whether a release satisfies a clause.

    A local part of the version counts only if the bound has one. "> 1.0" does not admit 1.0.post1,
    and "< 1.0" does not admit 1.0rc1.
    """
    sign, bound = clause.sign, clause.bound
    if sign in ("==", "!="):
        same = version.public == bound.public and bound.local in ("", version.local)
        return same is (sign == "==")
    if sign in ("==*", "!=*"):
        return _same_prefix(version, bound, clause.length) is (sign == "==*")
    if sign == "~=":
        same = _same_prefix(version, bound, clause.length - 1)
        return same and version.public >= bound.public
    if sign == ">":
        return version.release > bound.release
    if sign == "<" and not bound.is_pre:
        return version.release < bound.release
    is_ordered = (version.public > bound.public) is (sign == ">=")
    return sign != "<" if version.public == bound.public else is_ordered


def _same_prefix(version: _PlainVersion, bound: _PlainVersion, length: int) -> bool:
    """Return whether the first `length` numbers of two releases are the same."""
    padding = (0,) * length
    return (version.release + padding)[:length] == (bound.release + padding)[:length]


class Versions:
    """The versions of a package, sorted: a bound is found without a look at every version.

    Args:
        versions: PEP 440 versions in any order.
        newest_first: whether they are sorted already, the newest first.
    """

    def __init__(self, versions: Iterable[str], *, newest_first: bool = False) -> None:
        self._versions = list(dict.fromkeys(versions))  # the oldest first
        if newest_first:
            self._versions.reverse()
        else:
            self._versions.sort(key=version_key)
        self._of_clause: dict[str, frozenset[str]] = {}

    def admitted(self, specifier: str) -> frozenset[str]:
        """Return the versions that a specifier set contains; pre-releases are admitted.

        Raises:
            InputError: the specifier is not valid.
        """
        sets = [self._admitted_by_clause(text.strip()) for text in specifier.split(",")]
        return sets[0].intersection(*sets[1:])

    def _admitted_by_clause(self, text: str) -> frozenset[str]:
        if text not in self._of_clause:
            self._of_clause[text] = self._find(text)
        return self._of_clause[text]

    def _find(self, text: str) -> frozenset[str]:
        """Return the versions that a clause contains; it is compared with few of them."""
        clause = _plain_clause(text)
        admitted: list[str] = []
        first, last = 0, len(self._versions)  # the versions that have to be compared
        if clause is not None:
            first, last = self._near(clause)
            if clause.sign.startswith(("<", "!")):
                admitted += self._versions[:first]
            if clause.sign.startswith((">", "!")):
                admitted += self._versions[last:]
        for version in self._versions[first:last]:
            if contains(text, version, pre=True):
                admitted.append(version)
        return frozenset(admitted)

    def _near(self, clause: _PlainClause) -> tuple[int, int]:
        """Return the range of the versions for which more than the order of releases counts.

        These have the release of the bound, or the part of it that ==2.15.* and ~=2.15.1 name.
        Rules for pre-releases, post-releases and local versions concern no other release.
        """
        sign, bound, length = clause.sign, clause.bound, clause.length
        if sign == "~=":
            length -= 1
        elif not sign.endswith("*"):
            release = (0, bound.release)
            first = bisect_left(self._versions, release, key=_epoch_and_release)
            return first, bisect_right(self._versions, release, key=_epoch_and_release)
        prefix = (bound.release + (0,) * length)[:length]
        following = (*prefix[:-1], prefix[-1] + 1)
        start, end = (0, _without_trailing_zeros(prefix)), (0, following)
        first = bisect_left(self._versions, start, key=_epoch_and_release)
        return first, bisect_left(self._versions, end, key=_epoch_and_release)


def _epoch_and_release(version: str) -> tuple[int, tuple[int, ...]]:
    plain = _plain_version(version)
    return (0, plain.release) if plain is not None else version_key(version)[:2]


# ---- requirements -------------------------------------------------------------------------------

_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."


def corrected_requirement(text: str) -> str:
    """Return "torch==2.9" for "torch=2.9" and "torch 2.9", where that is meant; "" for others."""
    mistaken = re.fullmatch(r"([\w.\[\],-]+)(?:\s*=\s*([\w.]+)|\s+v?(\d[\w.]*))", text)
    return f"{mistaken[1]}=={mistaken[2] or mistaken[3]}" if mistaken else ""


@cache  # a solve reads the requirements of a framework for each of its releases
def parse_requirement(text: str) -> Requirement:
    """Return a PEP 508 text as a Requirement.

    The name and the extras are normalized; the marker is written as packaging writes it.

    Raises:
        InputError: the text is not a requirement.
    """
    if len(text) > LONGEST_REQUIREMENT:
        raise InputError(f"a requirement has more than {LONGEST_REQUIREMENT} characters")
    plain = _plain_requirement(text)
    if plain is not None:
        return plain
    from packaging.requirements import Requirement as ParsedRequirement

    try:
        parsed = ParsedRequirement(text)
    except (ValueError, RecursionError) as error:
        detail = (str(error) or "not a requirement").splitlines()[0]
        message = f"{text!r} is not a requirement such as 'torch>=2.5': {detail}"
        corrected = corrected_requirement(text)
        hint = f"write {corrected}" if corrected else ""
        raise InputError(message, hint=hint) from None
    return Requirement(
        name=normalize_name(parsed.name),
        extras=tuple(sorted(set(map(normalize_name, parsed.extras)))),
        specifier=str(parsed.specifier),
        marker=None if parsed.marker is None else str(parsed.marker),
        url=parsed.url,
    )


@cache  # releases of one package share most of their dependencies
def parse_stored_requirement(text: str) -> Requirement:
    """Return a requirement of the index snapshot, where everything is normalized already."""
    head, semicolon, marker = text.partition("; ")
    name, extras, specifier = _split_requirement(head)
    return Requirement(
        name=name, extras=extras, specifier=specifier, marker=marker if semicolon else None
    )


def _plain_requirement(text: str) -> Requirement | None:
    """Return `name[extra,...]clause,...` without spaces; None for any other text."""
    name, extras, specifier = _split_requirement(text)
    if " " in specifier or text.count("]") != bool(extras):
        return None
    clauses = specifier.split(",") if specifier else []
    if not (all(map(_is_name, (name, *extras))) and all(map(_plain_clause, clauses))):
        return None
    return Requirement(
        name=normalize_name(name),
        extras=tuple(sorted(set(map(normalize_name, extras)))),
        specifier=",".join(sorted(set(clauses))),
    )


def _split_requirement(text: str) -> tuple[str, tuple[str, ...], str]:
    """Return (name, extras, specifier) of `name[extra,...]specifier` as they are written."""
    rest = text.lstrip(_NAME_CHARACTERS)
    name = text[: len(text) - len(rest)]
    if not rest.startswith("["):
        return name, (), rest
    extras, _, specifier = rest[1:].partition("]")
    return name, tuple(extras.split(",")), specifier


def _is_name(text: str) -> bool:
    if not text.isascii() or not text.replace("-", "").replace("_", "").replace(".", "").isalnum():
        return False
    return text[0].isalnum() and text[-1].isalnum()
