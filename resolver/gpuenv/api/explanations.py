"""Why releases were passed over, whether a lock works on a host, and why a program failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from packaging.version import Version

from ..compat import what_if
from ..compat.data import compatibility_data
from ..compat.what_if import ChangedHost
from ..errors import (
    Change,
    GpuEnvError,
    LockReport,
    NoSolutionError,
    Reason,
    TamperedError,
    deciding_first,
    is_about_others,
)
from ..lock.other_tools import read_any_lock
from ..model import Host, IndexOptions, Plan, Rejection, Request
from ..requirements.target import parse_requirement
from . import environments
from .installing import lock_reasons, reasons_against, verify

if TYPE_CHECKING:
    from ..doctor.diagnosis import Examination

# Reasons that another Python may resolve.
_ABOUT_PYTHON = frozenset({"python", "lock-python", "lock-environment", "no-wheel-for-target"})
_EDITED = Reason(
    "lock-edited",
    "lock",
    "the content that was locked",
    "edited content",
    source="[tool.gpuenv] content",
)


def explain(request: Request, host: Host, options: IndexOptions | None = None) -> Plan:
    """Solve a request, and find the complete reasons against each release that was passed over.

    For a release that another package kept out, the reasons are those against a request for exactly
    this release and that other package, which is not older than the chosen one.

    Raises:
        NoSolutionError: there is no solution; `explanation` has every reason.
    """
    plan = environments.solve(request, host, options)
    chosen = {pin.wheel.name: Version(pin.wheel.version).public for pin in plan.pins}

    def reasons_against_pinned(rejection: Rejection) -> tuple[Reason, ...]:
        pinned = f"{rejection.name}=={rejection.version.partition(' ')[0]}"
        for text in (*request.frameworks, *request.requirements):
            name = parse_requirement(text).name
            if name == rejection.name:
                continue
            # Metadata of very old releases would have to be built.
            newer = (f"{name}>={chosen[name]}",) if name in chosen else ()
            smaller = request.replace(
                frameworks=(pinned,),
                requirements=(text,),
                constraints=(*request.constraints, *newer),
            )
            try:
                environments.solve(smaller, host, options, changes=False)
            except NoSolutionError as error:
                if error.explanation.reasons:
                    return error.explanation.reasons
            except GpuEnvError:
                pass  # nothing is known then
        return rejection.reasons

    skipped: list[Rejection] = []
    explained: set[str] = set()
    for rejection in plan.skipped:
        if all(map(is_about_others, rejection.reasons)) and rejection.name not in explained:
            explained.add(rejection.name)
            skipped.append(rejection.replace(reasons=reasons_against_pinned(rejection)))
        else:
            skipped.append(rejection)
    return plan.replace(skipped=tuple(skipped))


# ---- a lock --------------------------------------------------------------------------------------


def check_lock(
    path: str, host: Host, extras: Sequence[str] = (), groups: Sequence[str] = ()
) -> LockReport:
    """Check a lock of any tool, of wheels or of a conda environment, on a host.

    A lock of gpuenv must also be unedited and its needs fulfilled.

    In a lock of gpuenv that was made for the CPU, a CPU build is intended: the reason is a note
    (gpu-unused) then. In any other lock on a host with a GPU it is a failure.

    Args:
        path: the lock.
        host: the host.
        extras: the extras of the project that the lock of another tool is read for.
        groups: its dependency groups, too.

    Raises:
        InputError: the file is not a lock.
    """
    if environments.is_conda_lock(path):
        conda_lock = environments.read_lock(path)
        wheels = () if conda_lock.wheels is None else conda_lock.wheels.pins
        return LockReport(
            path=path,
            host=host,
            created_by="gpuenv" if conda_lock.inputs else "another tool",
            packages=len(conda_lock.pins) + len(wheels),
            reasons=lock_reasons(conda_lock, host),
        )
    lock = read_any_lock(path, host, extras, groups)
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
                rule_reasons = [
                    reason.replace(code="gpu-unused", need="no GPU", have="one, which stays unused")
                    if reason.code == "cpu-build"
                    else reason
                    for reason in rule_reasons
                ]
    if any(reason.code == "no-gpu" for reason in reasons):
        rule_reasons = [reason for reason in rule_reasons if reason.code != "gpu-unused"]
    return LockReport(
        path=path,
        host=host,
        created_by=lock.created_by,
        packages=len(lock.packages),
        reasons=(*deciding_first(reasons), *deciding_first(rule_reasons)),
    )


def explain_lock(
    path: str, host: Host, extras: Sequence[str] = (), groups: Sequence[str] = ()
) -> LockReport:
    """Check a lock as `check_lock` does.

    If it fails, find single changes with which nothing fails: of the host, at most one of each
    kind, otherwise of the frameworks and companions.
    """
    report = check_lock(path, host, extras, groups)
    if report.works:
        return report
    data = compatibility_data()

    def first_that_works(candidates: Iterable[ChangedHost]) -> ChangedHost | None:
        works = (new for new in candidates if check_lock(path, new.host, extras, groups).works)
        return next(works, None)

    python = None
    if any(reason.code in _ABOUT_PYTHON for reason in report.reasons):
        python = first_that_works(what_if.pythons(host))
    driver = first_that_works(what_if.drivers(host, data))
    gpu = first_that_works(what_if.fewer_gpus(host))
    changes = [
        Change(change=changed.change, gives="a host on which the lock works")
        for changed in (python, driver, gpu)
        if changed is not None
    ]
    if not changes and not environments.is_conda_lock(path):
        changes = _other_releases(report, read_any_lock(path, host, extras, groups).pins)
    return report.replace(changes=tuple(changes))


def _other_releases(report: LockReport, pins: Iterable[tuple[str, str]]) -> list[Change]:
    """Return single changes of the frameworks of a lock that make these work."""
    data = compatibility_data()
    texts = [
        f"{name}=={version}"
        for name, version in pins
        if data.framework_of(name) is not None or name in data.installers
    ]
    request = Request(requirements=tuple(texts))
    try:
        environments.solve(request, report.host, IndexOptions(offline=True))
    except NoSolutionError as error:
        return list(error.explanation.changes)
    except GpuEnvError:
        pass  # nothing is known then
    return []


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
    from ..doctor import diagnosis  # a tenth of the time of a solve, which does not need it

    stages = diagnosis.Stages(
        data=compatibility_data(),
        verify=partial(verify, None),
        solve=partial(environments.solve, options=IndexOptions(offline=True)),
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
