"""Checks of what is installed, by the probe "installed".

Interpreter, versions, glibc, owners and files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ..model import Check, Lock, Mark, show_pair
from ..prefix import INSTALLATION_TOOLS
from ..probes.answers import FilesAnswer, SurveyAnswer
from ..requirements.versions import same_version
from .runner import Outcome

SHOWN = 6  # names in the evidence of one check
SHOWN_OWNERS = 3

Claims = Sequence[tuple[str, str]]  # (distribution, hash) of each owner of a path


def first_items(items: Sequence[str]) -> str:
    """Return the first of the items, and how many more there are."""
    more = f", and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more


def first_texts(texts: Sequence[str], shown: int = SHOWN) -> str:
    """Return the first of the texts, and how many more there are."""
    more = f"; and {len(texts) - shown} more" if len(texts) > shown else ""
    return "; ".join(texts[:shown]) + more


# ---- interpreter, versions, glibc ---------------------------------------------------------------


def survey_checks(lock: Lock | None, survey: SurveyAnswer) -> list[Check]:
    """Return the checks "interpreter", "versions", "variants" and "glibc".

    "versions" needs a lock, "variants" one with variant wheels, and "glibc" a wheel that needs one.
    """
    interpreter = survey["interpreter"]
    version = ".".join(map(str, interpreter["version"]))
    evidence = f"{interpreter['implementation']} {version} at {interpreter['executable']}"
    status = "pass"
    needed = lock.needs.python if lock is not None else None
    if needed is not None and tuple(interpreter["version"][:2]) != needed:
        status = "fail"
        evidence += f"; the lock is for Python {show_pair(needed)}"
    checks = [Check("interpreter", "", status, evidence)]
    if lock is not None:
        installed = {row["name"]: row["version"] for row in survey["distributions"]}
        checks.append(_version_check(lock, installed))
        if lock.variants:
            labels = {row["name"]: row.get("variant") for row in survey["distributions"]}
            checks.append(_variant_check(lock, labels))
    glibc = _glibc_check(survey)
    if glibc is not None:
        checks.append(glibc)
    return checks


def _glibc_check(survey: SurveyAnswer) -> Check | None:
    """Check that glibc is as new as the wheels need.

    An environment may be mounted on an older host.

    None if no wheel needs one (Windows, or nothing that was compiled).
    """
    needs = [
        (_pair(row["glibc"]), f"{row['name']} {row['version']}")
        for row in survey["distributions"]
        if row["glibc"]
    ]
    if not needs:
        return None
    newest, newest_name = max(needs)
    own = survey["interpreter"]["glibc"]
    if own is None:
        evidence = (
            f"this system has no glibc, and {len(needs)} distributions are built for one: "
            f"{newest_name}"
        )
        return Check("glibc", "", "unknown", evidence)
    have = _pair(own)
    too_new = [(need, name) for need, name in needs if need > have]
    if too_new:
        texts = [f"{name} is built for glibc {show_pair(need)}" for need, name in sorted(too_new)]
        evidence = f"{first_items(texts)}; this system has {show_pair(have)}"
        marks = tuple(("glibc", name, show_pair(need)) for need, name in too_new)
        return Check("glibc", "", "fail", evidence, marks=marks)
    evidence = (
        f"{show_pair(have)}; the newest that is needed is {show_pair(newest)} ({newest_name})"
    )
    return Check("glibc", "", "pass", evidence)


def _pair(version: Sequence[int]) -> tuple[int, int]:
    return version[0], version[1]


def _version_check(lock: Lock, installed: Mapping[str, str]) -> Check:
    wrong = []
    for pin in lock.pins:
        name, version = pin.wheel.name, pin.wheel.version
        if name not in installed:
            wrong.append(f"{name} {version} is not installed")
        elif not same_version(installed[name], version):
            wrong.append(f"{name} is {installed[name]}, the lock says {version}")
    expected = {pin.wheel.name for pin in lock.pins} | INSTALLATION_TOOLS
    others = sorted(set(installed) - expected)
    more = f"; not in the lock: {first_items(others)}" if others else ""
    if wrong:
        evidence = "; ".join(wrong[:SHOWN]) + more
        return Check("versions", "", "fail", evidence)
    evidence = f"{len(lock.pins)} as locked{more}"
    return Check("versions", "", "pass", evidence)


def _variant_check(lock: Lock, labels: Mapping[str, str | None]) -> Check:
    """Check that each variant wheel of the lock is installed as that variant (PEP 825)."""
    wrong = []
    for variant in lock.variants:
        label = labels.get(variant.name)
        if label != variant.label:
            have = label or "no variant"
            wrong.append(f"{variant.name} is {have}, the lock says {variant.label}")
    if wrong:
        return Check("variants", "", "fail", first_texts(wrong))
    evidence = f"{len(lock.variants)} as locked"
    return Check("variants", "", "pass", evidence)


# ---- owners -------------------------------------------------------------------------------------


def file_checks(survey: SurveyAnswer, outcome: Outcome) -> list[Check]:
    """Return the checks "owners" and "files". `outcome` is that of the probe in mode "files"."""
    answer: FilesAnswer | None = outcome.answer
    return [_owner_check(survey, answer), _file_check(survey, outcome, answer)]


def _owner_check(survey: SurveyAnswer, answer: FilesAnswer | None) -> Check:
    """Check R5: no path belongs to two distributions, and no distribution is installed twice.

    Files with the same bytes (an empty __init__.py) conflict with nothing. A folder of tests that
    two packages install breaks nothing either, and is only mentioned.
    """
    texts: list[str] = []
    notes: list[str] = []
    marks: list[Mark] = []
    for path, claims in survey["shared"]:
        if not _is_library(path) and _same_bytes(claims):
            continue
        names = [name for name, _ in claims]
        text = f"{' and '.join(names)} both own {path}{_whose_bytes(path, claims, answer)}"
        if _is_library(path) or any(name.startswith("nvidia-") for name in names):
            texts.append(text)
            marks.append(("two-owners", path, " ".join(names)))
        else:
            notes.append(text)
    for name, versions in survey["twice"]:
        texts.append(f"{name} is installed twice, as {' and '.join(versions)}")
        marks.append(("twice", name, " ".join(versions)))
    two_cudnn = _two_cudnn(survey)
    if two_cudnn:
        texts.append(two_cudnn)
        marks.append(("two-owners", "libcudnn.so", ""))
    if texts:
        # Libraries first: they break the environment.
        texts.sort(key=lambda text: ".so" not in text)
        evidence = first_texts(texts, SHOWN_OWNERS)
        return Check("owners", "", "fail", evidence, marks=tuple(marks))
    evidence = "no file has two owners"
    if notes:
        notes.insert(0, "no library and no file of NVIDIA's has two owners")
        evidence = "; ".join(notes[: SHOWN_OWNERS + 1])
    return Check("owners", "", "pass", evidence)


def _is_library(path: str) -> bool:
    return ".so" in os.path.basename(path)


def _same_bytes(claims: Claims) -> bool:
    return len({digest for _, digest in claims}) == 1


def _whose_bytes(path: str, claims: Claims, answer: FilesAnswer | None) -> str:
    """Return which of the owners the file on disk is from, by its hash; "" if that is not known."""
    if answer is None or not os.path.exists(path) or _same_bytes(claims):
        return ""
    changed = set()
    for name, changed_path, _ in (*answer["changed"], *answer["other"]):
        changed.add((name, changed_path))
    matching = []
    for name, digest in claims:
        if digest.startswith("sha256=") and (name, path) not in changed:
            matching.append(name)
    if len(matching) == 1:
        return f": its bytes are those of {matching[0]}"
    return ": its bytes are those of neither"


def _two_cudnn(survey: SurveyAnswer) -> str:
    """Return a text if a prefix has conda's cuDNN and a wheel's.

    The first import decides which is loaded.
    """
    conda = survey.get("conda", {})
    wheels = {}
    for row in survey["distributions"]:
        if row["installer"] != "conda":
            wheels[row["name"]] = row["version"]
    of_conda: dict[str, str] = {}
    of_wheels: dict[str, str] = {}
    for path, name in survey["libraries"]:
        if not os.path.basename(path).startswith("libcudnn.so"):
            continue
        folder = os.path.dirname(path)
        if name in wheels:
            of_wheels.setdefault(name, f"{name} {wheels[name]} of a wheel in {folder}")
        elif name in conda:
            of_conda.setdefault(name, f"{name} {conda[name]} of conda in {folder}")
    if not of_conda or not of_wheels:
        return ""
    return f"two libcudnn.so: {' and '.join([*of_conda.values(), *of_wheels.values()])}"


# ---- files --------------------------------------------------------------------------------------


def _file_check(survey: SurveyAnswer, outcome: Outcome, answer: FilesAnswer | None) -> Check:
    """Compare the distributions' files with their RECORDs.

    Installers write RECORD last: a distribution without one is half installed. One of two owners of
    a path finds the bytes of the other; the check "owners" reports what that means.
    """
    if answer is None:
        return Check("files", "", "unknown", outcome.failure, seconds=outcome.seconds)
    shared = {path for path, _ in survey["shared"]}
    wrong = [f"{name} has no RECORD: reinstall it" for name in answer["no_record"]]
    wrong += [f"{path} of {name} is missing" for name, path in answer["missing"]]
    for name, path, reason in answer["changed"]:
        if name.startswith("nvidia-") or path not in shared:
            wrong.append(f"{path} of {name}: {reason}")
    wrong += [f"{path} belongs to no distribution" for path in answer["extra"]]
    doubts = []
    if answer["left"]:
        doubts.append(f"{answer['left']} files were not read in time")
    marks = [("no-record", name, "") for name in answer["no_record"]]
    prefix = survey["interpreter"]["prefix"]
    for path, digest in sorted(answer["libraries"].items()):
        marks.append(("library", os.path.relpath(path, prefix), digest))
    if wrong:
        status, evidence = "fail", first_texts([*wrong, *doubts])
    else:
        status = "unknown" if doubts else "pass"
        gigabytes = answer["hashed_bytes"] / 1e9
        read = f"{answer['hashed']} files by sha256 ({gigabytes:.1f} GB)"
        notes = [f"{read}, {answer['sized']} by size", *doubts]
        others = [f"{path} of {name} ({reason})" for name, path, reason in answer["other"]]
        if others:
            notes.append(f"{len(others)} data files are not as recorded: {first_items(others)}")
        evidence = "; ".join(notes)
    return Check("files", "", status, evidence, seconds=outcome.seconds, marks=tuple(marks))
