"""Checks of what is installed: interpreter, versions, glibc, dependencies, owners and files."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence

from packaging.markers import Marker, UndefinedEnvironmentName
from packaging.specifiers import SpecifierSet

from ..compat.data import CompatibilityData
from ..compat.extensions import may_describe_itself_as
from ..errors import InputError
from ..index.urls import file_url_to_path
from ..model import Check, Lock, Mark, Requirement, Value, first_texts, show_pair
from ..prefix import INSTALLATION_TOOLS, editable_url, is_conda, is_native
from ..probes.answers import FilesAnswer
from ..requirements.overrides import Overrides
from ..requirements.source_urls import is_editable
from ..requirements.target import LEGACY_POLICIES
from ..requirements.versions import parse_requirement
from .runner import Outcome, RunProbe
from .survey import RecordedFile, Survey, is_cuda_library, is_library

SHOWN = 6  # names in the evidence of one check
SHOWN_OWNERS = 3
_NO_GLIBC = (0, 0)  # less than any
# What an installer writes about an installation, and may leave out or rewrite.
_INSTALLER_FILES = {"RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED"}
_INSTALLER_FILES |= {"direct_url.json", "uv_build.json", "uv_cache.json"}


# ---- interpreter, versions, glibc, dependencies -------------------------------------------------


def survey_checks(lock: Lock | None, survey: Survey, data: CompatibilityData) -> list[Check]:
    """Return the checks "interpreter", "versions", "variants", "glibc" and "dependencies".

    "versions" needs a lock, "variants" one with variant wheels, and "glibc" a wheel that needs one.
    """
    interpreter = survey.interpreter
    version = ".".join(map(str, interpreter["version"]))
    evidence = f"{interpreter['implementation']} {version} at {interpreter['executable']}"
    status = "pass"
    needed = lock.needs.python if lock is not None else None
    if needed is not None and tuple(interpreter["version"][:2]) != needed:
        status = "fail"
        evidence += f"; the lock is for Python {show_pair(needed)}"
    checks = [Check("interpreter", "", status, evidence)]
    if interpreter["hidden"]:
        hidden = [f"{path} ({reason})" for path, reason in interpreter["hidden"]]
        texts = f"programs import {first_texts(hidden, ', ')} instead of the environment's"
        checks.append(Check("interpreter", "path", "unknown", texts))
    if lock is not None:
        checks.append(_version_check(lock, survey.versions))
        if lock.variants:
            checks.append(_variant_check(lock, survey))
    overrides = lock.overrides if lock is not None else ()
    return [*checks, *_glibc_check(survey), dependency_check(survey, data, overrides)]


def _glibc_check(survey: Survey) -> Iterator[Check]:
    """Check that glibc is as new as the wheels need.

    An environment may be mounted on an older host.
    """
    needs = []
    for row in survey.distributions:
        need = _wheel_glibc(row.read_text("WHEEL"))
        if need > _NO_GLIBC:
            needs.append((need, f"{row.name} {row.version}"))
    if not needs:
        return
    newest, newest_name = max(needs)
    own = survey.interpreter["glibc"]
    if own is None:
        evidence = (
            f"this system has no glibc, and {len(needs)} distributions are built for one: "
            f"{newest_name}"
        )
        yield Check("glibc", "", "unknown", evidence)
        return
    have = (own[0], own[1])
    too_new = sorted((need, name) for need, name in needs if need > have)
    if too_new:
        texts = [f"{name} is built for glibc {show_pair(need)}" for need, name in too_new]
        evidence = f"{first_texts(texts, ', ')}; this system has {show_pair(have)}"
        marks = tuple(("glibc", name, show_pair(need)) for need, name in too_new)
        yield Check("glibc", "", "fail", evidence, marks=marks)
        return
    newest_text = f"the newest that is needed is {show_pair(newest)} ({newest_name})"
    yield Check("glibc", "", "pass", f"{show_pair(have)}; {newest_text}")


def _wheel_glibc(wheel: str) -> tuple[int, int]:
    """Return the oldest glibc that a wheel is for, by the tags in its WHEEL (PEP 600)."""
    least = []
    for platform in re.findall(r"(?m)^Tag: \S+-(\w+)", wheel):
        for minor, legacy in LEGACY_POLICIES.items():
            platform = platform.replace(f"{legacy}_", f"manylinux_2_{minor}_")  # noqa: PLW2901
        match = re.match(r"manylinux_(\d+)_(\d+)_", platform)
        least.append((int(match[1]), int(match[2])) if match else _NO_GLIBC)
    return min(least, default=_NO_GLIBC)


def _version_check(lock: Lock, installed: Mapping[str, str]) -> Check:
    wrong = []
    for pin in lock.pins:
        name, version = pin.wheel.name, pin.wheel.version
        if name not in installed:
            wrong.append(f"{name} {version} is not installed")
        elif not (is_editable(pin.wheel) or may_describe_itself_as(version, installed[name])):
            wrong.append(f"{name} is {installed[name]}, the lock says {version}")
    expected = lock.versions.keys() | INSTALLATION_TOOLS
    others = sorted(set(installed) - expected)
    more = f"; not in the lock: {first_texts(others, ', ')}" if others else ""
    if wrong:
        return Check("versions", "", "fail", "; ".join(wrong[:SHOWN]) + more)
    return Check("versions", "", "pass", f"{len(lock.pins)} as locked{more}")


def _variant_check(lock: Lock, survey: Survey) -> Check:
    """Check that each variant wheel of the lock is installed as that variant (PEP 825)."""
    labels = {}
    for row in survey.distributions:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            (labels[row.name],) = json.loads(row.read_text("variant.json"))["variants"]
    wrong = []
    for variant in lock.variants:
        label = labels.get(variant.name)
        if label != variant.label:
            have = label or "no variant"
            wrong.append(f"{variant.name} is {have}, the lock says {variant.label}")
    if wrong:
        return Check("variants", "", "fail", first_texts(wrong))
    return Check("variants", "", "pass", f"{len(lock.variants)} as locked")


def dependency_check(survey: Survey, data: CompatibilityData, overrides: Sequence[str]) -> Check:
    """Check that what the distributions require is installed, in the versions they accept.

    The requirements are those of the metadata, as the overrides of the lock have them. Texts that
    are none are left out, as old distributions have them, and editable installs of the user.
    Markers are evaluated for the target's interpreter.
    """
    versions, requirements = survey.versions, _requirements(survey, Overrides(overrides))
    problems: dict[str, str] = {}  # text -> the distribution that is required
    accepted: dict[str, SpecifierSet] = {}
    count, replaced = 0, {}
    pending = [(name, "") for name, own in requirements.items() if own]
    known = set(pending)
    while pending:
        name, extra = pending.pop()
        variables = {**survey.interpreter["markers"], "extra": extra}
        for requirement in requirements.get(name, ()):
            if not _holds(requirement, variables):
                continue
            count += 1
            required = requirement.name
            text = f"{name} {versions[name]} requires {required}{requirement.specifier}"
            family = data.family(required)
            if required not in versions and family is not None and required in family.replaceable:
                others = [name for name in family.distributions if name in versions]
                if others:
                    replaced[required] = others[0]
            version = versions.get(replaced.get(required, required))
            specifier = SpecifierSet(requirement.specifier)
            accepted[required] = accepted.get(required, SpecifierSet()) & specifier
            if version is None:
                problems[f"{text}, which is not installed"] = required
            elif not specifier.contains(version, prereleases=True):
                present = replaced.get(required, required)
                problems[f"{text}; {present} {version} is installed"] = required
            wanted = {(required, wanted_extra) for wanted_extra in requirement.extras}
            pending += wanted - known
            known |= wanted
    if not problems:
        evidence = f"every requirement of the installed distributions holds ({count})"
        for required, other in sorted(replaced.items()):
            evidence += f"; {other} takes the place of {required}"
        return Check("dependencies", "", "pass", evidence)
    # A package of conda may have what a wheel requires under another name.
    status = "unknown" if survey.conda else "fail"
    marks = tuple(("required", name, str(accepted[name])) for name in sorted({*problems.values()}))
    return Check("dependencies", "", status, first_texts(sorted(problems)), marks=marks)


def _requirements(survey: Survey, overrides: Overrides) -> dict[str, list[Requirement]]:
    """Return {distribution: its requirements, as the overrides have them}."""
    requirements: dict[str, list[Requirement]] = {name: [] for name in survey.versions}
    for row in survey.distributions:
        is_current = row.has_own_record and not editable_url(row.info)
        for text in row.requires if is_current else ():
            with contextlib.suppress(InputError):
                requirements[row.name] += overrides.apply([parse_requirement(text)])
    return requirements


def _holds(requirement: Requirement, variables: dict[str, str]) -> bool:
    """Return whether a requirement applies; with an extra, whether it applies because of it."""
    if requirement.marker is None:
        return variables["extra"] == ""
    marker = Marker(requirement.marker)
    try:
        holds = marker.evaluate(variables)
        if variables["extra"]:
            # Without the extra it is checked anyway.
            holds = holds and not marker.evaluate({**variables, "extra": ""})
    except UndefinedEnvironmentName:
        return False
    return holds


def _is_bytecode(path: str) -> bool:
    """Return whether a path is bytecode or a __pycache__ folder; virtualenv records both."""
    return path.endswith((".pyc", "__pycache__"))


# ---- files and owners ---------------------------------------------------------------------------


class Comparison(Value):
    """The files that were compared with their RECORDs, in the order of the probe's answer.

    `hashed` are those of which the hash was compared, and not only the size.
    """

    files: tuple[RecordedFile, ...]
    hashed: frozenset[RecordedFile]
    outcome: Outcome


def compare_files(
    run_probe: RunProbe, survey: Survey, changed: Collection[str] | None = None
) -> Comparison:
    """Compare all files that RECORDs name with what they say, by the probe "files".

    Not compared: bytecode, what an installer writes about itself, and the files of conda and
    Debian. A path with two owners is read for each: the one whose hash it has wrote last.

    Args:
        changed: the distributions whose hashes are compared; None is all. Of the others the
            sizes are compared.
    """
    own = {row.name for row in survey.distributions if row.has_own_record}
    files = []
    for file in survey.files:
        folder, name = os.path.split(file.path)
        of_installer = folder.endswith(".dist-info") and name in _INSTALLER_FILES
        if file.owner in own and not of_installer and not _is_bytecode(file.path):
            files.append(file)
    hashed = frozenset(file for file in files if changed is None or file.owner in changed)
    # A file without a name: nothing is left of it, however this process ends.
    with tempfile.TemporaryFile("w") as stream:
        rows = [(file.path, file.size, file.digest if file in hashed else "") for file in files]
        json.dump(rows, stream)
        stream.flush()
        path = f"/proc/{os.getpid()}/fd/{stream.fileno()}"
        outcome = run_probe("files", {"files": path})
    return Comparison(files=tuple(files), hashed=hashed, outcome=outcome)


def file_checks(survey: Survey, comparison: Comparison, data: CompatibilityData) -> list[Check]:
    """Return the checks "owners" and "files", and "files changed" for changed data files."""
    wrong: dict[RecordedFile, str] | None = None
    if comparison.outcome.answer is not None:
        answer: FilesAnswer = comparison.outcome.answer
        wrong = {comparison.files[number]: reason for number, reason in answer["wrong"]}
    owners: dict[str, dict[str, RecordedFile]] = {}
    for file in survey.files:
        if not _is_bytecode(file.path) and ".dist-info/" not in file.path:
            owners.setdefault(file.path, {})[file.owner] = file
    shared = {path: list(files.values()) for path, files in owners.items() if len(files) > 1}
    checks = [_owner_check(survey, shared, wrong, data)]
    return [*checks, *_file_checks(survey, comparison, shared, wrong)]


def _owner_check(
    survey: Survey,
    shared: Mapping[str, Sequence[RecordedFile]],
    wrong: Collection[RecordedFile] | None,
    data: CompatibilityData,
) -> Check:
    """Check R5: no path belongs to two distributions, and no distribution is installed twice.

    Files with the same bytes (an empty __init__.py) conflict with nothing. A folder of tests that
    two packages install breaks nothing either, and is only mentioned, as the files of a tolerated
    family are, unless those of several releases are mixed.

    Args:
        shared: the files of the paths with several owners.
        wrong: the files that are not as recorded; None if that is not known.
    """
    texts: list[str] = []
    notes: list[str] = []
    marks: list[Mark] = []
    mixed: dict[tuple[str, ...], set[str]] = {}  # tolerated family -> those whose bytes are there
    for path, names, matching in _different_files(shared, wrong):
        family = data.family(names[0])
        members = family.distributions if family is not None and family.tolerated else ()
        tolerated = {*names} <= {*members}
        text = f"{' and '.join(names)} both own {path}"
        if matching is not None:
            whose = matching[0] if len(matching) == 1 else "neither"
            text += f": its bytes are those of {whose}"
            if tolerated and matching:
                mixed.setdefault(members, set()).add(whose)
        breaks = is_native(path) or any(name.startswith("nvidia-") for name in names)
        if breaks and not tolerated:
            texts.append(text)
            marks.append(("two-owners", path, " ".join(names)))
        else:
            notes.append(text)
    for whole in mixed.values():
        releases = sorted(f"{name} {survey.versions[name]}" for name in whole - {"neither"})
        if len({release.partition(" ")[2] for release in releases}) > 1:
            texts.append(f"the files of {' and '.join(releases)} are mixed: install one release")
    for name, versions in survey.twice:
        texts.append(f"{name} is installed twice, as {' and '.join(versions)}")
        marks.append(("twice", name, " ".join(versions)))
    if texts:
        # Libraries first: they break the environment.
        texts.sort(key=lambda text: ".so" not in text)
        evidence = first_texts(texts, shown=SHOWN_OWNERS)
        return Check("owners", "", "fail", evidence, marks=tuple(marks))
    evidence = "no file has two owners"
    if notes:
        notes.insert(0, "no file with two owners breaks a package")
        evidence = "; ".join(notes[: SHOWN_OWNERS + 1])
    return Check("owners", "", "pass", evidence)


def _different_files(
    shared: Mapping[str, Sequence[RecordedFile]], wrong: Collection[RecordedFile] | None
) -> Iterator[tuple[str, list[str], list[str] | None]]:
    """Yield the paths of which the owners have different bytes, with the owners.

    The last item names those whose bytes are there; None if that is not known.
    """
    for path, files in sorted(shared.items()):
        if len({file.digest for file in files}) == 1:
            continue
        matching = None
        if wrong is not None and os.path.exists(path):
            hashed = [file for file in files if file.digest.startswith("sha256=")]
            matching = [file.owner for file in hashed if file not in wrong]
        yield path, [file.owner for file in files], matching


def _file_checks(
    survey: Survey,
    comparison: Comparison,
    shared: Collection[str],
    wrong: Mapping[RecordedFile, str] | None,
) -> Iterator[Check]:
    """Check that the files of the distributions are there, and as their RECORDs say.

    One of two owners of a path finds the bytes of the other; the check "owners" reports what that
    means. Changed data and tests are a doubt: administrators extend cacert.pem. Installers rewrite
    scripts, so that a changed one says nothing.
    """
    outcome = comparison.outcome
    if wrong is None:
        yield Check("files", "", "unknown", outcome.failure, seconds=outcome.seconds)
        return
    damaged = list(_damaged_records(survey))
    texts = [f"{name} {problem}: reinstall it" for name, problem in damaged]
    marks: list[Mark] = [("no-record", name, "") for name, _ in damaged]
    prefix = survey.interpreter["prefix"]
    faults, data = _faults_of_files(wrong, shared, prefix)
    texts += [
        found[0] + (f", and {len(found) - 1} more of its files" if found[1:] else "")
        for found in faults.values()
    ]
    marks += [
        ("damaged", row.name, row.version)
        for row in survey.distributions
        if row.name in faults.keys() | dict(damaged).keys() and not row.is_direct
    ]
    texts += [f"{path} belongs to no distribution" for path in _unrecorded(survey, comparison)]
    marks += [
        ("library", os.path.relpath(file.path, prefix), file.digest)
        for file in sorted(comparison.files, key=lambda file: file.path)
        if file in comparison.hashed and file not in wrong and is_cuda_library(file.path)
    ]
    good = comparison.hashed - wrong.keys()
    amount = sum(int(file.size) for file in good if file.size.isdigit()) / 1e9
    others = len(comparison.files) - len(wrong) - len(good)
    evidence = f"{len(good)} files by sha256 ({amount:.1f} GB), {others} by size"
    status = "pass"
    if texts:
        status, evidence = "fail", first_texts(texts)
    yield Check("files", "", status, evidence, seconds=outcome.seconds, marks=tuple(marks))
    if data:
        evidence = f"data files are not as recorded: {first_texts(data, ', ')}"
        yield Check("files", "changed", "unknown", evidence)


def _faults_of_files(
    wrong: Mapping[RecordedFile, str], shared: Collection[str], prefix: str
) -> tuple[dict[str, list[str]], list[str]]:
    """Return what is wrong with files, by distribution, and the data files that are changed."""
    faults: dict[str, list[str]] = {}
    data = []
    for file, reason in wrong.items():
        parts = os.path.relpath(file.path, prefix).split(os.sep)
        of_nvidia = file.owner.startswith("nvidia-")
        is_code = is_library(file.path) or file.path.endswith(".py")
        if reason == "missing":
            faults.setdefault(file.owner, []).append(f"{file.path} of {file.owner} is missing")
        elif file.path in shared and not of_nvidia:
            continue
        elif of_nvidia or (is_code and not {"test", "tests"} & set(parts)):
            faults.setdefault(file.owner, []).append(f"{file.path} of {file.owner}: {reason}")
        elif parts[0] != "bin":
            data.append(f"{file.path} of {file.owner} ({reason})")
    return faults, data


def _damaged_records(survey: Survey) -> Iterator[tuple[str, str]]:
    """Yield (name, what is wrong) of the distributions that are not wholly installed here.

    Installers write RECORD last: a distribution without one is half installed.
    """
    recorded = {file.owner for file in survey.files}
    for row in survey.distributions:
        if not row.has_own_record or not row.info.endswith(".dist-info"):
            continue
        url = editable_url(row.info)
        if url and not os.path.exists(file_url_to_path(url)):
            yield row.name, f"is an editable install of {url}, which is not there"
        if not _fits_python(row.read_text("WHEEL"), survey.interpreter["version"]):
            yield row.name, "is a wheel for another Python"
        if row.name not in recorded:
            yield row.name, "has no RECORD"
        elif not row.read_text("RECORD").endswith(("\n", "/RECORD,,")):
            yield row.name, "has a RECORD that ends in the middle of a line"


def _fits_python(wheel: str, version: Sequence[int]) -> bool:
    """Return whether the tags in the WHEEL file of a wheel admit a Python version."""
    tags = re.findall(r"(?m)^Tag: (?:cp(\d)(\d+)|\w+)-(\w+)", wheel)
    own = (version[0], version[1])
    return not tags or any(
        not major or (int(major), int(minor)) == own or (abi == "abi3" and int(minor) < own[1])
        for major, minor, abi in tags
    )


def _unrecorded(survey: Survey, comparison: Comparison) -> list[str]:
    """Return the files beside CUDA libraries that no RECORD has.

    What an uninstallation has left in a folder `nvidia` belongs to no distribution. A link to a
    recorded file of the same folder counts as recorded. The files of conda and of Debian have other
    records.
    """
    interpreter = survey.interpreter
    folders = set()
    if not interpreter["is_system"] and not is_conda(interpreter["prefix"]):
        for site in {interpreter["purelib"], interpreter["platlib"]}:
            for folder, _, names in os.walk(os.path.join(site, "nvidia")):
                if any(map(is_library, names)):
                    folders.add(folder)
    for file in comparison.files:
        of_cuda = file.owner.startswith("nvidia-") or is_cuda_library(file.path)
        if of_cuda and is_library(file.path):
            folders.add(os.path.dirname(file.path))
    owned = {file.path for file in survey.files}
    unrecorded: list[str] = []
    for folder in sorted(filter(os.path.isdir, folders)):
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if path in owned or os.path.isdir(path) or _is_bytecode(path):
                continue
            linked = os.path.basename(os.readlink(path)) if os.path.islink(path) else name
            if os.path.join(folder, linked) not in owned:
                unrecorded.append(path)
    return unrecorded
