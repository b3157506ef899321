"""Why releases were passed over, whether a lock works on a host, and why a program failed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, BinaryIO

from ..errors import (
    Change,
    GpuEnvError,
    InputError,
    NoSolutionError,
    Reason,
    TamperedError,
    is_doubt,
)
from ..model import Host, IndexOptions, Lock, Plan, Rejection, Request, Value
from . import environments
from .data import compatibility_data
from .hosts import describe
from .wheels import lock_reasons, reasons_against

if TYPE_CHECKING:  # the stages are imported when they are first used
    from ..compat.what_if import ChangedHost
    from ..doctor.diagnosis import Examination

# Reasons that another Python may resolve.
_ABOUT_PYTHON = frozenset({"python", "lock-python", "lock-environment", "no-wheel-for-target"})


# ---- a request -----------------------------------------------------------------------------------


def framework_of_nickname(name: str) -> str | None:
    """Return the framework that a nickname means, such as torch for PyTorch; None if none."""
    from ..resolve.requested import NICKNAMES

    return NICKNAMES.get(name.lower())


def split_frameworks(
    frameworks: Sequence[str], requirements: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Treat a requirement on a framework as a request for the framework.

    Args:
        frameworks: the texts of --framework.
        requirements: PEP 508 texts, or paths and URLs.

    Returns:
        (the frameworks, the other requirements). Only the first requirement on a framework is
        moved.
    """
    from ..requirements.target import parse_requirement

    data = compatibility_data()
    named = {parse_requirement(text).name for text in frameworks}
    moved, kept = list(frameworks), []
    for text in requirements:
        if "/" in text or "\\" in text:
            kept.append(text)
            continue
        requirement = parse_requirement(text)
        conditional = requirement.marker or requirement.url
        if conditional or requirement.name in named or data.framework(requirement.name) is None:
            kept.append(text)
        else:
            named.add(requirement.name)
            moved.append(text)
    return moved, kept


def explain(request: Request, host: Host, options: IndexOptions | None = None) -> Plan:
    """Solve a request, and find the complete reasons against each release that was passed over.

    For a framework's release that another framework kept out, the reasons are those against a
    request for exactly this release and that other framework.

    Raises:
        NoSolutionError: there is no solution; `explanation` has every reason.
    """
    plan = environments.solve(request, host, options)
    skipped: list[Rejection] = []
    explained: set[str] = set()
    for rejection in plan.skipped:
        conflict_only = all(reason.code == "conflict" for reason in rejection.reasons)
        if conflict_only and rejection.name not in explained:
            explained.add(rejection.name)
            skipped.append(_with_complete_reasons(rejection, request, host, options))
        else:
            skipped.append(rejection)
    return plan.replace(skipped=tuple(skipped))


def _with_complete_reasons(
    rejection: Rejection, request: Request, host: Host, options: IndexOptions | None
) -> Rejection:
    for smaller in _smaller_requests(rejection, request):
        reasons = _reasons_against_request(smaller, host, options)
        if reasons:
            return rejection.replace(reasons=reasons)
    return rejection


def _smaller_requests(rejection: Rejection, request: Request) -> list[Request]:
    """Return requests for the rejected release and one other framework or requirement each."""
    from ..requirements.target import parse_requirement

    pinned = f"{rejection.name}=={rejection.version.partition(' ')[0]}"
    with_framework = [
        request.replace(frameworks=(pinned, framework), requirements=())
        for framework in request.frameworks
        if parse_requirement(framework).name != rejection.name
    ]
    with_requirement = [
        request.replace(frameworks=(pinned,), requirements=(requirement,))
        for requirement in request.requirements
    ]
    return [*with_framework, *with_requirement]


def _reasons_against_request(
    request: Request, host: Host, options: IndexOptions | None
) -> tuple[Reason, ...]:
    """Return the reasons against a request; () if there are none or if they are not known."""
    try:
        environments.solve(request, host, options, changes=False)
    except NoSolutionError as error:
        return error.explanation.reasons
    except GpuEnvError:
        return ()
    return ()


# ---- a lock --------------------------------------------------------------------------------------


class LockReport(Value):
    """Whether a lock file of any tool works on a host.

    `packages` is the number of packages that it installs there; `changes` are single changes of the
    host with which nothing fails any more, if they were looked for.
    """

    path: str
    host: Host
    created_by: str
    packages: int
    reasons: tuple[Reason, ...]
    changes: tuple[Change, ...] = ()

    @property
    def works(self) -> bool:
        """Return whether all reasons are doubts: facts that are not known, or notes."""
        return all(is_doubt(reason) for reason in self.reasons)


