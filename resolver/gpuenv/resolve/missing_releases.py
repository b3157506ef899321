"""Why no file of a package is a candidate for a requirement.

Codes of the reasons: not-in-index, no-version, no-offline-file, conflict (with a constraint),
only-wheels, no-wheel-for-target, requires-python, hash, yanked, prerelease, placeholder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_lowercase

from ..errors import Reason
from ..model import Build, Wheel, show_pair
from ..requirements.target import wheel_tags
from .candidates import CandidateStore
from .graph import Candidate, PackageRequirement
from .release_facts import ReleaseFacts, python_text
from .selection import is_placeholder

SHOWN = 6  # versions or tags in one reason
NO_CANDIDATE = "no release of it can be chosen"  # the text if no file is missing


def missing_release_reasons(
    store: CandidateStore,
    requirement: PackageRequirement,
    constraints: Sequence[str] = (),
    dependent: str = "",
) -> Iterator[Reason]:
    """Yield why no file of a package is a candidate for a requirement; nothing if one is.

    Args:
        store: the candidates.
        requirement: the requirement.
        constraints: further ranges, those of the user's constraints.
        dependent: the release that has the requirement; "" is the request.
    """
    reasons = _missing_release_reasons(store, requirement, constraints)
    if not dependent:
        yield from reasons
    else:
        for reason in reasons:
            yield reason.replace(need=f"{reason.need}, for {dependent}")


def missing_dependency_reason(
    store: CandidateStore, label: str, requirement: PackageRequirement
) -> Reason:
    """Return why no release can be chosen for a requirement of another release, if that is known.

    Args:
        store: the candidates.
        label: the name of the other release in the reason.
        requirement: its requirement.
    """
    code, have = "no-candidate", NO_CANDIDATE
    for reason in missing_release_reasons(store, requirement):
        code, have = reason.code, reason.have
    return Reason(code=code, subject=label, need=str(requirement), have=have)


def _missing_release_reasons(
    store: CandidateStore, requirement: PackageRequirement, constraints: Sequence[str]
) -> Iterator[Reason]:
    name = requirement.name
    if requirement.url is not None:
        if not store.at_url(name, requirement.url):
            file = store.index.direct(name, requirement.url)
            yield from _unfit_file_reasons(store, requirement, [file])
        return
    ranges = [text for text in (requirement.specifier, *constraints) if text]
    contains = store.environment.contains

    def in_ranges(version: str) -> bool:
        return all(contains(specifier, version, True) for specifier in ranges)

    fitting = [candidate for candidate in store.candidates(name) if in_ranges(candidate.version)]
    if fitting:
        if not store.admitted(name, fitting, ranges):
            yield _not_admitted_reason(store, str(requirement), fitting)
        return
    files = [*store.index.wheels(name), *store.index.sdists(name)]
    files_in_ranges = [file for file in files if in_ranges(file.version)]
    if not files:
        have = "not found on any index"
        yield Reason(code="not-in-index", subject=name, need="a wheel", have=have)
    elif files_in_ranges:
        yield from _unfit_file_reasons(store, requirement, files_in_ranges)
    else:
        yield _no_version_reason(store, requirement, constraints, files)


def _not_admitted_reason(
    store: CandidateStore, subject: str, candidates: Sequence[Candidate]
) -> Reason:
    """Return why none of the candidates in a range is taken (see selection.admitted)."""
    yanked = [candidate.version for candidate in candidates if candidate.is_yanked]
    versions = [candidate.version for candidate in candidates]
    if all(map(is_placeholder, versions)):
        have = f"placeholders that reserve the name: {_first(versions)}"
        return Reason(code="placeholder", subject=subject, need="a real release", have=have)
    prereleases = list(filter(store.environment.is_prerelease, versions))
    if len(prereleases) == len(versions):
        have = f"pre-releases: {_first(prereleases)}"
        need = "a final release for this target, or --pre"
        return Reason(code="prerelease", subject=subject, need=need, have=have)
    return Reason(
        code="yanked",
        subject=subject,
        need="a release that is not yanked, or one that == names",
        have=f"yanked: {_first(yanked)}",
        source="PEP 592",
    )


def _no_version_reason(
    store: CandidateStore,
    requirement: PackageRequirement,
    constraints: Sequence[str],
    files: Sequence[Wheel],
) -> Reason:
    """Return that no version is in the ranges. `files` are those of all versions."""
    if not constraints:
        reason = _known_build_reason(store, requirement)
        if reason is not None:
            return reason
    name, specifier = requirement.name, requirement.specifier
    wheels = [file for file in files if _is_wheel(file)]
    versions = list(dict.fromkeys(file.version for file in wheels or files))
    code = "no-version"
    if constraints and _has_version(store, specifier, versions):
        code = "conflict"  # with the constraints
    needs = [f"{name}{specifier}"]
    needs += [f"the constraint {name}{constraint}" for constraint in constraints]
    have = _listed_builds(store, requirement, versions) or _version_range(store, name, versions)
    return Reason(code=code, subject=name, need=" and ".join(needs), have=have)


def _known_build_reason(store: CandidateStore, requirement: PackageRequirement) -> Reason | None:
    """Return that no index has the required build; None if the data does not know the build."""
    name, specifier = requirement.name, requirement.specifier
    for build in _builds_of_same_release(store, requirement):
        if f"=={build.local}" == specifier:
            return no_file_reason(build, f"{name}{specifier}")
    exact = specifier.removeprefix("==").lower()  # local versions are lower case
    library = store.data.library(name, exact, store.host.platform)
    if library is None or not library.url:
        return None
    how = f"use --find-links {library.url}"
    if ".whl" in library.url:
        how = f"request it as '{name} @ {library.url}'"
    return Reason(
        code="no-offline-file",
        subject=f"{name} {library.version}",
        need=f"{name}{specifier}",
        have=f"this build exists, but on no index: {how}",
        source=library.code.source,
    )


def _has_version(store: CandidateStore, specifier: str, versions: Sequence[str]) -> bool:
    """Return whether a version is in the range of a requirement, without its constraints."""
    contains = store.environment.contains
    return not specifier or any(contains(specifier, version, True) for version in versions)


def _listed_builds(
    store: CandidateStore, requirement: PackageRequirement, versions: Sequence[str]
) -> str:
    """Return the other builds of the required release that the index has; "" without any."""
    builds = _builds_of_same_release(store, requirement)
    return ", ".join(
        f"{build.local} ({build.variant})" for build in builds if build.local in versions
    )


def _version_range(store: CandidateStore, name: str, versions: Sequence[str]) -> str:
    """Return the oldest and the newest version. `versions` begins with the newest one."""
    newest, oldest = versions[0], versions[-1]
    text = newest if newest == oldest else f"{oldest} to {newest}"
    if store.is_in_data(name) and store.index.at_hand(name):
        text += " (in the compatibility data)"
    return text


def no_file_reason(build: Build, need: str) -> Reason:
    """Return that a build of the compatibility data exists and that no file of it is known."""
    online = f"use a network and --extra-index-url {build.index}"
    return Reason(
        code="no-offline-file",
        subject=f"{build.name} {build.local}",
        need=need,
        have=f"this build exists, its files are not in the offline data: {online}, or --find-links",
        source=build.code.source,
    )


def missing_build_reasons(
    store: CandidateStore, facts: ReleaseFacts, requirement: PackageRequirement
) -> Iterator[Reason]:
    """Yield the builds of a requested release that would run here, but of which no file is known.

    Args:
        store: the candidates.
        facts: the rules, for builds.
        requirement: the requirement; other names than those of frameworks have no such builds.
    """
    specifier = requirement.specifier
    if not store.on_path(requirement.name) or not specifier.startswith("==") or "+" in specifier:
        return
    if store.request.default_index_only:
        return
    contains = store.environment.contains
    candidates = store.candidates(requirement.name)
    if not any(contains(specifier, candidate.version, True) for candidate in candidates):
        return  # the release has no wheel for the interpreter on any index
    listed = {candidate.build.local for candidate in candidates if candidate.build}
    for build in store.data.builds(requirement.name, store.host.platform):
        if build.index == "default" or build.local in listed or build.cuda is None:
            continue
        if not contains(specifier, build.local, True) or facts.build_reasons(build):
            continue
        python = f"CPython {show_pair(store.host.python.version)}"
        yield no_file_reason(build, f"a wheel for {python} on {store.host.platform}")


def _builds_of_same_release(store: CandidateStore, requirement: PackageRequirement) -> list[Build]:
    """Return the known builds of the release of which a requirement names another build.

    The default index has one build of each release under the plain version: torch 2.4.0 is the
    build for CUDA 12.1.
    """
    public, plus, _ = requirement.specifier.removeprefix("==").partition("+")
    if not plus:
        return []
    builds = store.data.builds(requirement.name, store.host.platform)
    return [build for build in builds if build.version == public]


def _unfit_file_reasons(
    store: CandidateStore, requirement: PackageRequirement, files: Sequence[Wheel]
) -> Iterator[Reason]:
    """Yield why none of some files fits the target and the request."""
    environment, name, subject = store.environment, requirement.name, str(requirement)
    wheels = [file for file in files if _is_wheel(file)]
    tag_fits = [wheel for wheel in wheels if environment.rank(wheel.filename) is not None]
    if not store.request.takes_wheels(name):
        tag_fits = []
    tag_fits += [file for file in files if not _is_wheel(file)]
    python_fits = [file for file in tag_fits if environment.accepts_python(file.requires_python)]
    hashes = dict(store.request.hashes).get(name)
    if python_fits:
        if hashes is not None:
            yield _hash_reason(subject, hashes, python_fits)
        else:
            have = "files of other indexes only, which --default-index-only excludes"
            need = "a file of the default index"
            yield Reason(code="not-in-index", subject=subject, need=need, have=have)
        return
    if tag_fits:
        yield _python_reason(store, subject, tag_fits)
    elif not store.request.takes_wheels(name):
        have = "wheels only, and --no-binary"
        yield Reason(code="only-wheels", subject=subject, need="a source distribution", have=have)
    else:
        yield _no_wheel_reason(store, subject, wheels)


def _python_reason(store: CandidateStore, subject: str, files: Sequence[Wheel]) -> Reason:
    pythons = _first([str(file.requires_python) for file in files])
    have = python_text(store.host)
    return Reason(code="requires-python", subject=subject, need=f"Python {pythons}", have=have)


def _hash_reason(subject: str, hashes: Sequence[str], files: Sequence[Wheel]) -> Reason:
    allowed = _first([f"sha256 {sha256}" for sha256 in hashes], 2)
    have = _first([f"{file.filename} with sha256 {file.sha256}" for file in files], 2)
    return Reason(code="hash", subject=subject, need=f"a file with {allowed}", have=have)


def _no_wheel_reason(store: CandidateStore, subject: str, wheels: Sequence[Wheel]) -> Reason:
    host = store.host
    python = f"{host.python.version[0]}.{host.python.version[1]}"
    if host.python.free_threaded:
        python += "t"
    need = f"a wheel for CPython {python} on {host.platform}"
    if host.glibc:
        need += f" with glibc {host.glibc[0]}.{host.glibc[1]}"
    tags = sorted({wheel_tags(wheel.filename) for wheel in wheels})
    tags.sort(key=lambda text: _distance(text, host.platform))
    have = ", ".join(tags[:SHOWN])
    return Reason(code="no-wheel-for-target", subject=subject, need=need, have=have)


def _distance(tags: str, platform: str) -> tuple[bool, int, int]:
    """Return a key that sorts tags of the target's platform, and of newer Pythons, first."""
    python, _, platforms = tags.split("-")
    system, _, machine = platform.partition("-")
    is_near = platforms == "any" or (system in platforms and platforms.endswith(machine))
    digits = python.partition(".")[0].lstrip(ascii_lowercase)
    return not is_near, -int(digits[:1] or 0), -int(digits[1:] or 0)


def _is_wheel(file: Wheel) -> bool:
    return file.filename.endswith(".whl")


def _first(texts: Sequence[str], shown: int = SHOWN) -> str:
    """Return the first different texts, and how many more there are."""
    different = list(dict.fromkeys(texts))
    text = ", ".join(different[:shown])
    if len(different) > shown:
        text += f" and {len(different) - shown} more"
    return text
