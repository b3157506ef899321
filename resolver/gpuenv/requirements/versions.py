"""Names, versions, specifiers and requirements, without `packaging` where their spelling is a usual one.

Importing packaging takes a third of the time that a whole solve may take. What nearly every version and specifier
looks like ("2.15.0", "2.13.0+cu126", ">=1.21", "==13.2.*") is compared here, by the rules of PEP 440; for any other
spelling packaging is asked. Tests hold both to packaging's own answers.
"""

from __future__ import annotations

from functools import cache

from packaging.version import Version

from ..errors import InputError
from ..model import Requirement

_PRE_WORDS = ("a", "b", "rc")
_FINAL = (len(_PRE_WORDS), 0)  # where a release that is no pre-release stands among those

Plain = tuple[tuple[int, ...], tuple[int, int], int, str]
VersionKey = tuple[int, tuple[int, ...], tuple[int, int], int, float, tuple[tuple[int, str], ...]]


# ---- names and versions ---------------------------------------------------------------------------------------


def normalize_name(name: str) -> str:
    """The PEP 503 form: lower case, runs of -, _ and . become one dash."""
    name = name.lower().replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name


def _release(text: str) -> tuple[int, ...] | None:
    """The numbers of "2.15.0" without trailing zeros; None for anything else."""
    parts = text.split(".")
    if not (text.isascii() and all(map(str.isdigit, parts))):
        return None
    numbers = [int(part) for part in parts]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


@cache  # a solve compares each version many times
def _plain(text: str) -> Plain | None:
    """(release, pre-release, post-release, local part) of a version in the usual spelling; None for anything else."""
    public, plus, local = text.partition("+")
    if plus and not (local.isascii() and local.isalnum() and local.islower()):
        return None
    public, dot, post = public.partition(".post")
    number, pre = public.rstrip("0123456789"), _FINAL
    for rank, word in enumerate(_PRE_WORDS):
        if number.endswith(word) and len(number) < len(public):
            pre = rank, int(public[len(number) :])
            public = number.removesuffix(word)
            break
    release = _release(public)
    if release is None or (dot and not (post.isascii() and post.isdigit())):
        return None
    return release, pre, int(post) if dot else -1, local


def _version(text: str) -> Version:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text)
    except InvalidVersion:
        raise InputError(f"{text!r} is not a version: write it as PEP 440 does, for example 2.15.0") from None


def version_key(text: str) -> VersionKey:
    """A key that orders versions as PEP 440 does. InputError for a text that is not a version."""
    plain = _plain(text)
    if plain is not None:
        release, pre, post, local = plain
        return 0, release, pre, post, float("inf"), ((-1, local),) if local else ()
    version = _version(text)
    release = version.release
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    if version.pre is not None:
        pre = _PRE_WORDS.index(version.pre[0]), version.pre[1]
    else:
        pre = (-1, 0) if version.post is None and version.dev is not None else _FINAL
    segments = version.local.split(".") if version.local else []
    return (
        version.epoch,
        release,
        pre,
        -1 if version.post is None else version.post,
        float("inf") if version.dev is None else version.dev,
        tuple((int(segment), "") if segment.isdigit() else (-1, segment) for segment in segments),
    )


@cache
def _clause(text: str) -> tuple[str, Plain, int] | None:
    """(operator, version, how many numbers were written) of a plain clause; ".*" adds "*" to the operator."""
    operator = text[:2] if text[1:2] == "=" else text[:1]
    if operator not in (">=", "<=", "==", "!=", "~=", "<", ">"):
        return None
    version = text[len(operator) :].lstrip(" ")
    whole = operator in ("==", "!=")  # a local part and ".*" have a meaning only there
    if version.endswith(".*") and whole:
        operator, version, whole = operator + "*", version[:-2], False
    bound = _plain(version)
    written = version.count(".") + 1
    if bound is None or (operator == "~=" and written < 2):
        return None
    if not whole and (bound[2] >= 0 or bound[3]):
        return None
    if bound[1] != _FINAL and operator not in (">=", "<=", "==", "!="):
        return None  # the rules for pre-releases of the bound itself are packaging's business
    return operator, bound, written


@cache
def _clauses(specifier: str) -> list[tuple[str, Plain, int]] | None:
    """The clauses of a specifier set; None if one of them is not plain."""
    found = [_clause(clause.strip()) for clause in specifier.split(",")] if specifier else []
    return None if None in found else [clause for clause in found if clause]


def _prefix(release: tuple[int, ...], length: int) -> tuple[int, ...]:
    return (release + (0,) * length)[:length]