def check_lock(path: str, host: Host) -> LockReport:
    """Check a PEP 751 lock or the lock of a conda environment, of any tool, on a host.

    A lock of gpuenv must also be unedited and its needs fulfilled.

    In a lock of gpuenv that was made for the CPU, a CPU build is intended: the reason is a note
    (gpu-unused) then. In any other lock on a host with a GPU it is a failure.

    Raises:
        InputError: the file is not a lock.
    """
    from ..lock.other_tools import read_any_lock

    if environments.is_conda_lock(path):
        return _check_conda_lock(path, host)
    lock = read_any_lock(path, host)
    reasons = list(lock.reasons)
    rule_reasons = list(reasons_against(lock.pins, host))
    if lock.created_by == "gpuenv":
        try:
            own = environments.read_lock(path)
        except TamperedError:
            reasons.append(_EDITED)
        else:
            reasons += lock_reasons(own, host)
            if own.needs.driver is None:
                rule_reasons = [_as_intended(reason) for reason in rule_reasons]
    if any(reason.code == "no-gpu" for reason in reasons):
        rule_reasons = [reason for reason in rule_reasons if reason.code != "gpu-unused"]
    return LockReport(
        path=path,
        host=host,
        created_by=lock.created_by,
        packages=len(lock.pins),
        reasons=(*reasons, *rule_reasons),
    )


def _check_conda_lock(path: str, host: Host) -> LockReport:
    from .conda import reasons_against_lock

    lock = environments.read_lock(path)
    wheels = () if lock.wheels is None else lock.wheels.pins
    return LockReport(
        path=path,
        host=host,
        created_by="gpuenv" if lock.inputs else "another tool",
        packages=len(lock.pins) + len(wheels),
        reasons=reasons_against_lock(lock, host),
    )


_EDITED = Reason(
    code="lock-edited",
    subject="lock",
    need="the content that was locked",
    have="edited content",
    source="[tool.gpuenv] content",
)


def _as_intended(reason: Reason) -> Reason:
    if reason.code != "cpu-build":
        return reason
    return reason.replace(code="gpu-unused", need="no GPU", have="one, which stays unused")


def read_own_lock(path: str) -> Lock | None:
    """Read a lock that gpuenv wrote; None for a lock of another tool and for an edited one.

    Raises:
        InputError: there is no such file.
    """
    try:
        lock = environments.read_lock(path)
    except InputError:
        if not os.path.exists(path):
            raise
        return None
    # Only gpuenv writes the channels into a conda lock.
    return lock if lock.inputs or not lock.conda else None


def explain_lock(path: str, host: Host) -> LockReport:
    """Check a lock as `check_lock` does; if it fails, find the changes that help."""
    report = check_lock(path, host)
    if report.works:
        return report
    return report.replace(changes=tuple(_changes(report)))


def _changes(report: LockReport) -> list[Change]:
    """Find single changes of the host with which nothing fails: at most one of each kind."""
    from ..compat import what_if

    data = compatibility_data()
    host = report.host

    def first_that_works(candidates: Iterable[ChangedHost]) -> ChangedHost | None:
        for candidate in candidates:
            if check_lock(report.path, candidate.host).works:
                return candidate
        return None

    python = None
    if any(reason.code in _ABOUT_PYTHON for reason in report.reasons):
        python = first_that_works(what_if.pythons(host))
    driver = first_that_works(what_if.drivers(host, data))
    gpu = first_that_works(what_if.fewer_gpus(host)) or first_that_works(what_if.gpus(host, data))
    return [
        Change(change=candidate.change, gives="a host on which the lock works")
        for candidate in (python, driver, gpu)
        if candidate is not None
    ]


# ---- a failure -----------------------------------------------------------------------------------


def examine(
    log: BinaryIO | None,
    host: Host,
    *,
    target: str | None = None,
    target_is_named: bool = True,
    described: bool = False,
    stated_origin: str = "",
    probe: bool = False,
    timeout: float = 300.0,
    root: str = "/",
    flags: Sequence[str] = (),
) -> Examination:
    """Diagnose a failure by a log, by this host and by an environment. No file is changed.

    Args:
        log: what the program printed; None checks everything, on the devices too.
        host: the host.
        target: the environment: its folder or its interpreter; None leaves it out.
        target_is_named: whether the user named the environment of the log. The active environment
            is evidence only if the log may be from this machine.
        described: whether the host was described by flags; no device of this machine is used then.
        stated_origin: "here" or "elsewhere" if the user said where the log is from.
        probe: whether to run the tests that tell causes apart.
        timeout: seconds for the checks, and for the tests.
        root: the folder that holds /dev.
        flags: the host flags, to be repeated in the command that is proposed.

    Returns:
        The examination; `Examination.diagnosis` has the verdicts, the best first.

    Raises:
        InputError: there is no interpreter at the target.
    """
    from functools import partial

    from ..doctor import diagnosis

    stages = diagnosis.Stages(
        data=compatibility_data(),
        verify=partial(environments.verify, None),
        solve=partial(environments.solve, options=IndexOptions(offline=True)),
        describe=describe,
    )
    return diagnosis.examine(
        log,
        host,
        stages,
        target=target,
        target_is_named=target_is_named,
        described=described,
        stated_origin=stated_origin,
        probe=probe,
        timeout=timeout,
        root=root,
        flags=flags,
    )
