"""Why an index has no release that one need may take: data, not sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import Reason
from ..model import Wheel
from .candidates import Shelf
from .needs import DistNeed
from .selection import admitted

SHOWN = 6  # versions or tags in one reason


def lacking(shelf: Shelf, need: DistNeed, limits: Sequence[str] = (), by: str = "") -> Iterator[Reason]:
    """Every reason why no file of the need's name is a candidate; none if one is.

    `limits` are further ranges, of the user's constraints; `by` is the release that has the need. Codes: not-in-index,
    no-version, conflict (with a constraint), only-sdist, no-wheel-for-target, requires-python, hash, yanked.
    """
    for reason in _lacking(shelf, need, limits):
        yield reason.replace(need=f"{reason.need}, for {by}") if by else reason


def _lacking(shelf: Shelf, need: DistNeed, limits: Sequence[str]) -> Iterator[Reason]:
    contains, ranges = shelf.environment.contains, [one for one in (need.specifier, *limits) if one]

    def inside(version: str) -> bool:
        return all(contains(one, version, True) for one in ranges)

    if need.url is not None:
        if not shelf.direct(need.name, need.url):
            yield from _unfit(shelf, need, [shelf.index.direct(need.name, need.url)])
        return
    files = list(shelf.index.wheels(need.name))
    sdists = list(shelf.index.sdists(need.name))
    if not files and not sdists:
        yield Reason(code="not-in-index", subject=need.name, need="a wheel", have="no index has the package")
        return
    asked = [one for one in files if inside(one.version)]
    sources = [one for one in sdists if inside(one.version)]
    if not asked and not sources:
        versions = list(dict.fromkeys(one.version for one in files or sdists))
        have = f"{versions[-1]} to {versions[0]}" if len(versions) > 1 else versions[0]
        alone = not need.specifier or any(contains(need.specifier, one, True) for one in versions)
        said = " and ".join([f"{need.name}{need.specifier}", *(f"the constraint {need.name}{one}" for one in limits)])
        code = "conflict" if limits and alone else "no-version"
        yield Reason(code=code, subject=need.name, need=said, have=have)
        return
    fitting = [one for one in shelf.candidates(need.name) if inside(one.version)]
    if not fitting:
        yield from _unfit(shelf, need, [*asked, *sources])
    elif not admitted(fitting, ranges, shelf.environment.is_prerelease, pre=shelf.request.pre):
        have = f"yanked: {_some([one.version for one in fitting if one.wheel.yanked is not None])}"
        what = "a release that is not yanked, or one that == names"
        yield Reason(code="yanked", subject=str(need), need=what, have=have, source="PEP 592")


def _unfit(shelf: Shelf, need: DistNeed, files: Sequence[Wheel]) -> Iterator[Reason]:
    """Why none of some files fits the target and the request."""
    allowed = dict(shelf.request.hashes).get(need.name)
    wheels = [one for one in files if one.filename.endswith(".whl")]
    sources = [one for one in files if one not in wheels]
    fits = [one for one in wheels if shelf.environment.rank(one.filename) is not None]
    fits += [one for one in sources if need.name in shelf.request.allow_sdist]
    right = [one for one in fits if shelf.environment.accepts_python(one.requires_python)]
    if right and allowed is not None:
        have = _some([f"{one.filename} with sha256 {one.sha256}" for one in right], 2)
        hashes = _some([f"sha256 {one}" for one in allowed], 2)
        yield Reason(code="hash", subject=str(need), need=f"a file with {hashes}", have=have)
        return
    if fits or (files and not wheels and sources and need.name in shelf.request.allow_sdist):
        pythons = _some([one.requires_python or "any" for one in fits])
        python = shelf.host.python
        have = f"Python {python.full_version or f'{python.version[0]}.{python.version[1]}'}"
        yield Reason(code="requires-python", subject=str(need), need=f"Python {pythons}", have=have)
    elif wheels:
        yield _no_wheel(shelf, need, wheels)
    if sources and need.name not in shelf.request.allow_sdist:
        have = f"only source distributions: {_some([one.version for one in sources])}"
        what = f"a wheel, or --allow-sdist {need.name}"
        yield Reason(code="only-sdist", subject=str(need), need=what, have=have)


def _no_wheel(shelf: Shelf, need: DistNeed, wheels: Sequence[Wheel]) -> Reason:
    python = shelf.host.python
    target = f"a wheel for CPython {python.version[0]}.{python.version[1]}{'t' * python.free_threaded}"
    glibc = f" with glibc {shelf.host.glibc[0]}.{shelf.host.glibc[1]}" if shelf.host.glibc else ""
    return Reason(
        code="no-wheel-for-target",
        subject=str(need),
        need=f"{target} on {shelf.host.platform}{glibc}",
        have=", ".join(sorted({_tags(one.filename) for one in wheels})[:SHOWN]),
    )


def _tags(filename: str) -> str:
    return "-".join(filename[:-4].split("-")[-3:])


def _some(texts: Sequence[str], most: int = SHOWN) -> str:
    """The first of them, each once."""
    different = list(dict.fromkeys(texts))
    return ", ".join(different[:most]) + (f" and {len(different) - most} more" if len(different) > most else "")
