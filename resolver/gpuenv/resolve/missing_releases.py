"""Why no file of a package is a candidate for a requirement.

Codes of the reasons: not-in-index, no-version, no-offline-file, conflict (with a constraint),
only-wheels, no-wheel-for-target, requires-python, hash, yanked, prerelease, placeholder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_lowercase

from ..errors import Reason
from ..model import Build, Host, Wheel, show_pair
from ..requirements.target import wheel_tags
from ..requirements.versions import contains, is_prerelease, public
from .candidates import CandidateStore, is_exact, is_placeholder
from .graph import Candidate, PackageRequirement
from .release_facts import ReleaseFacts, python_text

SHOWN = 6  # versions or tags in one reason
NO_CANDIDATE = "no release of it can be chosen"  # the text if no file is missing


def missing_release_reason(
    store: CandidateStore, requirement: PackageRequirement, constraints: Sequence[str] = ()
) -> Reason | None:
    """Return why no file of a package is a candidate for a requirement; None if one is.

    Args:
        store: the candidates.
        requirement: the requirement.
        constraints: further ranges, those of the user's constraints.
    """
    name, subject = requirement.name, str(requirement)
    if requirement.url is not None:
        if store.at_url(name, requirement.url):
            return None
        return _unfit_files(store, name, subject, [store.index.direct(name, requirement.url)])
    ranges = [text for text in (requirement.specifier, *constraints) if text]
    candidates = store.in_ranges(store.candidates(name), ranges)
    if candidates:
        is_admitted = store.admitted(name, candidates, ranges)
        return None if is_admitted else _not_admitted(subject, candidates)
    files = store.index.files(name)
    if not files:
        have = "not found on any index"
        return Reason("not-in-index", name, "a wheel", have)
    unfit = [file for file in files if all(contains(text, file.version) for text in ranges)]
    if unfit:
        return _unfit_files(store, name, subject, unfit)
    return _no_version(store, requirement, constraints, files)


def missing_dependency_reason(
    store: CandidateStore, label: str, requirement: PackageRequirement
) -> Reason:
    """Return why no release can be chosen for a requirement of another release, if that is known.

    Args:
        store: the candidates.
        label: the name of the other release in the reason.
        requirement: its requirement.
    """
    reason = missing_release_reason(store, requirement)
    if reason is None:
        reason = Reason("no-candidate", "", "", NO_CANDIDATE)
    return Reason(reason.code, label, str(requirement), reason.have)


def _not_admitted(subject: str, candidates: Sequence[Candidate]) -> Reason:
    """Return why none of the candidates in a range is taken (see CandidateStore.admitted)."""
    versions = [candidate.version for candidate in candidates]
    yanked = [candidate.version for candidate in candidates if candidate.is_yanked]
    if all(map(is_placeholder, versions)):
        have = f"placeholders that reserve the name: {_first(versions)}"
        return Reason("placeholder", subject, "a real release", have)
    if all(map(is_prerelease, versions)):
        have = f"pre-releases: {_first(versions)}"
        need = "a final release for this target, or --pre"
        return Reason("prerelease", subject, need, have)
    return Reason(
        "yanked",
        subject,
        "a release that is not yanked, or one that == names",
        f"yanked: {_first(yanked)}",
        source="PEP 592",
    )


def _no_version(
    store: CandidateStore,
    requirement: PackageRequirement,
    constraints: Sequence[str],
    files: Sequence[Wheel],
) -> Reason:
    """Return that no version is in the ranges. `files` are those of all versions."""
    name, specifier = requirement.name, requirement.specifier
    need = f"{name}{specifier}"
    release, plus, _ = specifier.removeprefix("==").partition("+")
    # The default index has one build of each release under the plain version: torch 2.4.0 is the
    # build for CUDA 12.1.
    builds = store.data.builds(name, store.host.platform) if plus else ()
    builds = [build for build in builds if build.version == release]
    if not constraints:
        reason = _not_at_hand(store, requirement, builds, files)
        if reason is not None:
            return reason
    wheels = [file for file in files if not file.is_sdist]
    versions = list(dict.fromkeys(file.version for file in wheels or files))  # newest first
    has_version = not specifier or any(contains(specifier, text) for text in versions)
    for constraint in constraints:
        need += f" and the constraint {name}{constraint}"
    others = [f"{build.local} ({build.variant})" for build in builds if build.local in versions]
    have = ", ".join(others)
    if not have:
        have = " to ".join(dict.fromkeys((versions[-1], versions[0])))
        if store.data.covers(name) and store.index.at_hand(name):
            have += " (in the compatibility data)"
    code = "conflict" if constraints and has_version else "no-version"
    return Reason(code, name, need, have)


def _not_at_hand(
    store: CandidateStore,
    requirement: PackageRequirement,
    builds: Sequence[Build],
    files: Sequence[Wheel],
) -> Reason | None:
    """Return where a build or a library exists that `==` names; None if the data has none.

    `builds` are those of its release, `files` those of all versions.
    """
    name, specifier = requirement.name, requirement.specifier
    need = f"{name}{specifier}"
    for build in builds:
        if f"=={build.local}" == specifier:
            # The default index has a release for the same interpreters as other indexes.
            same = [file for file in files if public(file.version) == build.version]
            if same and not store.in_ranges(store.candidates(name), [f"=={build.version}"]):
                return _unfit_files(store, name, str(requirement), same)
            return no_file_reason(build, need)
    if not is_exact(specifier):
        return None
    exact = specifier.removeprefix("==").lower()  # local versions are lower case
    library = store.data.library(name, exact, store.host.platform)
    if library is None or not library.url:
        return None
    how = f"use --find-links {library.url}"
    if ".whl" in library.url:
        how = f"request it as '{name} @ {library.url}'"
    return Reason(
        "no-offline-file",
        f"{name} {library.version}",
        need,
        f"this build exists, but on no index: {how}",
        source=library.code.source,
    )


def no_file_reason(build: Build, need: str) -> Reason:
    """Return that a build of the compatibility data exists and that no file of it is known."""
    online = f"use a network and --extra-index-url {build.index}"
    return Reason(
        "no-offline-file",
        f"{build.name} {build.local}",
        need,
        f"this build exists, its files are not in the offline data: {online}, or --find-links",
        source=build.code.source,
    )


def missing_build_reasons(facts: ReleaseFacts, requirement: PackageRequirement) -> Iterator[Reason]:
    """Yield the best build in a range that would run here, but of which no file is known.

    If none would, and the files that are known are CPU builds, the reasons against the newest ones.

    Args:
        facts: the rules, for builds.
        requirement: the requirement; other names than those of frameworks and their companions
            have no such builds.
    """
    store, name, specifier = facts.store, requirement.name, requirement.specifier
    if "+" in specifier or store.request.default_index_only or store.index.is_bound(name):
        return
    candidates = store.candidates(name)
    # Other releases have no wheel for the interpreter on any index.
    versions = {public(candidate.version) for candidate in candidates}
    listed = {candidate.version for candidate in candidates}
    missing = [
        build
        for build in store.data.builds(name, store.host.platform)
        if build.version in versions
        and build.local not in listed
        and build.index != "default"
        and build.cuda is not None
        and contains(specifier, build.local)
    ]
    running = [build for build in missing if not facts.build_reasons(build)]
    newest = [build for build in running if build.version == running[0].version]
    if newest:
        python = f"CPython {show_pair(store.host.python.version)}"
        best = min(newest, key=store.code_order)
        yield no_file_reason(best, f"a wheel for {python} on {store.host.platform}")
    elif not any(one.build and one.build.cuda for one in store.in_ranges(candidates, [specifier])):
        for build in missing:
            if build.version == missing[0].version:
                yield from facts.build_reasons(build)


def _unfit_files(store: CandidateStore, name: str, subject: str, files: Sequence[Wheel]) -> Reason:
    """Return why none of some files fits the target and the request."""
    environment = store.environment
    takes_wheels = store.request.takes_wheels(name)
    wheels = [file for file in files if not file.is_sdist]
    fitting = []
    if takes_wheels:
        fitting = [wheel for wheel in wheels if environment.rank(wheel.filename) is not None]
    fitting += [file for file in files if file.is_sdist]
    for_python = [file for file in fitting if environment.accepts_python(file.requires_python)]
    hashes = dict(store.request.hashes).get(name)
    if for_python and hashes is not None:
        allowed = _first([f"sha256 {sha256}" for sha256 in hashes], 2)
        have = _first([f"{file.filename} with sha256 {file.sha256}" for file in for_python], 2)
        return Reason("hash", subject, f"a file with {allowed}", have)
    if for_python:
        have = "files of other indexes only, which --default-index-only excludes"
        need = "a file of the default index"
        return Reason("not-in-index", subject, need, have)
    if fitting:
        need = f"Python {_first([str(file.requires_python) for file in fitting])}"
        have = python_text(store.host)
        return Reason("requires-python", subject, need, have)
    if not takes_wheels:
        have = "wheels only, and --no-binary"
        return Reason("only-wheels", subject, "a source distribution", have)
    return _no_wheel_for_target(store.host, subject, wheels)


def _no_wheel_for_target(host: Host, subject: str, wheels: Sequence[Wheel]) -> Reason:
    """Return for what the wheels of a release are, the nearest first."""
    need = f"a wheel for CPython {host.python.release} on {host.platform}"
    if host.glibc:
        need += f" with glibc {show_pair(host.glibc)}"

    def distance(tags: str) -> tuple[bool, int, int]:
        """Sort tags of the target's platform, and of newer Pythons, first."""
        interpreter, _, platforms = tags.split("-")
        system, _, machine = host.platform.partition("-")
        is_near = platforms == "any" or (system in platforms and platforms.endswith(machine))
        digits = interpreter.partition(".")[0].lstrip(ascii_lowercase)
        return not is_near, -int(digits[:1] or 0), -int(digits[1:] or 0)

    tags = sorted(sorted({wheel_tags(wheel.filename) for wheel in wheels}), key=distance)
    have = ", ".join(tags[:SHOWN])
    return Reason("no-wheel-for-target", subject, need, have)


def _first(texts: Sequence[str], shown: int = SHOWN) -> str:
    """Return the first different texts, and how many more there are."""
    different = list(dict.fromkeys(texts))
    text = ", ".join(different[:shown])
    if len(different) > shown:
        text += f" and {len(different) - shown} more"
    return text
