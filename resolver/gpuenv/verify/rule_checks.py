"""Whether what is installed suits the host: the rules of compatibility (R1 to R8), and CPU builds beside a GPU.

The rules themselves are asked of a function that the caller hands in: a stage knows no other stage's data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..compat.evaluate import is_doubt
from ..errors import Reason
from ..model import Check, Host, Lock

Against = Callable[[Iterable[tuple[str, str]]], Iterable[Reason]]


def suitability_checks(
    lock: Lock | None, survey: dict[str, Any], host: Host, against: Against, frameworks: Sequence[str]
) -> list[Check]:
    """ "rules", one check for each thing that speaks against a package on this host, and "build".

    `against` gives the reasons for (name, version) pairs; `frameworks` are names of which NAME-cpu is a build. Without
    a GPU on the host the rules of devices and drivers have nothing to say, and no build is for the CPU by mistake.
    """
    pins = [(str(row["name"]), str(row["version"])) for row in survey["distributions"]]
    found = [reason for reason in against(pins) if reason.code != "gpu-unused"]
    rules = [
        Check(
            name="rules",
            subject=reason.subject,
            status="unknown" if is_doubt(reason) else "fail",
            evidence=f"{reason.code}: needs {reason.need}; has {reason.have}",
        )
        for reason in found
        if reason.code != "cpu-build"
    ]
    if not rules:
        where = "this host" if host.gpus else "this host, which has no GPU that is known"
        evidence = f"no rule speaks against what is installed on {where}"
        rules = [Check(name="rules", subject="", status="pass", evidence=evidence)]
    known = {reason.subject.partition(" ")[0]: reason.subject for reason in found if reason.code == "cpu-build"}
    for name, version in pins:
        base = name.removesuffix("-cpu")
        if version.endswith("+cpu") or (base != name and base in frameworks):
            known.setdefault(base, f"{name} {version}")
    others = any(
        name == framework or name.startswith(f"{framework}-")
        for framework in frameworks
        if framework not in known
        for name, _ in pins
    )
    return [*rules, *(_cpu_builds(lock, known, host, others=others) if host.gpus else ())]


def _cpu_builds(lock: Lock | None, known: dict[str, str], host: Host, *, others: bool) -> list[Check]:
    """A build for the CPU on a host with a GPU, unless the lock wants it; told by the data or by its own name.

    Beside `others`, which are for CUDA, it may well be what is wanted: then it is no failure.
    """
    wanted = {one.framework for one in lock.choices if one.cuda is None} if lock is not None else set()
    gpus = ", ".join(sorted({gpu.name for gpu in host.gpus}))
    fix = "`gpuenv solve --framework {0}` finds one for CUDA"
    return [
        Check(
            name="build",
            subject=subject,
            status="unknown" if others and lock is None else "fail",
            evidence=f"a build for the CPU, and this host has {gpus}: {fix.format(name)}",
        )
        for name, subject in sorted(known.items())
        if name not in wanted
    ]
