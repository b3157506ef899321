"""Check what is installed against the compatibility rules (R1 to R10), and find CPU builds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..compat.conda_parts import installed_reasons
from ..compat.data import CompatibilityData
from ..errors import Reason, is_doubt
from ..model import Check, Host, Lock
from .survey import Survey

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
            needs = "" if reason.code == "bad-pair" else "needs "  # what it needs is a sentence
            evidence = f"{reason.code}: {needs}{reason.need}; has {reason.have}"
            check = Check("rules", reason.subject, status, evidence)
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