def _matches(found: Plain, operator: str, bound: Plain, written: int) -> bool:
    """Whether a release satisfies a plain clause. Releases have no trailing zeros, so tuples compare as PEP 440 says.

    A local part of `found` is passed over where the bound has none, and "> 1.0" does not admit 1.0.post1.
    """
    if operator in ("==*", "!=*"):
        return (_prefix(found[0], written) == _prefix(bound[0], written)) is (operator == "==*")
    if operator == "~=":
        return found[0] >= bound[0] and _prefix(found[0], written - 1) == _prefix(bound[0], written - 1)
    if operator in ("==", "!="):
        same = found[:3] == bound[:3] and bound[3] in ("", found[3])
        return same is (operator == "==")
    if operator in (">=", "<="):
        return found[:3] >= bound[:3] if operator == ">=" else found[:3] <= bound[:3]
    return found[0] > bound[0] if operator == ">" else found[0] < bound[0]


def contains(specifier: str, version: str, pre: bool) -> bool:
    """Whether a PEP 440 specifier set admits a version. `pre` lets pre-releases in.

    A local part of the version counts only where the specifier has one. InputError for nonsense.
    """
    plain = _plain(version)
    if plain is not None and plain[1] == _FINAL:
        clauses = _clauses(specifier)
        if clauses is not None:
            return all(_matches(plain, *clause) for clause in clauses)
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        wanted = SpecifierSet(specifier)
    except InvalidSpecifier:
        raise InputError(f"{specifier!r} is not a version specifier such as '>=2.5,<3'") from None
    found = _version(version)
    return wanted.contains(found, prereleases=pre or not found.is_prerelease)


def is_prerelease(version: str) -> bool:
    """Whether PEP 440 calls the version an alpha, beta, candidate or development release."""
    plain = _plain(version)
    return _version(version).is_prerelease if plain is None else plain[1] != _FINAL


# ---- requirements ---------------------------------------------------------------------------------------------


_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."


def _split(text: str) -> tuple[str, tuple[str, ...], str]:
    """(name, extras, specifier) of `name[extra,...]specifier`, as they stand."""
    rest = text.lstrip(_NAME)
    name = text[: len(text) - len(rest)]
    if not rest.startswith("["):
        return name, (), rest
    inside, _, rest = rest[1:].partition("]")
    return name, tuple(inside.split(",")), rest


def _is_name(text: str) -> bool:
    return (
        text.isascii()
        and text.replace("-", "").replace("_", "").replace(".", "").isalnum()
        and (text[0].isalnum() and text[-1].isalnum())
    )


def _plain_requirement(text: str) -> Requirement | None:
    """Parses `name[extra,...]clause,...`, with no space and no marker; None for anything else."""
    name, extras, specifier = _split(text)
    if " " in specifier:
        return None
    clauses = specifier.split(",") if specifier else []
    if not (all(map(_is_name, (name, *extras))) and text.count("]") == bool(extras) and all(map(_clause, clauses))):
        return None
    return Requirement(
        name=normalize_name(name),
        extras=tuple(sorted(set(map(normalize_name, extras)))),
        specifier=",".join(sorted(set(clauses))),
    )


def parse_requirement(text: str) -> Requirement:
    """A PEP 508 text as a Requirement: name and extras normalized, the marker as packaging writes it.

    InputError for a text that is not a requirement.
    """
    plain = _plain_requirement(text)
    if plain is not None:
        return plain
    from packaging.requirements import InvalidRequirement
    from packaging.requirements import Requirement as Parsed

    try:
        parsed = Parsed(text)
    except InvalidRequirement as error:
        first = str(error).splitlines()[0] if str(error) else "not a requirement"
        raise InputError(f"{text!r} is not a requirement such as 'torch>=2.5': {first}") from None
    return Requirement(
        name=normalize_name(parsed.name),
        extras=tuple(sorted({normalize_name(extra) for extra in parsed.extras})),
        specifier=str(parsed.specifier),
        marker=None if parsed.marker is None else str(parsed.marker),
        url=parsed.url,
    )


@cache  # one release asks for what the next one does
def parse_stored_requirement(text: str) -> Requirement:
    """Like `parse_requirement`, for a text that scripts/build_snapshot.py wrote: all of it is normalized already."""
    head, semicolon, marker = text.partition("; ")
    name, extras, specifier = _split(head)
    return Requirement(name=name, extras=extras, specifier=specifier, marker=marker if semicolon else None)
