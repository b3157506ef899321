"""Check what is installed against the compatibility rules (R1 to R10), and find CPU builds.

The rules judge known releases. The check "device code" reads every library, cubin and fat binary,
so that it also finds what no table knows: an extension that was built here, a cubin, a wheel of
another source. Nothing is loaded.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence

from ..binaries.environment import scan_environment
from ..binaries.served import JudgedFile, judge
from ..compat.architectures import parse_target, show_code
from ..compat.conda_parts import installed_reasons
from ..compat.data import CompatibilityData
from ..errors import InputError, Reason, is_doubt
from ..model import Check, Host, Lock, Mark, first_texts, show_pair
from ..requirements.versions import parse_requirement
from .survey import Survey

_DEVICE_CODE = "device code"
# A CUDA build without a GPU is no mistake. The check "owners" says whose files are there.
_OTHER_CODES = ("gpu-unused", "shared-paths")


def rule_checks(
    lock: Lock | None,
    survey: Survey,
    host: Host,
    data: CompatibilityData,
    frameworks: Sequence[str],
) -> list[Check]:
    """Return the checks "rules", one for each reason against a package on this host, and "build".

    Without a GPU on the host the rules about devices and drivers give no reasons, and no CPU build
    is a mistake.

    Args:
        lock: what should be installed, if it is known.
        survey: what is installed.
        host: the host.
        data: the compatibility data.
        frameworks: names of which NAME-cpu is a CPU build.
    """
    found = installed_reasons(survey.wheels, list(survey.conda.values()), host, data)
    reasons = [reason for reason in found if reason.code not in _OTHER_CODES]
    checks = []
    for reason in reasons:
        if reason.code != "cpu-build":
            # Each package may load its own library of two.
            unproved = is_doubt(reason) or reason.code == "two-libraries"
            status = "unknown" if unproved else "fail"
            needs = "" if reason.code.endswith("-pair") else "needs "  # what it needs is a sentence
            evidence = f"{reason.code}: {needs}{reason.need}; has {reason.have}"
            check = Check("rules", reason.subject, status, evidence)
            with contextlib.suppress(InputError):  # most needs are no requirements
                needed = parse_requirement(reason.need)
                if needed.name in survey.versions:
                    check = check.replace(marks=(("required", needed.name, needed.specifier),))
            if reason.code == "two-cudnn":
                check = check.replace(name="owners", marks=(("two-owners", "libcudnn.so", ""),))
            checks.append(check)
    if not checks:
        where = "this host" if host.gpus else "this host, which has no known GPU"
        evidence = f"what is installed breaks no rule on {where}"
        checks.append(Check("rules", "", "pass", evidence))
    if host.gpus:
        checks += _cpu_builds(lock, reasons, survey.wheels, host, frameworks)
    return checks


def _cpu_builds(
    lock: Lock | None,
    reasons: Iterable[Reason],
    pins: Sequence[tuple[str, str]],
    host: Host,
    frameworks: Sequence[str],
) -> list[Check]:
    """Return a check for each CPU build that the lock does not ask for.

    Without a lock, a CPU build beside a framework with a CUDA build may be intended: then it is no
    failure.
    """
    builds = {}  # {framework: subject of its check}
    for reason in reasons:
        if reason.code == "cpu-build":
            builds[reason.subject.partition(" ")[0]] = reason.subject
    for name, version in pins:  # the name of a build tells it, too
        framework = name.removesuffix("-cpu")
        named_cpu = framework != name and framework in frameworks
        if version.endswith("+cpu") or named_cpu:
            builds.setdefault(framework, f"{name} {version}")
    others = tuple(framework for framework in frameworks if framework not in builds)
    has_other = any(
        name in others or name.startswith(tuple(f"{framework}-" for framework in others))
        for name, _ in pins
    )
    intended = set()
    if lock is not None:
        intended = {choice.framework for choice in lock.choices if choice.cuda is None}
    status = "unknown" if lock is None and has_other else "fail"
    gpus = ", ".join(sorted({gpu.name for gpu in host.gpus}))
    checks = []
    for name, subject in sorted(builds.items()):
        if name not in intended:
            fix = f"`gpuenv solve --framework {name}` finds a CUDA build"
            evidence = f"a CPU build, and this host has {gpus}: {fix}"
            checks.append(Check("build", subject, status, evidence))
    return checks


# ---- device code ---------------------------------------------------------------------------------


def device_code_checks(
    target: str, survey: Survey, host: Host, data: CompatibilityData, deadline: float
) -> list[Check]:
    """Return a check for each distribution with a file that cannot run on a device of the host.

    Args:
        target: the folder of the environment, or its interpreter.
        survey: what is installed.
        host: without a GPU there is nothing to check.
        data: the compatibility data.
        deadline: time.monotonic when reading stops.
    """
    if not host.gpus:
        return []
    begin = time.monotonic()
    folders = sorted({row.folder for row in survey.distributions})
    contents = scan_environment(target, more=folders, deadline=deadline)
    judged = judge(contents.files, host, data)
    by_owner: dict[str, list[JudgedFile]] = {}  # what fails or may fail, by distribution or path
    for judged_file in judged:
        file = judged_file.file
        is_nvidia = file.owner.startswith("nvidia-")
        if file.fault or (judged_file.reasons and not is_nvidia):
            by_owner.setdefault(file.owner or file.path, []).append(judged_file)
    checks = [_owner_check(owner, files) for owner, files in sorted(by_owner.items())]
    if not contents.complete:
        evidence = f"only {contents.read} files were read in time"
        checks.append(Check(_DEVICE_CODE, "", "unknown", evidence))
    elif not checks:
        gpus = ", ".join(sorted({gpu.name for gpu in host.gpus}))
        without = [os.path.basename(one.file.path) for one in judged if one.reasons]
        text = f"{len(judged) - len(without)} files with device code run on {gpus}"
        if without:
            text += f"; libraries of NVIDIA without code for it: {first_texts(without, ', ')}"
        checks.append(Check(_DEVICE_CODE, "", "pass", text))
    seconds = round(time.monotonic() - begin, 3)
    return [checks[0].replace(seconds=seconds), *checks[1:]]


def _owner_check(owner: str, files: Sequence[JudgedFile]) -> Check:
    failing = [judged_file for judged_file in files if judged_file.fails]
    broken = [judged_file for judged_file in files if judged_file.file.fault]
    if broken:
        evidence = f"{broken[0].file.path}: {broken[0].file.fault}"
        return Check(_DEVICE_CODE, owner, "unknown", evidence)
    shown = failing or files
    first = shown[0]
    names = first_texts([judged_file.file.path for judged_file in shown], ", ")
    evidence = f"{names}: has {show_code(first.code)}; needs {first.reasons[0].need}"
    if failing:
        marks = (*_marks(failing), ("rebuild", owner, first.hint))
        return Check(_DEVICE_CODE, owner, "fail", f"{evidence}: {first.hint}", marks=marks)
    if first.optional:
        evidence += f" ({first.optional})"
    return Check(_DEVICE_CODE, owner, "unknown", evidence, marks=_marks(shown))


def _marks(files: Iterable[JudgedFile]) -> tuple[Mark, ...]:
    """Return the marks of files, with the compute capabilities of their SASS: 8.0 for sm_80."""
    marks = []
    for judged_file in files:
        capabilities = [show_pair(parse_target(sass)[0]) for sass in judged_file.code.sass or ()]
        marks.append(("no-code", judged_file.file.path, " ".join(capabilities)))
    return tuple(marks)
